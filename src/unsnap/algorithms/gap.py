r"""Generalised alternating projection: fit the snapshot exactly, clean, repeat.

Liao, Li & Carin, *Generalized alternating projection for weighted-ℓ2,1 minimization*, SIAM J. Imaging Sci. 2014;
Yuan, *Generalized alternating projection based total variation minimization*, ICIP 2016.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from typing_extensions import Unpack

from unsnap.algorithms.iterate import Denoiser, Solution, Watch, iterate
from unsnap.algorithms.iteration import Iteration, States
from unsnap.operators import CodedOperator
from unsnap.operators.base import check_given


class GAPState(NamedTuple):
    x: Tensor
    carried: Tensor
    """The measurement with all past misfits added: what the accelerated form projects on."""


def expanded(y: Tensor, phi: CodedOperator, x: Tensor) -> Tensor:
    """Snapshots with the leading axes of all videos: one snapshot may have several mask sets, or starts."""
    lead: torch.Size = torch.broadcast_shapes(y.shape[: y.ndim - len(phi.image)], x.shape[:-3])  # type: ignore[no-untyped-call]
    return y.expand(*lead, *phi.image)


def gap_step(x: Tensor, y: Tensor, phi: CodedOperator, denoise: Denoiser, sigma: float | Tensor) -> Tensor:
    r"""$x_{k+1} = D_\sigma(x_k + \Phi^\top(\Phi\Phi^\top)^{-1}(y - \Phi x_k))$"""
    return denoise(phi.project(x, y), sigma)


def accelerated_gap_step(
    state: GAPState, y: Tensor, phi: CodedOperator, denoise: Denoiser, sigma: float | Tensor
) -> GAPState:
    r"""$\bar y_{k+1} = \bar y_k + (y - \Phi x_k), \quad x_{k+1} = D_\sigma(x_k + \Phi^+(\bar y_{k+1} - \Phi x_k))$"""
    x, carried = phi.project_carried(state.x, y, state.carried)
    return GAPState(denoise(x, sigma), carried)


def gap(
    y: Tensor,
    phi: CodedOperator,
    denoise: Denoiser,
    schedule: Sequence[float],
    *,
    accelerate: bool = True,
    x0: Tensor | None = None,
    **watch: Unpack[Watch],
) -> Solution:
    """GAP from x0 (default: the least-squares video) with one denoiser strength per iteration.

    >>> import torch
    >>> from unsnap import Snapshot, TV
    >>> from unsnap.masks import bernoulli
    >>> phi = Snapshot(bernoulli(4, 32, 32, generator=torch.Generator().manual_seed(0)))
    >>> x = gap(phi.A(torch.full((4, 32, 32), 0.5)), phi, TV(), [0.1] * 20).x
    >>> bool((x - 0.5).abs().max() < 0.05)
    True
    """
    check_given(y, phi)

    def step(state: GAPState, sigma: float) -> GAPState:
        if accelerate:
            return accelerated_gap_step(state, y, phi, denoise, sigma)
        return GAPState(gap_step(state.x, y, phi, denoise, sigma), state.carried)

    def start() -> GAPState:
        x = phi.A_dagger(y) if x0 is None else x0
        return GAPState(x, expanded(y, phi, x))

    return iterate(step, start, schedule, given=(y, phi.masks), **watch)


@dataclass(frozen=True)
class GAP(Iteration):
    r"""$f(x) = D(x + \Phi^\top(\Phi\Phi^\top)^{-1}(y - \Phi x))$: DE-GAP's map, and GAP-net's stage."""

    @property
    def nonexpansive(self) -> bool:
        return True

    def step(self, state: States, y: Tensor, phi: CodedOperator, denoise: Denoiser, sigma: float | Tensor) -> States:
        return (gap_step(state[0], y, phi, denoise, sigma),)


@dataclass(frozen=True)
class AcceleratedGAP(Iteration):
    r"""The accelerated form as a map of $(x, w)$, $w = \Phi^+(\bar y - y)$ for the misfits carried along.

    $w' = \Phi^+(\Phi w + y - \Phi x), \quad x' = D(x + \Phi^+(y - \Phi x) + w')$: at rest $\Phi x = y$ exactly and
    $x = D(x + w)$ with $w$ in the range of $\Phi^\top$, which is where ADMM rests as $\rho \to 0$.
    """

    @property
    def splitting(self) -> bool:
        return True

    def start(self, x: Tensor) -> States:
        return x, x.new_zeros(x.shape)

    def step(self, state: States, y: Tensor, phi: CodedOperator, denoise: Denoiser, sigma: float | Tensor) -> States:
        x, misfit = state[0], y - phi.A(state[0])
        # Through Φ once more: what is not in its range would stay for ever, an eigenvalue 1 that no gradient survives.
        w = phi.A_dagger(phi.A(state[1]) + misfit)
        return denoise(x + phi.A_dagger(misfit) + w, sigma), w
