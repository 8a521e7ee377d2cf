"""`fixed_point`: solve z = f(z), and attach the gradient that the chosen backward mode says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual

from unsnap.algorithms.iterate import Solution
from unsnap.errors import InputError
from unsnap.fixed_point.adjoint import ONE_BY_ONE
from unsnap.fixed_point.anderson import anderson
from unsnap.fixed_point.backward import Backward, BackwardReport, Unroll, implicit
from unsnap.fixed_point.solver import Solver, solve

States = tuple[Tensor, ...]
Closure = Callable[..., Tensor | States]


@dataclass(frozen=True, repr=False)
class FixedPoint(Solution):
    """A Solution whose residual is ‖f(z) − z‖ / ‖f(z)‖ and whose x is the best point measured, not the last."""

    state: States
    """All of z; a warm start for the next solve."""
    best: Tensor
    """(B,) the residual at the point returned."""
    steps: Tensor
    """(B,) evaluations spent on each sample."""
    evaluations: int
    """Calls of f."""
    backward: BackwardReport
    """Filled in when the backward pass has run."""

    @property
    def final(self) -> Tensor:
        return self.best

    def shaped(self, lead: tuple[int, ...]) -> FixedPoint:
        """The same with these leading axes in place of the batch axis, in every field."""
        return replace(
            self,
            x=self.x.reshape(*lead, *self.x.shape[1:]),
            residual=self.residual.reshape(len(self.residual), *lead),
            converged=self.converged.reshape(lead),
            diverged=self.diverged.reshape(lead),
            state=tuple(part.reshape(*lead, *part.shape[1:]) for part in self.state),
            best=self.best.reshape(lead),
            steps=self.steps.reshape(lead),
        )

    @property
    def reason(self) -> list[str]:
        """Why each sample stopped."""
        pairs = zip(self.converged.flatten().tolist(), self.diverged.flatten().tolist(), strict=True)
        return [
            "converged" if good else "diverged: values no longer finite" if bad else "iterations ran out"
            for good, bad in pairs
        ]


@runtime_checkable
class Selectable(Protocol):
    """A map that can be narrowed to some samples of its batch, so that finished samples cost nothing."""

    def __call__(self, z: Any) -> Any: ...

    def select(self, rows: Tensor) -> Closure: ...


def fixed_point(
    f: Closure | Selectable,
    z0: Tensor | States,
    *,
    solver: Solver | None = None,
    backward: Backward | None = None,
    tol: float = 1e-4,
    max_iter: int = 100,
    callback: Callable[[int, Tensor, Tensor], None] | None = None,
) -> FixedPoint:
    """The solution of z = f(z) from z0: a tensor (B, ...) or a tuple of them, f returning the same.

    f must be pure. The first axis is the batch: residuals ‖f(z) − z‖ / ‖f(z)‖, stopping and failure are per sample. If
    f has a method `select(rows)` returning the map for those samples only, finished samples cost no more compute.
    Without recording of gradients the backward mode costs nothing. `Solution.x` is the first tensor of the state, and
    `callback(evaluation, x, residual)` is shown the best so far.

    >>> z = fixed_point(lambda z: 0.5 * z + 1, torch.zeros(2, 3)).x
    >>> bool((z - 2).abs().max() < 1e-3)
    True
    """
    if max_iter < 1 or not float(max_iter).is_integer():
        raise InputError(f"max_iter must be a whole number of at least 1, got {max_iter}")
    if not tol >= 0:
        raise InputError(f"tol must be a number >= 0, got {tol}")
    packing = _Packing(z0)
    flat = _FlatMap(f, packing)
    start = packing.flatten(z0)
    watch = callback and (lambda k, z, residual: callback(k, packing.unflatten(z)[0], residual))
    report = BackwardReport()
    if isinstance(backward, Unroll):
        trace = backward.run(flat, start, watch)
    else:
        with torch.no_grad():
            trace = solve(flat.backwards_only, start.detach(), solver or anderson(), tol, int(max_iter), watch)
        if torch.is_grad_enabled():
            trace = replace(trace, z=(backward or implicit()).attach(flat, trace.z, report))
    state = packing.unflatten(trace.z)
    return FixedPoint(
        x=state[0],
        residual=trace.residual,
        converged=trace.best <= tol,
        diverged=trace.diverged,
        state=state,
        best=trace.best,
        steps=trace.steps,
        evaluations=trace.evaluations,
        backward=report,
    )


class _Packing:
    """How a state of one or several tensors lies in one matrix (B, n)."""

    def __init__(self, z: Tensor | States) -> None:
        self.single = isinstance(z, Tensor)
        self._make = getattr(type(z), "_make", tuple)  # a named tuple stays one
        parts = _parts(z)
        if not parts or any(p.ndim < 1 or p.shape[0] != parts[0].shape[0] for p in parts):
            raise InputError(
                f"z0 must be a tensor (B, ...) or a tuple of tensors that share their first axis, got {_say(z)}"
            )
        if any(p.dtype != parts[0].dtype or not p.is_floating_point() for p in parts):
            raise InputError(f"z0 must be of one real floating-point dtype, got {_say(z)}")
        if not all(bool(torch.isfinite(p).all()) for p in parts):
            raise InputError("z0 holds NaN or infinite values; start from a finite estimate")
        self.count, self.dtype = parts[0].shape[0], parts[0].dtype
        self.shapes = [p.shape[1:] for p in parts]
        self.sizes = [shape.numel() for shape in self.shapes]

    def flatten(self, z: Tensor | States) -> Tensor:
        parts = [p.reshape(p.shape[0], size) for p, size in zip(_parts(z), self.sizes, strict=True)]
        return parts[0] if len(parts) == 1 else torch.cat(parts, 1)

    def unflatten(self, flat: Tensor) -> States:
        parts = [flat] if len(self.sizes) == 1 else torch.split(flat, self.sizes, 1)
        return self._make(p.reshape(p.shape[0], *shape) for p, shape in zip(parts, self.shapes, strict=True))

    def check(self, value: Tensor | States, rows: int) -> None:
        wanted = [((rows, *shape), self.dtype) for shape in self.shapes]
        if [(tuple(p.shape), p.dtype) for p in _parts(value)] != wanted:
            expected = ", ".join(f"{dtype} {shape}" for shape, dtype in wanted)
            raise ValueError(f"f must return what it is given, {expected}, but returned {_say(value)}")


class _FlatMap:
    """f on matrices (B, n), checked, and narrowed when samples have left."""

    def __init__(self, f: Closure | Selectable, packing: _Packing) -> None:
        self._f, self._packing = f, packing
        self._last: Tensor | None = None
        self._narrow: tuple[int, Closure] | None = None

    def __call__(self, z: Tensor) -> Tensor:
        value = self._apply(self._f, z)
        if self._last is None and len(z) and not bool(torch.isfinite(value).all(1).any()):
            raise ValueError("f returned NaN or infinite values at z0 for every sample; check the map and its inputs")
        self._last = z
        return value

    def backwards_only(self, z: Tensor, active: Tensor) -> Tensor:
        """`rows` of a map through which no derivative travels forwards: solvers would pass it on, as far as they go."""
        value = self.rows(z, active)
        if unpack_dual(value).tangent is not None:  # type: ignore[no-untyped-call]
            raise RuntimeError(ONE_BY_ONE)
        return value

    def rows(self, z: Tensor, active: Tensor) -> Tensor:
        if self._last is None or len(active) == self._packing.count:
            return self(z)
        if isinstance(self._f, Selectable):
            if self._narrow is None or self._narrow[0] != len(active):
                self._narrow = (len(active), self._f.select(active))
            return self._apply(self._narrow[1], z)
        # A plain closure knows only the whole batch: finished samples ride along at their last point.
        return self(self._last.index_copy(0, active, z))[active]

    def _apply(self, f: Closure, z: Tensor) -> Tensor:
        state = self._packing.unflatten(z)
        before = None if z.is_inference() else z._version
        value = f(state[0]) if self._packing.single else f(state)
        if before is not None and z._version != before:
            raise ValueError("f changed its argument in place, which the solver still needs; return a new tensor")
        self._packing.check(value, len(z))
        return self._packing.flatten(value)


def _parts(z: Tensor | States) -> list[Tensor]:
    """The tensors of a state; none if it is something else."""
    parts = [z] if isinstance(z, Tensor) else list(z) if isinstance(z, (tuple, list)) else []
    return parts if all(isinstance(p, Tensor) for p in parts) else []


def _say(z: object) -> str:
    parts = [z] if isinstance(z, Tensor) else z if isinstance(z, (tuple, list)) else []
    said = [f"{p.dtype} {tuple(p.shape)}" if isinstance(p, Tensor) else type(p).__name__ for p in parts]
    return ", ".join(said) or type(z).__name__
