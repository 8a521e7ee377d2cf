"""Shutters that are open in few of many frames: a video is found between the places and times that were seen."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from unsnap.algorithms.iterate import Solution
from unsnap.fields import Size, check
from unsnap.operators import CodedOperator

TINY, FAR = 1e-30, 1e-6
"""Where the kernel finds less than FAR of what it finds on average, the mean of the video takes over."""
CANCELLED = 1e-3
"""Of masks of both signs: what is left of their sum, over what it could be, that counts as nothing."""
SPARSE = 0.1
"""Shutters that are open for less of the frames leave voxels to be interpolated between those that were seen."""


def sparse(phi: CodedOperator) -> Tensor:
    """Is a pixel seen in so few frames, as by a one-hot shutter, that priors between neighbours do not get started?

    (N, 1, 1, 1) for masks of each sample, (1, 1, 1) for one set.
    """
    fits = phi.pixelwise and phi.channels == 1
    few = phi.openness() < SPARSE if fits else phi.masks.new_zeros((), dtype=torch.bool)
    return few[..., None, None, None]


@dataclass(frozen=True)
class Interpolation:
    r"""Normalised convolution: $x = (g * m^2 \frac{y}{\sum m}) / (g * m^2)$ with a Gaussian g in space and time.

    width: of g in space, in pixels; in time it is as wide as it takes to see `samples` on average. What every pixel saw
    counts for the frames around the time when it saw it. Knutsson & Westin, *Normalized and differential convolution*,
    CVPR 1993.
    """

    width: Size = 1.5
    samples: Size = 1.0

    def __post_init__(self) -> None:
        check("interpolation: ", Interpolation, vars(self))

    @torch.no_grad()
    def __call__(self, y: Tensor, phi: CodedOperator) -> Tensor:
        y, phi, lead = phi.aligned(y)
        if len(phi.samples) and phi.whole is None:  # each has a width in time of its own
            each = [self(one, phi.with_masks(masks)) for one, masks in zip(y, phi.masks, strict=True)]
            return torch.stack(each).reshape(*lead, *phi.video)
        total = phi.masks.sum(-3)
        left = total.abs() / phi.masks.abs().sum(-3).clamp(min=TINY)  # the more signed masks cancel, the less they say
        told = left > CANCELLED
        certainty = phi.masks.square() * (left.square() * told).unsqueeze(-3)
        value = torch.where(told, y / torch.where(told, total, 1), 0)
        seen = certainty * value.unsqueeze(-3)
        shots = certainty.expand_as(seen)
        if phi.RANK == 4:
            seen, shots = seen.sum(-4), shots.sum(-4)
        axes = (-3, -2, -1)
        mean = phi.ask("mean", lambda: seen.sum(axes, keepdim=True) / shots.sum(axes, keepdim=True).clamp(min=TINY))
        length = self.samples / (max(float(phi.openness().min()), TINY) * (2 * math.pi) ** 1.5 * self.width**2)
        sigmas = (min(max(length, 0.5), float(phi.video[0])), self.width, self.width)
        least = FAR * phi.ask("certainty", shots.mean) + TINY
        x = (_smooth(seen, sigmas) + least * mean) / (_smooth(shots, sigmas) + least)
        return x.reshape(*lead, *phi.video)

    def solve(self, y: Tensor, phi: CodedOperator) -> Solution:
        """The same as what an algorithm returns."""
        x = self(y, phi)
        nothing = x.new_zeros(x.shape[:-3])
        return Solution(x, nothing[None], nothing == 0, ~x.isfinite().all(-1).all(-1).all(-1))


def _smooth(video: Tensor, sigmas: tuple[float, ...]) -> Tensor:
    """Gaussian, axis by axis of (..., T, H, W); nothing lies beyond the borders."""
    for axis, sigma in zip((-3, -2, -1), sigmas, strict=True):
        reach = min(math.ceil(3 * sigma), video.shape[axis] - 1)
        at = torch.arange(-reach, reach + 1, dtype=video.dtype, device=video.device)
        kernel = torch.exp(-0.5 * (at / sigma) ** 2)
        lines = video.movedim(axis, -1)
        flat = lines.reshape(-1, 1, lines.shape[-1])
        smooth = torch.nn.functional.conv1d(flat, (kernel / kernel.sum())[None, None], padding=reach)
        video = smooth.reshape(lines.shape).movedim(-1, axis)
    return video
