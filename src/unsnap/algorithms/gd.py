r"""Gradient descent for $\min_x \frac12\|y - \Phi x\|^2 + R(x)$ with any differentiable R, by autograd."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from typing_extensions import Unpack

from unsnap.algorithms.iterate import Denoiser, Solution, Watch, iterate
from unsnap.algorithms.iteration import Relative, States
from unsnap.fields import Positive
from unsnap.operators import CodedOperator
from unsnap.operators.base import check_given

Regulariser = Callable[[Tensor], Tensor]
"""R(x): a scalar, or one value per sample."""


def gd_step(
    x: Tensor, y: Tensor, phi: CodedOperator, slope: Callable[[Tensor], Tensor], alpha: float | Tensor
) -> Tensor:
    r"""$x_{k+1} = x_k + \alpha\Phi^\top(y - \Phi x_k) - \alpha\nabla R(x_k)$, `slope` being $\nabla R$."""
    return x + alpha * phi.A_adjoint(y - phi.A(x)) - alpha * slope(x)


def gradient(regulariser: Regulariser, x: Tensor) -> Tensor:
    """∇R(x); itself differentiable, in x and in what R may have to learn, where gradients are being recorded."""
    recording = torch.is_grad_enabled() and (x.requires_grad or regulariser(x).requires_grad)
    with torch.enable_grad():
        point = x if recording and x.requires_grad else x.detach().requires_grad_()
        (slope,) = torch.autograd.grad(regulariser(point).sum(), point, create_graph=recording)
    return slope


def gd(
    y: Tensor,
    phi: CodedOperator,
    regulariser: Regulariser,
    iterations: int,
    *,
    alpha: float | Tensor,
    x0: Tensor | None = None,
    **watch: Unpack[Watch],
) -> Solution:
    r"""Gradient descent with step alpha; stable below $2/(\|\Phi\|^2 + L)$ when $\nabla R$ is L-Lipschitz.

    alpha: a number, or (..., 1, 1, 1), one for every sample.
    """
    check_given(y, phi)
    x = phi.A_dagger(y) if x0 is None else x0

    def step(state: tuple[Tensor], _: float) -> tuple[Tensor]:
        return (gd_step(state[0], y, phi, partial(gradient, regulariser), alpha),)

    return iterate(step, (x,), [0.0] * iterations, given=(y, phi.masks), **watch)


@dataclass(frozen=True)
class GD(Relative):
    r"""$f(x) = x + \frac{\alpha}{\|\Phi\|^2}\Phi^\top(y - \Phi x) - \alpha(x - D(x))$: what D removes is the slope."""

    alpha: Positive = 1.0

    def step(self, state: States, y: Tensor, phi: CodedOperator, denoise: Denoiser, sigma: float | Tensor) -> States:
        return (gd_step(state[0], y, phi, lambda x: x - denoise(x.clone(), sigma), self.alpha),)
