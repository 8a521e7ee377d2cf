r"""How to differentiate through $\hat z = f(\hat z)$: modes as values.

With $J = \partial f/\partial z$ at $\hat z$, the gradient of a loss is $(\partial f/\partial\theta)^\top a$ where
$a = (I - J)^{-\top} v$ and $v = \partial\ell/\partial\hat z$: one evaluation of f is recorded, whatever number it
took to get there. All modes but `unroll` return $\hat z$ itself and differ in $a$ alone.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from unsnap.fixed_point.anderson import anderson
from unsnap.fixed_point.solver import Solver, Trace, relative_norm, solve

Map = Callable[[Tensor], Tensor]
"""f on flattened states (B, n)"""


@dataclass
class BackwardReport:
    """What the backward pass did, filled in when it runs; `residual` and `converged` by `implicit` alone."""

    evaluations: int = 0
    """Products with Jᵀ."""
    residual: Tensor | None = None
    """(B,) relative residual of the adjoint equation."""
    converged: bool | None = None


class Attach(Protocol):
    """Given f and the solution z (B, n), return z with a gradient attached."""

    def attach(self, f: Map, z: Tensor, report: BackwardReport) -> Tensor: ...


@dataclass(frozen=True)
class Implicit:
    solver: Solver
    tol: float
    max_iter: int

    def attach(self, f: Map, z: Tensor, report: BackwardReport) -> Tensor:
        def adjoint(transpose: Map, v: Tensor) -> Tensor:
            """Solve a = Jᵀa + v; if that fails, the best a found, or v itself (JFB) where none is finite."""

            def evaluate(a: Tensor, rows: Tensor) -> Tensor:
                return _padded(transpose, a, rows, v) + v[rows]

            trace = solve(evaluate, v, self.solver, self.tol, self.max_iter)
            report.evaluations, report.residual = trace.evaluations, trace.best
            report.converged = bool((trace.best <= self.tol).all())
            if not report.converged:
                _warn(float(trace.best.max()), self.tol, trace.evaluations)
            return torch.where(torch.isfinite(trace.best)[:, None], trace.z, v)

        return _attach_adjoint(f, z, adjoint)


@dataclass(frozen=True)
class Neumann:
    terms: int

    def attach(self, f: Map, z: Tensor, report: BackwardReport) -> Tensor:
        def adjoint(transpose: Map, v: Tensor) -> Tensor:
            a = v
            for _ in range(self.terms):
                a = transpose(a) + v
            report.evaluations = self.terms
            return a

        return _attach_adjoint(f, z, adjoint)


@dataclass(frozen=True)
class Phantom:
    steps: int
    damping: float

    def attach(self, f: Map, z: Tensor, report: BackwardReport) -> Tensor:
        point = z
        for _ in range(self.steps):
            value = f(point)
            point = value if self.damping == 1 else (1 - self.damping) * point + self.damping * value
        return _StandIn.apply(point, z) if point.requires_grad else z  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class Unroll:
    steps: int

    def run(self, f: Map, z: Tensor, callback: Callable[[int, Tensor, Tensor], None] | None) -> Trace:
        """The last of the plain iterates; its residual is that of the last step."""
        history = []
        for k in range(1, self.steps + 1):
            value = f(z)
            history.append(relative_norm((value - z).detach(), value.detach()))
            z = value
            if callback is not None:
                callback(k, z.detach(), history[-1])
        last = history[-1]
        return Trace(z, last, torch.stack(history), torch.full_like(last, k, dtype=torch.long), ~torch.isfinite(last))


Backward = Attach | Unroll


def implicit(solver: Solver | None = None, tol: float = 1e-6, max_iter: int = 100) -> Implicit:
    """The exact gradient: a = Jᵀa + v solved to `tol` by its own solver (default: Anderson).

    If the solve does not converge it warns, and uses the best a found, or v itself for a sample without a finite one.
    To save memory put a checkpoint inside f, not around the equilibrium: that would solve again for every product.
    """
    if not max_iter >= 1 or not tol >= 0:
        raise ValueError(f"implicit needs max_iter >= 1 and tol >= 0, got {max_iter} and {tol}")
    return Implicit(anderson(memory=8) if solver is None else solver, tol, max_iter)


def neumann(terms: int) -> Neumann:
    """a = v + Jᵀv + … + (Jᵀ)^terms v: `terms` beyond the first; converges if the spectral radius of J is below 1."""
    if terms < 0:
        raise ValueError(f"terms must be at least 0, got {terms}")
    return Neumann(terms)


def jfb() -> Phantom:
    """Jacobian-free: a = v, that is, the last application of f alone. Fung et al., AAAI 2022."""
    return Phantom(1, 1.0)


def phantom(steps: int, damping: float = 1.0) -> Phantom:
    """a from a few damped steps z ← (1 − λ)z + λf(z) from the solution. Geng et al., NeurIPS 2021."""
    if steps < 1 or not 0 < damping <= 1:
        raise ValueError(f"phantom needs steps >= 1 and damping in (0, 1], got {steps} and {damping}")
    return Phantom(steps, damping)


def unroll(steps: int) -> Unroll:
    """Deep unfolding, no equilibrium: `steps` plain iterations from the start, with or without gradients.

    The solver is not used; all iterations are recorded, so memory grows with them.
    """
    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps}")
    return Unroll(steps)


class _Adjoint(torch.autograd.Function):
    """Identity; backward, v becomes the a of the adjoint equation and goes on into f's own graph."""

    @staticmethod
    def forward(value: Tensor, adjoint: Map) -> Tensor:
        return value.view_as(value)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Map], output: Tensor) -> None:
        ctx.adjoint = inputs[1]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, v: Tensor) -> tuple[Tensor, None]:
        return ctx.adjoint(v.contiguous()), None


