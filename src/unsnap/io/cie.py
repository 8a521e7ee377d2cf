r"""The colour of a spectrum: CIE 1931 curves, and from them to the screen.

The curves are sums of Gaussians with two widths each: Wyman, Sloan & Shirley, *Simple analytic approximations to the
CIE XYZ color matching functions*, J. Comput. Graph. Tech. 2013.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

FIELD = (
    453.5, 457.5, 462.0, 466.0, 471.5, 476.5, 481.5, 487.0, 492.5, 498.0, 504.0, 510.0, 516.0, 522.5,
    529.5, 536.5, 544.0, 551.5, 558.5, 567.5, 575.5, 584.5, 594.5, 604.0, 614.5, 625.0, 636.5, 648.0,
)  # fmt: skip
"""Nanometres of the 28 bands in the field's captures and benchmarks (Meng, Ma & Yuan, TSA-Net, ECCV 2020)."""
# Height, centre in nm, and one over the width below and above it.
_LOBES = (
    ((1.056, 599.8, 0.0264, 0.0323), (0.362, 442.0, 0.0624, 0.0374), (-0.065, 501.1, 0.0490, 0.0382)),
    ((0.821, 568.8, 0.0213, 0.0247), (0.286, 530.9, 0.0613, 0.0322)),
    ((1.217, 437.0, 0.0845, 0.0278), (0.681, 459.0, 0.0385, 0.0725)),
)
_TO_SRGB = ((3.2406, -1.5372, -0.4986), (-0.9689, 1.8758, 0.0415), (0.0557, -0.2040, 1.0570))


def assumed(bands: int) -> list[float]:
    """Wavelengths to colour a picture by where none are known: evenly from 450 to 650 nm."""
    values: list[float] = torch.linspace(450, 650, bands, dtype=torch.float64).tolist()
    return values


def matching(wavelengths: Sequence[float]) -> Tensor:
    """x̄, ȳ, z̄ at these wavelengths in nm: (3, L).

    >>> matching([555.0])[1].round(decimals=1)
    tensor([1.], dtype=torch.float64)
    """
    nm = torch.as_tensor(wavelengths, dtype=torch.float64)
    curves = []
    for lobes in _LOBES:
        parts = [
            height * torch.exp(-0.5 * ((nm - centre) * torch.where(nm < centre, below, above)) ** 2)
            for height, centre, below, above in lobes
        ]
        curves.append(torch.stack(parts).sum(0))
    return torch.stack(curves)


def to_rgb(cube: Tensor, wavelengths: Sequence[float]) -> Tensor:
    """A picture (..., 3, H, W) in [0, 1] for the screen (sRGB) of a cube (..., L, H, W).

    A flat spectrum is white, whatever the bands; the brightest half percent of the picture is cut.
    """
    nm = torch.as_tensor(wavelengths, dtype=torch.float64)
    widths = torch.gradient(nm)[0].abs() if len(nm) > 1 else torch.ones_like(nm)
    linear = (torch.tensor(_TO_SRGB, dtype=torch.float64) @ (matching(wavelengths) * widths)).to(cube)
    picture = torch.einsum("cl,...lhw->...chw", linear / linear.sum(-1, keepdim=True), cube.clamp(min=0))
    bright = torch.quantile(picture.amax(-3).flatten(-2)[..., :: max(1, picture[..., 0, :, :].numel() // 2**20)], 0.995)
    picture = (picture / bright.clamp(min=torch.finfo(cube.dtype).tiny)).clamp(0, 1)
    return torch.where(picture <= 0.0031308, 12.92 * picture, 1.055 * picture.clamp(min=1e-9) ** (1 / 2.4) - 0.055)
