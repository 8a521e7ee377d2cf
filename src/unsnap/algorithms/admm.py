r"""Alternating direction method of multipliers for $\min_x \frac12\|y - \Phi x\|^2 + R(x)$, split as $x = v$.

Gauss–Seidel: every line uses what the lines above have just computed, and the dual step is an ascent.
Boyd et al., *Distributed optimization and statistical learning via ADMM*, 2011.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from typing_extensions import Unpack

from unsnap.algorithms.iterate import Denoiser, Solution, Watch, iterate
from unsnap.algorithms.iteration import Relative, States
from unsnap.fields import Positive
from unsnap.operators import CodedOperator
from unsnap.operators.base import check_given


class ADMMState(NamedTuple):
    v: Tensor
    w: Tensor
    """Dual variable: w scaled, or u = rho * w in the unscaled form."""


def admm_step(
    state: ADMMState, y: Tensor, phi: CodedOperator, denoise: Denoiser, sigma: float | Tensor, rho: float
) -> ADMMState:
    r"""Scaled form, one line per step.

    $x = \arg\min_x \frac12\|y - \Phi x\|^2 + \frac\rho2\|x - (v - w)\|^2$,
    $v = D_\sigma(x + w)$, $\;w \leftarrow w + x - v$.

    $D_\sigma$ stands for $\mathrm{prox}_{R/\rho}$; the x-step is closed form because $\Phi\Phi^\top$ is diagonal.
    """
    v, w = state
    x = phi.prox_l2(v - w, y, 1 / rho)
    v = denoise(x + w, sigma)
    return ADMMState(v, w + x - v)


def admm_unscaled_step(
    state: ADMMState, y: Tensor, phi: CodedOperator, denoise: Denoiser, sigma: float | Tensor, rho: float
) -> ADMMState:
    r"""Unscaled form, $u = \rho w$: the same iterates. $v = D_\sigma(x + u/\rho),\; u \leftarrow u + \rho(x - v)$"""
    v, u = state
    x = phi.prox_l2(v - u / rho, y, 1 / rho)
    v = denoise(x + u / rho, sigma)
    return ADMMState(v, u + rho * (x - v))


def admm(
    y: Tensor,
    phi: CodedOperator,
    denoise: Denoiser,
    schedule: Sequence[float],
    *,
    rho: float | None = None,
    x0: Tensor | None = None,
    **watch: Unpack[Watch],
) -> Solution:
    r"""ADMM (scaled form); to minimise with $R = \lambda R_1$, the schedule is $\lambda/\rho$ throughout.

    rho defaults to a tenth of each sample's $\|\Phi\|^2$, so that multiplying its masks changes nothing.
    """
    check_given(y, phi)
    if rho is None:
        y, phi = phi.unit(y)
    weight = 0.1 if rho is None else rho
    v = phi.A_dagger(y) if x0 is None else x0

    def step(state: ADMMState, sigma: float) -> ADMMState:
        return admm_step(state, y, phi, denoise, sigma, weight)

    return iterate(step, ADMMState(v, v.new_zeros(v.shape)), schedule, given=(y, phi.masks), **watch)


@dataclass(frozen=True)
class ADMM(Relative):
    r"""The $(v, w)$ of `admm_step` with penalty $\rho\|\Phi\|^2$ and D for the proximal step."""

    rho: Positive = 0.1

    def start(self, x: Tensor) -> States:
        return ADMMState(x, torch.zeros_like(x))

    def step(self, state: States, y: Tensor, phi: CodedOperator, denoise: Denoiser, sigma: float | Tensor) -> States:
        return admm_step(ADMMState(*state), y, phi, denoise, sigma, self.rho)
