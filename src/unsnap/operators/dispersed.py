r"""A camera that disperses light behind a mask: CASSI, the snapshot of a spectrum.

Band l of the cube is coded by its mask and lands on the detector moved by l steps, so that every detector pixel sees at
most one pixel of every band: $\Phi\Phi^\top$ is diagonal, and every data step a closed form as for video.
Wagadarikar, John, Willett & Brady, *Single disperser design for coded aperture snapshot spectral imaging*, Appl. Opt.
2008. Of two dispersers (Gehm et al., Opt. Express 2007) the second undoes what the first did to the scene; only the
mask moves from band to band, as `dual_disperser` makes it.
"""

from __future__ import annotations

from types import EllipsisType

import torch
from torch import Tensor
from torch.nn.functional import pad
from typing_extensions import Self

from unsnap.errors import InputError, short
from unsnap.operators.base import deviation
from unsnap.operators.diagonal import Diagonal
from unsnap.operators.snapshot import Snapshot

MOST_STEP = 1000
"""Pixels."""

BandStep = tuple[int, int]
"""(down, right): pixels on the detector from one band to the next, of either sign"""
Place = tuple[EllipsisType, slice, slice]


class Dispersed(Diagonal):
    r"""$y(p) = \sum_l (m_l \odot x_l)(p - l\,s)$, s the step (down, right) in pixels per band.

    masks: (L, H, W), one for every band (all the same where one mask is dispersed), or (N, L, H, W).
    Cube (..., L, H, W), snapshot (..., H + (L − 1)|down|, W + (L − 1)|right|).

    >>> phi = Dispersed(torch.ones(3, 1, 2), (0, 2))                       # three bands of one row of two pixels
    >>> phi.A(torch.tensor([[[1.0, 2.0]], [[3.0, 4.0]], [[5.0, 6.0]]]))
    tensor([[1., 2., 3., 4., 5., 6.]])
    """

    SPECTRAL = True

    def __init__(self, masks: Tensor, step: BandStep = (0, 2)) -> None:
        self.step = step  # before the rest, as the energy depends on it
        super().__init__(masks, "LHW")

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
        return self.masks * self.at_pixels(y)

    @classmethod
    def named(cls, masks: Tensor, setting: str) -> Self:
        return cls(masks, parse_step(setting))

    def with_masks(self, masks: Tensor) -> Self:
        return type(self)(masks, self.step)

    def weighted(self, weights: Tensor) -> Self:
        return self._like(self.at_pixels(weights.to(self.masks)) * self.masks)

    def at_pixels(self, y: Tensor) -> Tensor:
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

    @property
    def spread(self) -> tuple[int, int]:
        reach = self.masks.shape[-3] - 1
        return reach * abs(self.step[0]), reach * abs(self.step[1])

    def _contrast(self) -> Tensor:
        return deviation(self.codes)

    def _exposure(self, masks: Tensor) -> Tensor:
        return _gathered(masks, self.step)


class DualDispersed(Snapshot):
    """Two dispersers, the second of which undoes what the first did to the scene: a snapshot of bands.

    masks: (L, H, W) as `dual_disperser` makes them of one mask, or (N, L, H, W). Cube (..., L, H, W), snapshot
    (..., H, W).
    """

    SPECTRAL = True

    @property
    def channels(self) -> int:
        return self.masks.shape[-3]


def parse_step(text: str) -> BandStep:
    """(down, right) from "2" (right), "-1,0" or "" (the field's two pixels to the right).

    >>> parse_step("-1,0"), parse_step("3")
    ((-1, 0), (0, 3))
    """
    try:
        parts = [int(part) for part in (text or "2").split(",")]
        down, right = parts if len(parts) > 1 else (0, *parts)
    except ValueError as error:
        raise InputError(f"the step from band to band must be whole pixels, as 2 or 0,2, got {short(text)}") from error
    if max(abs(down), abs(right)) > MOST_STEP:
        raise InputError(f"the step from band to band may be {MOST_STEP} pixels at most, got {short(text)}")
    return down, right


def step_name(step: BandStep) -> str:
    return f"{step[0]},{step[1]}"


def moved(cube: Tensor, step: BandStep) -> Tensor:
    """Bands (..., L, H, W), each moved by its steps, on one detector: (..., L, *image)."""
    down, right = (size - own for size, own in zip(_detector(cube, step), cube.shape[-2:], strict=True))
    places = _places(cube.shape, step)
    bands = [
        pad(band, (columns.start, right - columns.start, rows.start, down - rows.start))
        for band, (_, rows, columns) in zip(cube.unbind(-3), places, strict=True)
    ]
    return torch.stack(bands, -3)


def dual_disperser(mask: Tensor, bands: int, step: BandStep = (0, 2)) -> Tensor:
    """Masks (L, H, W) of a `DualDispersed`: one mask, moved by the step from band to band.

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


def _detector(cube: Tensor, step: BandStep) -> torch.Size:
    bands, *size = cube.shape[-3:]
    return torch.Size([n + (bands - 1) * abs(s) for n, s in zip(size, step, strict=True)])


def _places(shape: torch.Size, step: BandStep) -> list[Place]:
    """Where each band lands on the detector; a negative step begins at its far end."""
    bands, height, width = shape[-3:]
    firsts = [-min(0, (bands - 1) * s) for s in step]
    corners = [(firsts[0] + band * step[0], firsts[1] + band * step[1]) for band in range(bands)]
    return [(..., slice(top, top + height), slice(left, left + width)) for top, left in corners]


def _gathered(cube: Tensor, step: BandStep) -> Tensor:
    """The sum of the moved bands."""
    total = cube.new_zeros(*cube.shape[:-3], *_detector(cube, step))
    for band, place in zip(cube.unbind(-3), _places(cube.shape, step), strict=True):
        total[place] += band
    return total
