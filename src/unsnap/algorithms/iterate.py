"""The only loop: repeat a pure step along a schedule, watch every sample, stop when all are done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypedDict, TypeVar

import torch
from torch import Tensor

from unsnap.errors import InputError

State = TypeVar("State", bound=tuple[Tensor, ...])
Step = Callable[[State, float], State]
Callback = Callable[[int, Tensor, Tensor], None]
"""callback(iteration from 1, estimate, relative change per sample); a start before it counts up to 0"""


def before(callback: Callback | None, steps: int, each: int = 1) -> Callback | None:
    """For the iterations of a start: they count from 1 − steps to 0, one for every `each` of them, which are cheap."""
    if callback is None:
        return None
    return lambda k, x, change: callback(k // each - steps, x, change) if k % each == 0 else None


class Watch(TypedDict, total=False):
    """The arguments of `iterate` that every algorithm passes on: when to stop, and whom to tell."""

    tol: float
    early: bool
    callback: Callback | None
    record: bool | None


class Denoiser(Protocol):
    """Anything that cleans a video (..., T, H, W) of disturbances of size sigma, in units where white is 1."""

    def __call__(self, x: Tensor, sigma: float | Tensor, /) -> Tensor: ...


@dataclass(frozen=True, repr=False)
class Solution:
    """The estimate and how it was reached, per sample (`batch` stands for the leading axes of x)."""

    x: Tensor
    residual: Tensor
    """(iterations, *batch): ‖x_k − x_{k−1}‖ / ‖x_k‖; a sample that has stopped repeats its last value."""
    converged: Tensor
    """(*batch,): the last relative change is at or below the tolerance."""
    diverged: Tensor
    """(*batch,): the iteration left the finite numbers; x is the last finite estimate, if there was one and
    the method keeps it (an unfolded model does not)."""
    method: str = field(default="", kw_only=True)
    """Which one it was, where a name is known."""
    colour: bool = field(default=False, kw_only=True)
    """x is (..., 3T, H, W), red first."""

    @property
    def iterations(self) -> int:
        return int(self.residual.shape[0])

    @property
    def final(self) -> Tensor:
        """(*batch,): the residual of the estimate that is returned."""
        return self.residual[-1]

    def __repr__(self) -> str:
        done = f"{int(self.converged.sum())} of {self.converged.numel()} converged"
        kind = str(self.x.dtype).removeprefix("torch.")
        video = f"{self.method or 'x'}: {kind} {tuple(self.x.shape)}"
        return f"{type(self).__name__}({video}, {self.iterations} iterations, {done})"

    def _repr_html_(self) -> str:
        """What a notebook shows of it."""
        from unsnap.show import card, film_strip

        frames = self.x.shape[-3] // (3 if self.colour else 1)
        verdict = "yes" if bool(self.converged.all()) else f"{int(self.converged.sum())} of {self.converged.numel()}"
        facts = {
            "video": f"{tuple(self.x.shape)} {str(self.x.dtype).removeprefix('torch.')}",
            "iterations": self.iterations,
            "last change": f"{float(self.final.max()):.1e}" if self.final.numel() else "–",
            "converged": verdict + (f", {int(self.diverged.sum())} diverged" if bool(self.diverged.any()) else ""),
        }
        strip = film_strip(self.x, f"{frames} frames", colour=self.colour)
        return card(f"{type(self).__name__} {self.method}".strip(), facts, [strip])


def iterate(
    step: Step[State],
    state: State | Callable[[], State],
    schedule: Sequence[float],
    *,
    tol: float = 1e-3,
    early: bool = True,
    callback: Callback | None = None,
    record: bool | None = None,
    given: Sequence[Tensor] = (),
) -> Solution:
    """Apply `state = step(state, sigma)` for every sigma of the schedule; `state[0]` is the estimate (..., T, H, W).

    state: or a function that makes it, so that no caller holds the memory of the start to the end.

    A sample stops for itself once its relative change is at or below `tol` (with `early`; otherwise only the final
    verdict uses `tol`) or is no longer finite, so that no sample's result depends on its neighbours in the batch.
    record: keep all iterations for a gradient; by default only if the start or what is `given` (the snapshot, the
    masks) asks for one, not because a network inside the step has weights (to train those, `models.Unfolded` and
    `models.Equilibrium` are made).
    """
    start = [state() if callable(state) else state]
    del state
    if record is None:
        record = any(part.requires_grad for part in (*start[0], *given))
    with torch.set_grad_enabled(record and torch.is_grad_enabled()):
        return _repeat(step, start, schedule, tol, early, callback)


def _repeat(
    step: Step[State], start: list[State], schedule: Sequence[float], tol: float, early: bool, callback: Callback | None
) -> Solution:
    """`start` is emptied: no caller holds what is in it."""
    if not hasattr(schedule, "__len__"):
        raise InputError(f"schedule must be a list of one sigma per iteration, as [0.1] * 40, got {schedule!r}")
    if len(schedule) == 0:
        raise InputError("schedule must hold at least one value, got none; give the number of iterations")
    if not tol >= 0:
        raise InputError(f"tol must be a number >= 0, got {tol}")
    state = start.pop()
    batch = state[0].shape[:-3]
    stopped = torch.zeros(batch, dtype=torch.bool, device=state[0].device)
    diverged = stopped.clone()
    history: list[Tensor] = []
    for k, sigma in enumerate(schedule, 1):
        new = step(state, sigma)
        check_like(new[0], state[0])
        change = relative_change(new[0], state[0])
        if history:
            change = torch.where(stopped, history[-1], change)
        broken = ~torch.isfinite(change)
        history.append(change)
        diverged = diverged | broken
        state = _keep(stopped | broken, state, new)
        stopped = stopped | broken | (change <= tol) if early else stopped | broken
        if callback is not None:
            callback(k, state[0], change)
        if bool(stopped.all()):
            break
    residual = torch.stack(history)
    return Solution(state[0], residual, (residual[-1] <= tol) & ~diverged, diverged)


def check_like(new: object, old: Tensor) -> None:
    """An InputError unless a step has returned what it was given: a denoiser that does not would go unseen."""
    if not isinstance(new, Tensor) or new.shape != old.shape:
        got = f"shape {tuple(new.shape)}" if isinstance(new, Tensor) else type(new).__name__
        raise InputError(
            f"the denoiser must return a tensor like the video it is given, {tuple(old.shape)}, and returned {got}; "
            "one for pictures goes through `from_deepinv`"
        )


def relative_change(new: Tensor, old: Tensor) -> Tensor:
    """‖new − old‖ / ‖new‖ over the last three axes, without gradient; 0 if both are zero, 1 if only `new` is."""
    new, old = new.detach(), old.detach()
    from unsnap.kernels.dispatch import array, usable

    if usable(new, old) and new.shape == old.shape and new.numel() > 0:
        from unsnap.kernels import data

        sums = data.change(array(new, -1, *new.shape[-3:]), array(old, -1, *old.shape[-3:]))
        difference, size = torch.from_numpy(sums).sqrt().T.reshape(2, *new.shape[:-3])
    else:  # squares in double precision: those of small numbers in half of one are 0
        difference, size = (
            torch.linalg.vector_norm(part, dim=(-3, -2, -1), dtype=torch.float64) for part in (new - old, new)
        )
    change = torch.where(size == 0, 1.0, difference / size)
    return torch.where(difference == 0, 0.0, change)


def _keep(frozen: Tensor, old: State, new: State) -> State:
    """`new`, but `old` for frozen samples."""
    if not bool(frozen.any()):
        return new
    if bool(frozen.all()):
        return old

    def select(a: Tensor, b: Tensor) -> Tensor:
        return torch.where(frozen.reshape(frozen.shape + (1,) * (b.ndim - frozen.ndim)), a, b)

    chosen = [select(a, b) if b.ndim >= frozen.ndim else b for a, b in zip(old, new, strict=True)]
    return new._make(chosen) if hasattr(new, "_make") else type(new)(chosen)
