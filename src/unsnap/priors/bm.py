"""Block matching in three and four dimensions, by their authors' packages (not for commercial use, so not required).

Dabov, Foi, Katkovnik & Egiazarian, *Image denoising by sparse 3-D transform-domain collaborative filtering*, IEEE
Trans. Image Process. 2007; Maggioni, Katkovnik, Egiazarian & Foi, *Nonlocal transform-domain filter for volumetric data
denoising and reconstruction*, IEEE Trans. Image Process. 2013.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from unsnap.errors import InputError
from unsnap.priors.checks import check_sigma

SMALLEST = {"bm3d": 9, "bm4d": 8}
"""Height and width: smaller pictures are refused there, or end the process (bm3d 4.0.3 on its one block of 8 × 8)."""


@dataclass(frozen=True)
class BM3D:
    """Frame by frame through the package `bm3d`; videos (..., T, H, W), no gradients."""

    def __call__(self, x: Tensor, sigma: float | Tensor, /) -> Tensor:
        function = _function("bm3d")

        def clean(video: Tensor, level: float) -> Tensor:
            return torch.stack([torch.from_numpy(function(frame.numpy(), level)) for frame in video])

        return _each_video(clean, x, sigma)


@dataclass(frozen=True)
class BM4D:
    """The whole video as a volume through the package `bm4d`; videos (..., T, H, W), no gradients.

    From five frames on its blocks reach through time; fewer frames are cleaned by blocks of 8 × 8 × 1.
    """

    def __call__(self, x: Tensor, sigma: float | Tensor, /) -> Tensor:
        function = _function("bm4d")

        def clean(video: Tensor, level: float) -> Tensor:
            # The package decides by its last axis whether there is depth enough for blocks in three dimensions.
            volume = function(video.permute(1, 2, 0).contiguous().numpy(), level)
            return torch.from_numpy(volume).reshape(*video.shape[1:], len(video)).permute(2, 0, 1)

        return _each_video(clean, x, sigma)


def check(package: str, height: int, width: int) -> None:
    """An InputError unless the package is installed and the pictures are large enough for its blocks."""
    if importlib.util.find_spec(package) is None:
        raise InputError(
            f"the package {package} is not installed, on which pnp-{package} runs; install it with "
            f"`pip install {package}` (free for non-commercial use)"
        )
    if min(height, width) < (least := SMALLEST[package]):
        raise InputError(
            f"a video of {height}×{width} pixels is too small for the blocks of {package}, at least {least}×{least}; "
            "use a method without blocks, such as gap-tv3d"
        )


def _function(package: str) -> Callable[[Any, float], Any]:
    """bm3d.bm3d or bm4d.bm4d: (noisy array, standard deviation) -> array."""
    check(package, SMALLEST[package], SMALLEST[package])
    try:
        function: Callable[[Any, float], Any] = getattr(importlib.import_module(package), package)
    except (ImportError, OSError, AttributeError) as error:
        raise InputError(f"the package {package} cannot be used ({error}); install it again") from error
    return function


def _each_video(clean: Callable[[Tensor, float], Tensor], x: Tensor, sigma: float | Tensor) -> Tensor:
    """`clean` on every video of a batch, with its own sigma; where sigma is 0, nothing is done."""
    level = torch.as_tensor(sigma, dtype=torch.float64).detach().cpu()
    check_sigma(level)
    videos = x.detach().cpu().reshape(-1, *x.shape[-3:])
    levels = (level.reshape(()) if level.numel() == 1 else level).expand(x.shape[:-3]).reshape(-1).tolist()
    cleaned = [clean(video, s) if s else video for video, s in zip(videos, levels, strict=True)]
    return torch.stack([video.to(x) for video in cleaned]).reshape(x.shape) if cleaned else x.clone()
