r"""A camera that disperses light behind a mask: CASSI, the snapshot of a spectrum.

Band l of the cube is coded by its mask and lands on the detector moved by l steps, so that every detector pixel sees at
most one pixel of every band: $\Phi\Phi^\top$ is diagonal, and every data step a closed form as for video.
Wagadarikar, John, Willett & Brady, *Single disperser design for coded aperture snapshot spectral imaging*, Appl. Opt.
2008. Of two dispersers (Gehm et al., Opt. Express 2007) the second undoes what the first did to the scene; only the mask
moves from band to band, and the camera is a `Snapshot` with the masks of `dual_disperser`.
"""

from __future__ import annotations

from types import EllipsisType

import torch
from torch import Tensor
from torch.nn.functional import pad
from typing_extensions import Self

from unsnap.operators.base import CodedOperator

Step = tuple[int, int]
"""(down, right): pixels on the detector from one band to the next, of either sign"""
Place = tuple[EllipsisType, slice, slice]


class Dispersed(CodedOperator):
    r"""$y(p) = \sum_l (m_l \odot x_l)(p - l\,s)$, s the step (down, right) in pixels per band.

    masks: (L, H, W), one for every band (all the same where one mask is dispersed), or (N, L, H, W).
    Cube (..., L, H, W), snapshot (..., H + (L − 1)|down|, W + (L − 1)|right|).

    >>> phi = Dispersed(torch.ones(3, 1, 2), (0, 2))                       # three bands of one row of two pixels
    >>> phi.A(torch.tensor([[[1.0, 2.0]], [[3.0, 4.0]], [[5.0, 6.0]]]))
    tensor([[1., 2., 3., 4., 5., 6.]])
    """

    inverse: Tensor

    def __init__(self, masks: Tensor, step: Step = (0, 2)) -> None:
        self.step = step  # before the rest, as the energy depends on it
        super().__init__(masks, "LHW")
        energy = self.energy
        live = energy > energy.detach().amax((-2, -1), keepdim=True) * torch.finfo(energy.dtype).eps ** 2
        self.register_buffer("inverse", torch.where(live, 1 / torch.where(live, energy, 1), 0))

    @property
    def image(self) -> torch.Size:
        return _detector(self.masks, self.step)

    @property
    def pixelwise(self) -> bool:
        return False

    def A(self, x: Tensor) -> Tensor:
        self._check(x, self.video, "video")
        return _gathered(self.masks * x, self.step)

    def A_adjoint(self, y: Tensor) -> Tensor:
        return self.masks * self.seen(y)

    def gram(self, y: Tensor) -> Tensor:
        self._check(y, self.image, "snapshot")
        return self.energy * y

    def A_dagger(self, y: Tensor) -> Tensor:
        self._check(y, self.image, "snapshot")
        return self.A_adjoint(self.inverse * y)

    def prox_l2(self, z: Tensor, y: Tensor, gamma: float | Tensor) -> Tensor:
        return z + self.A_adjoint(gamma / (1 + gamma * self.energy) * self._misfit(z, y))

    def squared_norms(self) -> Tensor:
        return self.energy.amax((-2, -1))

    def with_masks(self, masks: Tensor) -> Self:
        return type(self)(masks, self.step)

    def without(self, pixels: Tensor) -> Self:
        gone = self.seen(pixels.bool())
        return self.with_masks(torch.where(gone, 0, self.masks)) if bool(gone.any()) else self

    def seen(self, y: Tensor) -> Tensor:
        """(..., L, H, W): what lies on the detector (..., *image) where each band lands."""
        self._check(y, self.image, "snapshot")
        return torch.stack([y[place] for place in _places(self.masks.shape, self.step)], -3)

    @property
    def channels(self) -> int:
        return self.masks.shape[-3]

    @property
    def codes(self) -> Tensor:
        """(..., L, *image): the masks where the detector sees them, 0 where a band does not reach."""
        return moved(self.masks, self.step)

    def contrast(self) -> Tensor:
        return self.codes.var(-3, correction=0).mean((-2, -1)).sqrt()[..., None, None]

    def _energy(self, masks: Tensor) -> Tensor:
        return _gathered(masks.square(), self.step)


def moved(cube: Tensor, step: Step) -> Tensor:
    """Bands (..., L, H, W), each moved by its steps, on one detector: (..., L, *image)."""
    down, right = (size - own for size, own in zip(_detector(cube, step), cube.shape[-2:], strict=True))
    places = _places(cube.shape, step)
    bands = [
        pad(band, (columns.start, right - columns.start, rows.start, down - rows.start))
        for band, (_, rows, columns) in zip(cube.unbind(-3), places, strict=True)
    ]
    return torch.stack(bands, -3)


def dual_disperser(mask: Tensor, bands: int, step: Step = (0, 2)) -> Tensor:
    """Masks (L, H, W) of a `Snapshot` behind two dispersers: one mask, moved by the step from band to band.

    Nothing is known beyond its border, where the moved mask is closed.

    >>> dual_disperser(torch.tensor([[1.0, 0.5]]), 2, (0, 1))
    tensor([[[1.0000, 0.5000]],
    <BLANKLINE>
            [[0.0000, 1.0000]]])
    """
    height, width = mask.shape
    rows, columns = (-min(0, (bands - 1) * s) for s in step)  # where the first band lands
    whole = moved(mask.expand(bands, height, width), step)
    return whole[:, rows : rows + height, columns : columns + width].contiguous()


def _detector(cube: Tensor, step: Step) -> torch.Size:
    bands, *size = cube.shape[-3:]
    return torch.Size([n + (bands - 1) * abs(s) for n, s in zip(size, step, strict=True)])


def _places(shape: torch.Size, step: Step) -> list[Place]:
    """Where each band lands on the detector; a negative step begins at its far end."""
    bands, height, width = shape[-3:]
    firsts = [-min(0, (bands - 1) * s) for s in step]
    corners = [(firsts[0] + band * step[0], firsts[1] + band * step[1]) for band in range(bands)]
    return [(..., slice(top, top + height), slice(left, left + width)) for top, left in corners]


def _gathered(cube: Tensor, step: Step) -> Tensor:
    """The sum of the moved bands."""
    total = cube.new_zeros(*cube.shape[:-3], *_detector(cube, step))
    for band, place in zip(cube.unbind(-3), _places(cube.shape, step), strict=True):
        total[place] += band
    return total
