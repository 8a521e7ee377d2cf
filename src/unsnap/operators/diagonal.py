r"""Cameras whose $\Phi\Phi^\top$ is diagonal: no two measured pixels share a pixel of the video."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from unsnap.operators.base import CodedOperator


class Diagonal(CodedOperator):
    r"""Closed forms with `energy`, the diagonal of $\Phi\Phi^\top$, and its `inverse`, 0 where nothing is measured."""

    inverse: Tensor

    def __init__(self, masks: Tensor, axes: Sequence[str] = "THW") -> None:
        super().__init__(masks, axes)
        brightest = self.energy.detach().amax(self._pixels, keepdim=True)
        live = self.energy > brightest * torch.finfo(self.energy.dtype).eps ** 2
        most = torch.finfo(self.energy.dtype).max  # in half precision one over a small energy is more
        self.register_buffer("inverse", torch.where(live, 1 / torch.where(live, self.energy, 1), 0).clamp(max=most))

    @property
    def _pixels(self) -> tuple[int, ...]:
        """The axes of a measurement."""
        return tuple(range(-len(self.image), 0))

    def gram(self, y: Tensor) -> Tensor:
        self._check(y, self.image, "snapshot")
        return self.energy * y

    def A_dagger(self, y: Tensor) -> Tensor:
        self._check(y, self.image, "snapshot")
        return self.A_adjoint(self.inverse * y)

    def prox_l2(self, z: Tensor, y: Tensor, gamma: float | Tensor) -> Tensor:
        return z + self.A_adjoint(gamma / (1 + gamma * self.energy) * self._misfit(z, y))

    def squared_norms(self) -> Tensor:
        return self.energy.amax(self._pixels)
