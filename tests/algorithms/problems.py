"""One small problem and every algorithm on it, behind one signature."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from laws import uniform
from unsnap.algorithms import admm, fista, gap, gd, noisy_gap, pgd
from unsnap.algorithms.iterate import Solution
from unsnap.operators import CodedOperator, Snapshot
from unsnap.priors import TV

Solver = Callable[..., Solution]
"""solve(y, phi, sigma=0.1, n=10, denoise=PRIOR, **arguments of iterate and x0)"""

SIZE = (3, 7, 6)
MASKS = uniform(*SIZE)
PHI = Snapshot(MASKS)
TRUTH = uniform(3, *SIZE, seed=1).cumsum(-1) / 6
Y = PHI.A(TRUTH)
PRIOR = TV(temporal=0.3, isotropic=False)


def _with(solver: Callable[..., Solution], **settings: Any) -> Solver:
    def solve(
        y: Tensor, phi: CodedOperator = PHI, sigma: float = 0.1, n: int = 10, denoise: Any = PRIOR, **others: Any
    ) -> Solution:
        return solver(y, phi, denoise, [sigma] * n, **settings, **others)

    return solve


def _gd(y: Tensor, phi: CodedOperator = PHI, sigma: float = 0.1, n: int = 10, **others: Any) -> Solution:
    """With a quadratic R, in the units of the data term, so that it scales as the others do."""
    curve = 0.05 * phi.norm() ** 2

    def roughness(x: Tensor) -> Tensor:
        return curve * (x.diff(dim=-1).square().sum((-3, -2, -1)) + x.diff(dim=-2).square().sum((-3, -2, -1)))

    return gd(y, phi, roughness, n, alpha=0.9 / phi.norm() ** 2, **others)


def _noisy(
    y: Tensor, phi: CodedOperator = PHI, sigma: float = 0.1, n: int = 10, denoise: Any = PRIOR, **others: Any
) -> Solution:
    """With noise in the units of the snapshot, more of it in the brighter half."""
    level = y.abs().mean((-2, -1), keepdim=True)
    noise = 0.05 * level + 0.03 * y.abs()
    return noisy_gap(y, phi, denoise, [sigma] * n, noise=noise, **others)


PROXIMAL: dict[str, Solver] = {
    "gap": _with(gap, accelerate=False),
    "accelerated gap": _with(gap),
    "pgd": _with(pgd),
    "fista": _with(fista),
    "admm": _with(admm),
    "noisy gap": _noisy,
}
ALL: dict[str, Solver] = {**PROXIMAL, "gd": _gd}
