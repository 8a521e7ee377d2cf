r"""Proximal gradient descent for $\min_x \frac12\|y - \Phi x\|^2 + R(x)$, and its accelerated form FISTA.

Beck & Teboulle, *A fast iterative shrinkage-thresholding algorithm*, SIAM J. Imaging Sci. 2009.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor
from typing_extensions import Unpack

from unsnap.algorithms.iterate import Denoiser, Solution, Watch, iterate
from unsnap.algorithms.iteration import Relative, States
from unsnap.fields import Positive
from unsnap.operators import CodedOperator
from unsnap.operators.base import check_given


class FISTAState(NamedTuple):
    x: Tensor
    z: Tensor
    """The extrapolated point at which the next gradient is taken."""
    t: Tensor


def pgd_step(
    x: Tensor, y: Tensor, phi: CodedOperator, denoise: Denoiser, sigma: float | Tensor, alpha: float
) -> Tensor:
    r"""$x_{k+1} = D_\sigma(x_k + \alpha\Phi^\top(y - \Phi x_k))$, with $D_\sigma = \mathrm{prox}_{\alpha R}$."""
    return denoise(x + alpha * phi.A_adjoint(y - phi.A(x)), sigma)


def fista_step(
    state: FISTAState, y: Tensor, phi: CodedOperator, denoise: Denoiser, sigma: float | Tensor, alpha: float
) -> FISTAState:
    r"""$x' = \mathrm{PGD}(z),\; t' = \frac12(1 + \sqrt{1 + 4t^2}),\; z' = x' + \frac{t-1}{t'}(x' - x)$"""
    x = pgd_step(state.z, y, phi, denoise, sigma, alpha)
    t = (1 + (1 + 4 * state.t**2).sqrt()) / 2
    return FISTAState(x, x + (state.t - 1) / t * (x - state.x), t)


def pgd(
    y: Tensor,
    phi: CodedOperator,
    denoise: Denoiser,
    schedule: Sequence[float],
    *,
    alpha: float | None = None,
    x0: Tensor | None = None,
    **watch: Unpack[Watch],
) -> Solution:
    r"""Step alpha, by default each sample's $1/\|\Phi\|^2$; for $R = \lambda R_1$ the schedule is $\alpha\lambda$."""
    check_given(y, phi)
    if alpha is None:
        y, phi = phi.unit(y)
    size = 1.0 if alpha is None else alpha
    x = phi.A_dagger(y) if x0 is None else x0

    def step(state: tuple[Tensor], sigma: float) -> tuple[Tensor]:
        return (pgd_step(state[0], y, phi, denoise, sigma, size),)

    return iterate(step, (x,), schedule, given=(y, phi.masks), **watch)


def fista(
    y: Tensor,
    phi: CodedOperator,
    denoise: Denoiser,
    schedule: Sequence[float],
    *,
    alpha: float | None = None,
    x0: Tensor | None = None,
    **watch: Unpack[Watch],
) -> Solution:
    """Accelerated proximal gradient; arguments as for `pgd`."""
    check_given(y, phi)
    if alpha is None:
        y, phi = phi.unit(y)
    size = 1.0 if alpha is None else alpha
    x = phi.A_dagger(y) if x0 is None else x0

    def step(state: FISTAState, sigma: float) -> FISTAState:
        return fista_step(state, y, phi, denoise, sigma, size)

    return iterate(step, FISTAState(x, x, x.new_ones(())), schedule, given=(y, phi.masks), **watch)


@dataclass(frozen=True)
class PGD(Relative):
    r"""$f(x) = D(x + \frac{\alpha}{\|\Phi\|^2}\Phi^\top(y - \Phi x))$."""

    alpha: Positive = 1.0

    @property
    def nonexpansive(self) -> bool:
        return self.alpha <= 1

    def step(self, state: States, y: Tensor, phi: CodedOperator, denoise: Denoiser, sigma: float | Tensor) -> States:
        return (pgd_step(state[0], y, phi, denoise, sigma, self.alpha),)
