"""What a network may be told beside the estimate and sigma, and how it says that it wants to be told."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

from unsnap.algorithms.iterate import Denoiser
from unsnap.algorithms.noise import noise_map
from unsnap.errors import InputError
from unsnap.operators import RGB, CodedOperator
from unsnap.operators.base import Rows

F = TypeVar("F")


@dataclass(frozen=True)
class Capture:
    """One batch of snapshots: made once per solve and handed to the network; what it derives is computed once.

    y: (B, *image); phi: the camera; start: (B, T, H, W), the video that the iteration starts from.
    """

    y: Tensor
    phi: CodedOperator
    start: Tensor

    @cached_property
    def masks(self) -> Tensor:
        """(..., T, H, W): the masks with 1 as largest value, as the scale of a camera's masks carries no information.

        Of several shots of one video the mean; of a camera that mixes pixels, what Φᵀ makes of a white measurement.
        """
        if not self.phi.pixelwise:
            back = self.phi.A_adjoint(torch.ones_like(self.y))
            return back / back.abs().amax((-3, -2, -1), keepdim=True).clamp(min=torch.finfo(back.dtype).tiny)
        unit = self.phi.masks / self.phi.peak().unsqueeze(-3)
        return unit.mean(self._shots) if self._shots else unit

    @cached_property
    def picture(self) -> Tensor:
        r"""(B, H, W): the still picture that explains y best, 0 where the light vanishes or cancels.

        Of one snapshot $y / \sum_t m_t$, of several shots their mean weighted by the square of the light, and of a
        camera that mixes pixels $\sum_t(\Phi^\top y)_t / \sum_t(\Phi^\top\Phi 1)_t$.
        """
        light = self.phi.A(self.phi.masks.new_ones(self.phi.video))
        if not self.phi.pixelwise:
            return _over(self.phi.A_adjoint(self.y).sum(-3), self.phi.A_adjoint(light).sum(-3), 1e-6)
        lit = light.abs() > 1e-3 * self.phi.peak()
        image = torch.where(lit, self.y / torch.where(lit, light, 1), 0)
        if not self._shots:
            return image
        weight = torch.where(lit, light.square(), 0)
        return _over((weight * image).sum(-3), weight.sum(-3), 0)

    @cached_property
    def noise(self) -> Tensor:
        """(B, H, W): the noise of the snapshot; a white frame behind an open mask is 1. Unknown counts as none.

        It is an estimate without a gradient, and says so where somebody wants one.
        """
        if not self.phi.pixelwise or self.y.is_meta:
            return self.start.new_zeros(len(self.start), *self.start.shape[-2:])
        if torch.is_grad_enabled() and (self.y.requires_grad or self.phi.masks.requires_grad):
            warnings.warn(
                "the gradient with respect to y or the masks leaves out the way through the estimated noise, which "
                "this network is told; it is not the derivative that finite differences show",
                RuntimeWarning,
                stacklevel=2,
            )
        each = noise_map(self.y, self.phi.masks, ask=partial(self.phi.ask, "noise")) / self.phi.peak()
        return each.square().mean(-3).sqrt() / each.shape[-3] ** 0.5 if self._shots else each

    def select(self, rows: Rows) -> Capture:
        """Some of the snapshots; what was derived of all of them is not computed, or asked for, again."""
        part = replace(self, y=self.y[rows], phi=self.phi.select(rows), start=self.start[rows])
        known, kept = vars(self), vars(part)
        kept.update({name: known[name][rows] for name in ("picture", "noise") if name in known})
        if "masks" in known:
            own = self.phi.samples or not self.phi.pixelwise
            kept["masks"] = self.masks[rows] if own else self.masks
        return part

    @property
    def _shots(self) -> tuple[int, ...]:
        """The axes of the masks between samples and frames, as dimensions counted from the right."""
        if isinstance(self.phi, RGB):
            raise InputError(
                "a network that is told the capture takes the colours of an RGB camera one by one; give it "
                "`planes(y, phi)`, or call `reconstruct`, which does"
            )
        return tuple(range(-self.phi.RANK, -3))


class Conditioned(nn.Module, ABC):
    """A network that makes its denoiser from the capture: subclass it, and models hand the capture over."""

    @abstractmethod
    def condition(self, capture: Capture) -> Denoiser:
        """The denoiser for these snapshots; what does not depend on the estimate is computed here, once."""

    @property
    def told(self) -> bool:
        """Do these weights use the start? Then another start is another equation."""
        return True


def told(network: object) -> bool:
    """Does the network's result depend on the start of the iteration?"""
    return isinstance(network, Conditioned) and network.told


class WithFeatures(nn.Module, ABC, Generic[F]):
    """A network for the stages of an unfolded model that passes features, an F, from one stage to the next."""

    @abstractmethod
    def forward(self, x: Tensor, sigma: float | Tensor, features: F | None) -> tuple[Tensor, F]:
        """The clean video and the features for the next stage; `features` is None at the first."""

    def condition(self, capture: Capture) -> Callable[[Tensor, float | Tensor, F | None], tuple[Tensor, F]]:
        """The same for these snapshots; a network that is to be told of them overrides this."""
        return self


def _over(a: Tensor, b: Tensor, least: float) -> Tensor:
    """a / b where b is more than `least` of its largest value, 0 elsewhere."""
    some = b > least * b.abs().amax((-2, -1), keepdim=True)
    return torch.where(some, a / torch.where(some, b, 1), 0)


def around_start(
    run: Callable[[Tensor, float | Tensor, Tensor], Tensor], encode: nn.Module, inputs: Tensor, start: Tensor
) -> Denoiser:
    """run(x, sigma, encode(inputs)) − (x − start)/2: what `run` adds to x is added to the middle of x and start.

    Without gradients `encode(inputs)` is computed once.
    """
    kept: list[Tensor] = []

    def denoise(x: Tensor, sigma: float | Tensor, /) -> Tensor:
        if torch.is_grad_enabled():  # the weights of `encode` are to be learned
            return run(x, sigma, encode(inputs)) - (x - start) / 2
        if not kept:
            kept.append(encode(inputs))
        return run(x, sigma, kept[0]) - (x - start) / 2

    return denoise