class _StandIn(torch.autograd.Function):
    """The values of z with the gradient of `value`, which is f(z) or near it."""

    @staticmethod
    def forward(value: Tensor, z: Tensor) -> Tensor:
        return z.view_as(z)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, v: Tensor) -> tuple[Tensor, None]:
        return v, None


def _attach_adjoint(f: Map, z: Tensor, adjoint: Callable[[Map, Tensor], Tensor]) -> Tensor:
    recorded = _record(f, z)
    if recorded is None:
        return z
    value, transpose = recorded
    value = _Adjoint.apply(value, lambda v: adjoint(transpose, v))  # type: ignore[no-untyped-call]
    return _StandIn.apply(value, z)  # type: ignore[no-any-return, no-untyped-call]


def _record(f: Map, z: Tensor) -> tuple[Tensor, Map] | None:
    """f(z), recorded, and a -> Jᵀa there; None if nothing but z could receive a gradient."""
    try:
        point = z.detach().requires_grad_()
    except RuntimeError:  # torch forbids this inside torch.func, which has a way of its own
        value, pullback = torch.func.vjp(f, z)[:2]
        return value, lambda a: pullback(a)[0]
    # When a goes on through f's graph it arrives here too. That costs the derivative of f's first operation only, all
    # others being on the way to the parameters; the sum is not wanted.
    point.register_post_accumulate_grad_hook(_forget)  # type: ignore[no-untyped-call]
    value = f(point)

    def transpose(a: Tensor) -> Tensor:
        (product,) = torch.autograd.grad(value, point, a, retain_graph=True, allow_unused=True)
        return torch.zeros_like(a) if product is None else product

    return (value, transpose) if _has_leaf_besides(point, value) else None


def _forget(point: Tensor) -> None:
    point.grad = None


def _has_leaf_besides(point: Tensor, value: Tensor) -> bool:
    nodes, seen = [value.grad_fn], set()
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        if getattr(node, "variable", point) is not point:
            return True
        seen.add(node)
        nodes.extend(parent for parent, _ in node.next_functions)
    return False


def _padded(transpose: Map, a: Tensor, rows: Tensor, v: Tensor) -> Tensor:
    """Jᵀa for some rows of the batch: the recorded graph covers all of it."""
    if len(rows) == len(v):
        return transpose(a)
    full = torch.zeros_like(v)
    full[rows] = a
    return transpose(full)[rows]


_warned = False


def _warn(residual: float, tol: float, evaluations: int) -> None:
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(
            f"the backward solve stopped at relative residual {residual:.1e} > {tol:.1e} after {evaluations} products; "
            "the best adjoint found is used, so gradients are approximate (raise max_iter, or penalise the Jacobian)",
            RuntimeWarning,
            stacklevel=3,
        )
