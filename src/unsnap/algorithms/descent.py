r"""Projected descent of an explicit energy: $\min_x R(x)$ over all videos with $\Phi x = y$.

With P the projection on these videos and $D = I - \nabla R/L$, where $\nabla R$ is L-Lipschitz, a step $x' = P(D(x))$
from a feasible x gives $R(x') \le R(x) - \frac L2\|x' - x\|^2$, convex or not: the energy never rises, and the steps
vanish. Momentum makes it fast, and is dropped whenever it would raise the energy.

Beck & Teboulle, *Fast gradient-based algorithms for constrained total variation*, IEEE Trans. Image Process. 2009 (the
monotone form); Li & Lin, *Accelerated proximal gradient methods for nonconvex programming*, NeurIPS 2015.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from typing_extensions import Unpack

from unsnap.algorithms.iterate import Solution, Watch, iterate
from unsnap.operators import CodedOperator


class Energy(Protocol):
    """R as a value, and as a step down from x; both know sigma."""

    def __call__(self, x: Tensor, sigma: float | Tensor, /) -> Tensor: ...

    def value(self, x: Tensor, sigma: float | Tensor, /) -> Tensor: ...


class DescentState(NamedTuple):
    x: Tensor
    z: Tensor
    """Where the next step is taken from."""
    t: Tensor
    """(..., 1, 1, 1), momentum of each sample."""
    value: Tensor
    """(..., 1, 1, 1), R(x)."""


def descent_step(state: DescentState, y: Tensor, phi: CodedOperator, energy: Energy, sigma: float) -> DescentState:
    r"""$x' = P(D(z))$, or $P(D(x))$ where that has a higher energy than x;
    $t' = \frac12(1 + \sqrt{1 + 4t^2}),\; z' = x' + \frac{t-1}{t'}(x' - x)$, with t = 1 again in that case."""
    x, t = phi.project(energy(state.z, sigma), y), state.t
    value = _each(energy.value(x, sigma))
    worse = ~(value <= state.value)
    if bool(worse.any()):
        plain = phi.project(energy(state.x, sigma), y)
        x, t = torch.where(worse, plain, x), torch.where(worse, 1, t)
        value = _each(energy.value(x, sigma))
    longer = (1 + (1 + 4 * t**2).sqrt()) / 2
    return DescentState(x, x + (t - 1) / longer * (x - state.x), longer, value)


def descent(
    y: Tensor,
    phi: CodedOperator,
    energy: Energy,
    sigma: float,
    iterations: int,
    *,
    x0: Tensor | None = None,
    **watch: Unpack[Watch],
) -> Solution:
    """From x0, projected (default: the least-squares video), with one energy for all iterations."""
    x = phi.project(phi.A_dagger(y) if x0 is None else x0, y)
    with torch.no_grad():
        value = _each(energy.value(x, sigma))

    def step(state: DescentState, sigma: float) -> DescentState:
        return descent_step(state, y, phi, energy, sigma)

    start = DescentState(x, x, torch.ones_like(value).to(x), value)
    return iterate(step, start, [sigma] * iterations, given=(y, phi.masks), **watch)


def _each(value: Tensor) -> Tensor:
    return value[..., None, None, None]
