"""From a video and masks to a Scene, through a sensor whose noise is a value: y = noise(Φx)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor

from unsnap.errors import InputError
from unsnap.operators import camera as make
from unsnap.operators import kind_of
from unsnap.scene import Scene


class Noise(Protocol):
    """What a sensor does to the light y (..., H, W) that falls on it; pure, random only through the generator."""

    def __call__(self, y: Tensor, generator: torch.Generator | None, /) -> Tensor: ...


def gaussian(sigma: float) -> Noise:
    """Additive white Gaussian noise with standard deviation sigma, in units of y."""
    _check(sigma, "sigma", sigma >= 0, "at least 0")
    return lambda y, generator: y + sigma * _normal(y, generator)


def shot(photons: float, read: float = 0.0) -> Noise:
    """Photon noise: Poisson(photons · y) electrons plus Gaussian read noise of `read` electrons, back in units of y.

    `photons` is the number of photo-electrons at y = 1, so the variance is y / photons + (read / photons)².
    """
    _check(photons, "photons", photons > 0, "more than 0")
    _check(read, "read", read >= 0, "at least 0")

    def noise(y: Tensor, generator: torch.Generator | None, /) -> Tensor:
        electrons = torch.poisson(photons * y.clamp(min=0), generator=generator)
        return (electrons + read * _normal(y, generator) if read else electrons) / photons

    return noise


def quantise(bits: int, full_scale: float) -> Noise:
    """An n-bit converter: y rounded to the nearest of 2ⁿ levels from 0 to full_scale, and clipped to them."""
    _check(bits, "bits", bits >= 1 and int(bits) == bits, "a whole number of at least 1")
    _check(full_scale, "full_scale", full_scale > 0, "more than 0")
    top = 2 ** int(bits) - 1
    return lambda y, generator: (y * (top / full_scale)).round().clamp(0, top) * (full_scale / top)


def saturate(level: float) -> Noise:
    """A full well: y is clipped at `level` from above."""
    _check(level, "level", level > 0, "more than 0")
    return lambda y, generator: y.clamp(max=level)


def chain(*noises: Noise) -> Noise:
    """The noises applied one after the other, first to last.

    >>> camera = chain(shot(photons=2000, read=5), saturate(6.0), quantise(12, full_scale=8.0))
    """

    def noise(y: Tensor, generator: torch.Generator | None, /) -> Tensor:
        for each in noises:
            y = each(y, generator)
        return y

    return noise


def simulate(
    video: Tensor,
    masks: Tensor,
    *,
    noise: Noise | None = None,
    generator: torch.Generator | None = None,
    dead: float = 0.0,
    camera: str = "snapshot",
) -> Scene:
    """The Scene that a coded camera would record of a video with intensities in [0, 1].

    video: (F, H, W), cut into consecutive groups of T frames with the rest dropped, or (N, T, H, W);
    masks: (T, H, W), or (N, T, H, W) for one set per snapshot; (K, T, H, W), or N of them, with camera="multishot";
    camera: any by its name; videos of a colour camera are (N, 3T, H, W);
    dead: fraction of sensor pixels that read 0 whatever falls on them; their masks are set to 0, so that y = Φx holds.
    """
    _check_video(video)
    rank = kind_of(camera).RANK
    _check_masks(masks, rank)
    _check(dead, "dead", 0 <= dead < 1, "a fraction in [0, 1)")
    phi = make(camera, masks)
    frames = int(phi.video[0])
    truth = _groups(video, frames)
    if truth.shape[-2:] != masks.shape[-2:] or (masks.ndim > rank and masks.shape[0] != truth.shape[0]):
        raise InputError(
            f"masks must match the video, which is {tuple(truth.shape)} as (N, T, H, W), got shape "
            f"{tuple(masks.shape)}; make masks of (T, H, W) = {tuple(truth.shape[1:])}"
        )
    alive = _alive(phi.image, dead, generator).to(truth)
    meta: dict[str, Any] = {
        "source": "simulation",
        "dropped_frames": video.shape[0] - truth.shape[0] * frames if video.ndim == 3 else 0,
        "dead_pixels": int((alive == 0).sum()),
    }
    scene = Scene.of(truth, phi.without(alive == 0).masks.to(truth), camera, meta)
    return scene if noise is None else replace(scene, measurement=noise(scene.measurement, generator) * alive)


def _groups(video: Tensor, frames: int) -> Tensor:
    if video.ndim == 4:
        if video.shape[1] != frames:
            raise InputError(
                f"video (N, T, H, W) must have the T = {frames} frames of the masks, got shape {tuple(video.shape)}"
            )
        return video
    count = video.shape[0] // frames
    if count == 0:
        raise InputError(
            f"video must have at least the T = {frames} frames of the masks, got {video.shape[0]}; use fewer masks"
        )
    return video[: count * frames].reshape(count, frames, *video.shape[1:])


def _alive(image: torch.Size, dead: float, generator: torch.Generator | None) -> Tensor:
    height, width = image[-2:]
    alive = torch.ones(height * width)
    count = round(dead * height * width)
    if count:
        device = generator.device if generator is not None else None
        alive[torch.randperm(height * width, generator=generator, device=device)[:count].cpu()] = 0
    return alive.reshape(height, width)


def _check_video(video: Tensor) -> None:
    if video.ndim not in (3, 4) or video.numel() == 0:
        raise InputError(f"video must be (F, H, W) or (N, T, H, W) and not empty, got shape {tuple(video.shape)}")
    if not video.is_floating_point():
        raise InputError(f"video must be floating point in [0, 1], got {video.dtype}; divide 8-bit frames by 255")
    if not bool(torch.isfinite(video).all()):
        raise InputError("video must be finite, got NaN or Inf; replace those values before simulating")
    low, high = float(video.min()), float(video.max())
    if low < 0 or high > 1:
        raise InputError(f"video must have intensities in [0, 1], got [{low:g}, {high:g}]; scale or clip it first")


def _check_masks(masks: Tensor, rank: int) -> None:
    if masks.ndim not in (rank, rank + 1) or masks.numel() == 0:
        axes = "(T, H, W) or (N, T, H, W)" if rank == 3 else f"of {rank} axes, or {rank + 1} with one set per capture,"
        raise InputError(f"masks must be {axes} and not empty, got shape {tuple(masks.shape)}")
    if masks.is_complex() or not bool(torch.isfinite(masks).all()):
        raise InputError(f"masks must be real and finite, got {masks.dtype} with NaN, Inf or imaginary parts")


def _check(value: float, name: str, fine: bool, rule: str) -> None:
    if not (fine and math.isfinite(value)):
        raise InputError(f"{name} must be {rule} and finite, got {value}")


def _normal(y: Tensor, generator: torch.Generator | None) -> Tensor:
    return torch.randn(y.shape, generator=generator, dtype=y.dtype, device=y.device)
