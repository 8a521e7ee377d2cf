r"""Colour: a mosaic of filters on the detector, or three detectors.

A colour video is its planes one after the other along the axis of frames: T red, T green, T blue, (3T, H, W). To the
data steps these are 3T coded frames, so all closed forms hold and one sample stays one sample;
`x.unflatten(-3, (3, -1))` is (3, T, H, W).
"""

from __future__ import annotations

import torch
from torch import Tensor

from unsnap.errors import InputError
from unsnap.operators.base import CodedOperator
from unsnap.operators.diagonal import Diagonal
from unsnap.operators.snapshot import Snapshot

COLOURS = "rgb"
PATTERNS = ("rggb", "bggr", "grbg", "gbrg")
"""The colours of 2 × 2 detector pixels, row by row; with `quad-` in front, of 2 × 2 blocks of four pixels."""


class _Colour(CodedOperator):
    """Frames in three colours."""

    @property
    def channels(self) -> int:
        return len(COLOURS)

    @property
    def frames(self) -> int:
        return int(self.video[0]) // len(COLOURS)


class Bayer(_Colour, Snapshot):
    r"""Masks before a mosaic of colour filters, all in one Φ: $y = \sum_{c,t} f_c \odot m_t \odot x_{ct}$.

    masks: (3T, H, W) as `mosaic` makes them of masks (T, H, W) and a pattern, or (N, 3T, H, W).
    Video (..., 3T, H, W), snapshot (..., H, W).

    >>> phi = Bayer(mosaic(torch.ones(1, 2, 2), "rggb"))
    >>> phi.A(torch.tensor([1.0, 2.0, 3.0]).reshape(3, 1, 1).expand(3, 2, 2))
    tensor([[1., 2.],
            [2., 3.]])
    """

    def __init__(self, masks: Tensor) -> None:
        super().__init__(masks)
        _whole_planes(masks.shape[-3])

    @property
    def codes(self) -> Tensor:
        """Those of green alone, which half of the pixels see: a third of the unknowns."""
        return torch.unflatten(self.masks, -3, (len(COLOURS), -1)).select(-4, 1)

    @property
    def uncoded(self) -> Tensor:
        """Those that see red or blue."""
        red, green, blue = torch.unflatten(self.masks, -3, (len(COLOURS), -1)).ne(0).any(-3).unbind(-3)
        return ~green & (red | blue)


class RGB(_Colour, Diagonal):
    r"""Three detectors, one for each colour: $y_c = \sum_t m_{ct} \odot x_{ct}$.

    masks: (3, T, H, W), all the same where one mask serves the colours, or (N, 3, T, H, W).
    Video (..., 3T, H, W), snapshots (..., 3, H, W).
    """

    RANK = 4

    def __init__(self, masks: Tensor) -> None:
        super().__init__(masks, "CTHW")
        _whole_planes(masks.shape[-4], exactly=True)

    @property
    def image(self) -> torch.Size:
        return self.masks.shape[-4:-3] + self.masks.shape[-2:]

    @property
    def video(self) -> torch.Size:
        colours, frames, height, width = self.masks.shape[-4:]
        return torch.Size([colours * frames, height, width])

    def A(self, x: Tensor) -> Tensor:
        self._check(x, self.video, "video")
        return (self.masks * torch.unflatten(x, -3, self.masks.shape[-4:-2])).sum(-3)

    def A_adjoint(self, y: Tensor) -> Tensor:
        self._check(y, self.image, "snapshot")
        return (self.masks * y.unsqueeze(-3)).flatten(-4, -3)


def planes(y: Tensor, phi: CodedOperator) -> tuple[Tensor, Snapshot]:
    """Captures y (..., *image) of a colour camera as those of grey ones: (3B, H, W), red, green and blue of each.

    No detector pixel sees two colours, so nothing is lost: what a method finds for the three is a solution for y.
    """
    flat, phi, _ = phi.aligned(y)
    masks = phi.masks if isinstance(phi, RGB) else torch.unflatten(phi.masks, -3, (len(COLOURS), -1))
    each = flat if isinstance(phi, RGB) else flat.unsqueeze(-3) * masks.ne(0).any(-3)
    own = masks.expand(len(flat), *masks.shape[-4:])
    return each.reshape(-1, *flat.shape[-2:]), Snapshot(own.reshape(-1, *own.shape[-3:]))


def filters(pattern: str, height: int, width: int) -> Tensor:
    """0/1 filters (3, H, W) of a detector whose colours repeat as `rggb` does, or `quad-rggb` in blocks of four.

    >>> filters("grbg", 2, 3)[1]                                           # where green is seen
    tensor([[1., 0., 1.],
            [0., 1., 0.]])
    """
    block = 2 if pattern.startswith("quad-") else 1
    order = pattern.removeprefix("quad-")
    if order not in PATTERNS:
        known = ", ".join((*PATTERNS, *(f"quad-{name}" for name in PATTERNS)))
        raise InputError(f"the pattern of a colour filter must be one of {known}, got {pattern!r}")
    cell = torch.tensor([COLOURS.index(letter) for letter in order]).reshape(2, 2)
    down, right = (torch.arange(size) // block % 2 for size in (height, width))
    seen = cell[down[:, None], right]
    return torch.stack([(seen == colour).float() for colour in range(len(COLOURS))])


def mosaic(masks: Tensor, pattern: str) -> Tensor:
    """Masks (..., 3T, H, W) of a `Bayer` from masks (..., T, H, W) in front of a detector with this pattern."""
    own = filters(pattern, *masks.shape[-2:]).to(masks)
    return (own.unsqueeze(-3) * masks.unsqueeze(-4)).flatten(-4, -3)


def _whole_planes(count: int, exactly: bool = False) -> None:
    if count % len(COLOURS) or (exactly and count != len(COLOURS)):
        raise InputError(f"masks of a colour camera must have {len(COLOURS)} planes, got {count} masks")
