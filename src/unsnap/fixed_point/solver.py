"""The loop behind every solver: evaluate, measure per sample, keep the best, let go of what is done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from unsnap.fixed_point import vectors

Evaluate = Callable[[Tensor, Tensor], Tensor]
"""evaluate(z, active): f at the rows z (b, n), which belong to the samples `active` (b,) of the batch"""


class Accelerator(Protocol):
    """The memory of one solve, rows aligned with the samples still active. Called in this order at every point."""

    def accepts(self, size: Tensor) -> Tensor:
        """(b,) does the point count, its residual being of norm `size`, or was it only tried?"""

    def propose(self, z: Tensor, g: Tensor) -> Tensor:
        """The next point, from the point z and its residual g = f(z) − z, both (b, n).

        Where g is not finite the sample is given up, unless the proposal is finite all the same.
        """

    def select(self, rows: Tensor) -> None:
        """Forget all samples but these rows."""


class Solver(Protocol):
    """A solver is a value: `start` makes the accelerator of one solve."""

    def start(self) -> Accelerator: ...


@dataclass(frozen=True)
class Trace:
    """Result of one solve, per sample: best point (B, n), its residual, the history (steps, B) and what ended it."""

    z: Tensor
    best: Tensor
    residual: Tensor
    steps: Tensor
    diverged: Tensor

    @property
    def evaluations(self) -> int:
        return len(self.residual)


def solve(
    evaluate: Evaluate,
    z: Tensor,
    solver: Solver,
    tol: float,
    max_iter: int,
    callback: Callable[[int, Tensor, Tensor], None] | None = None,
) -> Trace:
    """Iterate from z (B, n) until every sample's ‖f(z) − z‖ / ‖f(z)‖ is at most tol, or max_iter evaluations are spent.

    A sample that is done leaves the batch, so it costs nothing more; the point returned is the one with the smallest
    residual ever measured, not the last. Points that the solver only tried are neither.
    """
    count = z.shape[0]
    best, best_residual = z, torch.full((count,), torch.inf, dtype=torch.float64, device=z.device)
    latest = best_residual.clone()
    steps = torch.zeros(count, dtype=torch.long, device=z.device)
    diverged = torch.zeros(count, dtype=torch.bool, device=z.device)
    active = torch.arange(count, device=z.device)
    accelerator, history = solver.start(), []
    for k in range(1, max_iter + 1):
        value = evaluate(z, active)
        g, size, scale = vectors.residual(value, z)
        residual, accepted = _relative(size, scale), accelerator.accepts(size)
        better = accepted & (residual < best_residual[active])
        best = _replace(best, active, z, better)
        best_residual[active] = torch.where(better, residual, best_residual[active])
        broken = accepted & ~torch.isfinite(residual)
        latest[active], steps[active], diverged[active] = residual, k, broken
        history.append(latest.clone())
        if callback is not None:
            callback(k, best, history[-1])
        going = ~(accepted & (residual <= tol))
        if k == max_iter or not bool(going.any()):
            break
        # Autocast is meant for f: the few inner products of a solver must keep their digits.
        with torch.autocast(z.device.type, enabled=False):
            z = accelerator.propose(z, g)
        if bool(broken.any()):
            going = going & (~broken | torch.isfinite(z).all(1))
        if not bool(going.any()):
            break
        if not bool(going.all()):
            rows = going.nonzero().squeeze(1)
            accelerator.select(rows)
            z, active = z[rows], active[rows]
    return Trace(best, best_residual, torch.stack(history), steps, diverged)


def relative_norm(g: Tensor, value: Tensor) -> Tensor:
    """‖g‖ / ‖value‖ of each row, in float64."""
    return _relative(vectors.norm(g), vectors.norm(value))


def _relative(size: Tensor, scale: Tensor) -> Tensor:
    """As in `iterate`: 0 where g is 0, and 1 where only the value is."""
    return torch.where(size == 0, 0.0, torch.where(scale == 0, 1.0, size / scale))


def _replace(best: Tensor, active: Tensor, z: Tensor, better: Tensor) -> Tensor:
    if len(active) == len(best) and bool(better.all()):
        return z  # the common case costs no copy: points are never written to
    if not bool(better.any()):
        return best
    best = best.clone()
    best[active[better]] = z[better]
    return best
