r"""Weighted nuclear norm: similar patches from anywhere in space-time form a matrix of low rank.

For each reference patch, the n most similar ones (in all frames) become the columns of a group; its deviation Y from
the group's mean patch is replaced by the minimiser of
$$\tfrac12\|Y - X\|_F^2 + \sum_i w_i\,s_i(X), \qquad w_i = \frac{C}{s_i(X)}, \quad C = 2\sqrt{2n}\,\sigma^2,$$
with s_i the singular values: large ones carry structure and are hardly touched, small ones are noise and vanish. The
weights depend on the solution, and the fixed point of re-weighting is closed form:
$s_i(X) = \frac12\big(s_i + \sqrt{s_i^2 - 4C}\big)$ where $s_i^2 > 4C$, else 0. Overlapping patches are averaged.
Gu et al., *Weighted nuclear norm minimization and its applications to low level vision*, IJCV 2017;
Liu, Yuan, Suo, Brady & Dai, *Rank minimization for snapshot compressive imaging*, TPAMI 2019.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from unsnap.algorithms.iterate import Denoiser
from unsnap.priors.checks import check_sigma, check_size

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class WNNM:
    """Low-rank denoiser of groups of similar patches in videos (..., T, H, W); it records no gradients.

    patch: side of a patch; group: patches in a group; stride: pixels between reference patches;
    radius: how far from the reference patch to search, in every frame.

    >>> noise = 0.1 * torch.randn(4, 32, 32, generator=torch.Generator().manual_seed(1))
    >>> bool((WNNM()(0.5 + noise, 0.1) - 0.5).norm() < 0.5 * noise.norm())
    True
    """

    patch: int = 6
    group: int = 64
    stride: int = 4
    radius: int = 15

    def __post_init__(self) -> None:
        if not (1 <= self.stride <= self.patch and self.group >= 1 and self.radius >= 0):
            raise ValueError(
                "WNNM needs 1 <= stride <= patch, group >= 1 and radius >= 0, got "
                f"stride={self.stride}, patch={self.patch}, group={self.group}, radius={self.radius}"
            )

    @classmethod
    def published(cls, sigma: float) -> WNNM:
        """The paper's patches and groups for this noise, up to what fills whole vector registers."""
        for limit, patch, group in ((20, 6, 64), (40, 7, 96), (60, 8, 128)):
            if 255 * sigma <= limit:
                return cls(patch, group)
        return cls(9, 128)

    def __call__(self, x: Tensor, sigma: float | Tensor, /) -> Tensor:
        """Denoise; sigma is the standard deviation of the noise: a number, one per sample, or a map like x."""
        return self.shrink(x, self.match(x), sigma) if x.numel() else x.clone()

    def check_size(self, height: int, width: int) -> None:
        """An InputError unless a patch fits."""
        check_size(self.patch, height, width)

    def match(self, x: Tensor) -> Tensor:
        """Groups (..., references, n): the flat index in its video of the first pixel of every patch."""
        from unsnap.kernels import patches

        self.check_size(*x.shape[-2:])
        videos = x.detach().cpu().reshape(-1, *x.shape[-3:]).contiguous().numpy()
        keys = patches.references(videos.shape[1:], self.patch, self.stride)
        found = [torch.from_numpy(patches.match(video, keys, self.patch, self.group, self.radius)) for video in videos]
        return torch.stack(found).reshape(*x.shape[:-3], len(keys), -1)

    def shrink(self, x: Tensor, groups: Tensor, sigma: float | Tensor) -> Tensor:
        """Take the low-rank part of every group and average what overlaps."""
        from unsnap.kernels import patches

        keys = patches.references((x.shape[-3], x.shape[-2], x.shape[-1]), self.patch, self.stride)
        return filtered(x, groups, sigma, self.patch, keys, patches.shrink)


def filtered(
    x: Tensor, groups: Tensor, sigma: float | Tensor, patch: int, keys: Array, kernel: Callable[..., Array]
) -> Tensor:
    """kernel(video, groups, patch, thresholds) of every video."""
    least = thresholds(x, sigma, patch, keys, groups.shape[-1])
    videos = x.detach().cpu().reshape(-1, *x.shape[-3:]).contiguous().numpy()
    cleaned = [
        torch.from_numpy(kernel(video, group, patch, limits) if limits.any() else video.copy())
        for video, group, limits in zip(videos, groups.reshape(*least.shape, -1).numpy(), least, strict=True)
    ]
    return (cleaned[0] if len(cleaned) == 1 else torch.stack(cleaned)).reshape(x.shape).to(x.device)


def thresholds(x: Tensor, sigma: float | Tensor, patch: int, keys: Array, size: int) -> Array:
    """4C of every group of every video (videos, keys), with the noise told in the middle of its key patch."""
    level = sigma.detach().cpu() if isinstance(sigma, Tensor) else torch.tensor(sigma, dtype=torch.float64)
    check_sigma(level)
    levels = level if level.ndim == x.ndim else level.reshape(*level.shape, *[1] * (x.ndim - level.ndim))
    centres = keys + (x.shape[-1] + 1) * (patch // 2)
    t, row, column = (torch.from_numpy(place) for place in np.unravel_index(centres, x.shape[-3:]))
    # In double precision only here: a map of sigma may be large.
    told = levels.expand(x.shape)[..., t, row, column].reshape(-1, len(keys)).double()
    least: Array = (8 * math.sqrt(2 * size) * told.square()).numpy()
    return least


def rematching(choose: Callable[[float], WNNM], period: int) -> Denoiser:
    """`choose(sigma)` for one run: matches again at every `period`-th call and when the size of patches changes.

    The groups hardly change between iterations, and finding them costs more than using them.
    """
    prior, groups, age = WNNM(), torch.empty(0), 0

    def denoise(x: Tensor, sigma: float | Tensor, /) -> Tensor:
        nonlocal prior, groups, age
        wanted = choose(float(torch.as_tensor(sigma).max()))
        if age % period == 0 or wanted != prior:
            prior, groups, age = wanted, wanted.match(x), 0
        age += 1
        return prior.shrink(x, groups, sigma)

    return denoise
