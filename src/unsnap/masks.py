"""Masks that code the frames of a snapshot, and what can be told from a mask set by its numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from unsnap.errors import InputError, short

MOST_BLUR = 100
"""Pixels (σ): masks blurred further are one grey."""


def bernoulli(
    frames: int,
    height: int,
    width: int,
    *,
    p: float = 0.5,
    generator: torch.Generator | None = None,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Independent 0/1 masks (T, H, W), each pixel open with probability p.

    >>> bernoulli(8, 256, 256, generator=torch.Generator().manual_seed(0)).shape
    torch.Size([8, 256, 256])
    """
    _check_size(frames, height, width)
    _check_probability(p)
    if not dtype.is_floating_point:
        raise InputError(f"dtype of masks must be a floating-point type, got {dtype}; use torch.float32")
    return (_uniform((frames, height, width), generator) < p).to(dtype)


def shifted(
    frames: int,
    height: int,
    width: int,
    *,
    p: float = 0.5,
    step: tuple[int, int] = (1, 0),
    blur: float = 0.0,
    generator: torch.Generator | None = None,
) -> Tensor:
    """One 0/1 mask moved by `step` = (down, right) pixels per frame, as in CACTI: masks (T, H, W).

    The mask is larger than the image, so fresh pixels enter at the border and nothing wraps around:
    m[t + 1, i + down, j + right] = m[t, i, j]. `blur` > 0 is that of optics, as in `gray`.
    """
    _check_size(frames, height, width)
    _check_probability(p)
    if len(step) != 2 or any(int(s) != s for s in step):
        raise InputError(f"step must be two whole pixels per frame (down, right), got {step}; use for example (1, 0)")
    down, right = int(step[0]), int(step[1])
    last = frames - 1
    plate = _optics((height + abs(down) * last, width + abs(right) * last), p, blur, generator)
    top, left = max(down, 0) * last, max(right, 0) * last
    views = [
        plate[top - down * t : top - down * t + height, left - right * t : left - right * t + width]
        for t in range(frames)
    ]
    return torch.stack(views)


def moving(plate: Tensor, places: Sequence[tuple[float, float]], height: int, width: int) -> Tensor:
    """One mask (H', W') seen where it is in every frame: masks (T, H, W), m[t, i + down, j + right] = plate[i, j].

    places: (down, right) of every frame, in pixels; parts of pixels are interpolated linearly. A plate as large as the
    image goes round, as a rolling mask does; a larger one must cover the image in every frame, and is seen from the
    pixel on that comes into the image last: i and j then count from the largest of all places, rounded up.

    >>> moving(torch.eye(3), [(0, 0), (0, 1)], 3, 3)[1]
    tensor([[0., 1., 0.],
            [0., 0., 1.],
            [1., 0., 0.]])
    """
    if not len(places):
        raise InputError("a mask that moves needs its place in at least one frame, got none")
    try:
        ways = [(float(down), float(right)) for down, right in places]
    except (TypeError, ValueError) as error:
        raise InputError(
            "the places of a mask that moves must be pairs (down, right), one for each frame, as [(0, 0), (1, 0)], got "
            f"{short(places)}"
        ) from error
    corner = []
    for axis, (side, length) in enumerate(zip((height, width), plate.shape, strict=True)):
        steps = [way[axis] for way in ways]
        first, last = math.ceil(max(steps)), math.floor(min(steps))
        if length != side and length < side + first - last:
            raise InputError(
                f"a mask that moves from {min(steps):g} to {max(steps):g} pixels must be {side} long and goes round, "
                f"or at least {side + first - last}, got {length} along axis {axis}; give a larger one or a shorter way"
            )
        corner.append(0 if length == side else first)
    views = [_moved(_moved(plate, down, 0), right, 1) for down, right in ways]
    top, left = corner
    return torch.stack([view[top : top + height, left : left + width] for view in views])


def _moved(plate: Tensor, step: float, axis: int) -> Tensor:
    """Rolled by a number of pixels that need not be whole."""
    whole = math.floor(step)
    part = step - whole
    near = plate.roll(whole, axis)
    return near if part == 0 else (1 - part) * near + part * plate.roll(whole + 1, axis)


def gray(
    frames: int,
    height: int,
    width: int,
    *,
    low: float = 0.0,
    high: float = 1.0,
    blur: float = 0.0,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Grey masks (T, H, W) with values in [low, high]: uniform, or a 0/1 mask seen through optics.

    With `blur` > 0 a Bernoulli(½) mask is convolved with a Gaussian of that many pixels (σ) before it is scaled.
    """
    _check_size(frames, height, width)
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise InputError(f"low and high must be finite with low < high, got low={low}, high={high}; use 0 and 1")
    if blur == 0:
        return low + (high - low) * _uniform((frames, height, width), generator)
    return (low + (high - low) * _optics((frames, height, width), 0.5, blur, generator)).clamp(low, high)


@dataclass(frozen=True)
class MaskStatistics:
    """Numbers that decide how a mask set may be inverted; sums run over the frames of one pixel."""

    minimum: float
    maximum: float
    density: float
    """Mean value of all masks."""
    binary: bool
    """Only the values 0 and 1 occur."""
    dead: int
    """Pixels with Σm² = 0: they measured nothing."""
    sum_min: float
    sum_max: float
    energy_min: float
    """Smallest Σm², the diagonal of ΦΦᵀ."""
    energy_max: float
    """Largest Σm² = ‖Φ‖²."""
    ratio_max: float
    """Largest Σm² / |Σm| over live pixels: 1 for 0/1 masks; above 2, code that divides by Σm diverges."""


def statistics(masks: Tensor) -> MaskStatistics:
    """Statistics of masks (T, H, W) or (N, T, H, W), computed in float64."""
    if masks.ndim not in (3, 4) or masks.numel() == 0:
        raise InputError(f"masks must be (T, H, W) or (N, T, H, W) and not empty, got shape {tuple(masks.shape)}")
    if masks.is_complex():
        raise InputError(f"masks must be real, got {masks.dtype}; pass their real part or magnitude")
    if not bool(torch.isfinite(masks).all()):
        raise InputError("masks must be finite, got NaN or Inf; replace those values, for example by 0")
    total = masks.sum(-3, dtype=torch.float64)
    energy = masks.to(torch.float64).square().sum(-3)
    live = energy > 0
    return MaskStatistics(
        minimum=float(masks.min()),
        maximum=float(masks.max()),
        density=float(masks.mean(dtype=torch.float64)),
        binary=bool(((masks == 0) | (masks == 1)).all()),
        dead=int((~live).sum()),
        sum_min=float(total.min()),
        sum_max=float(total.max()),
        energy_min=float(energy.min()),
        energy_max=float(energy.max()),
        ratio_max=float((energy[live] / total[live].abs()).max()) if bool(live.any()) else 0.0,
    )


def shift_per_frame(masks: Tensor) -> tuple[int, int] | None:
    """(dy, dx) when each of masks (T, H, W) is the one before moved by that, at correlation above 0.9; else None."""
    if len(masks) < 2:
        return None
    crop = masks[:2, :256, :256].float()
    crop = crop - crop.mean((-2, -1), keepdim=True)
    spectrum = torch.fft.rfft2(crop)
    match = torch.fft.irfft2(spectrum[1] * spectrum[0].conj(), s=crop.shape[-2:])
    best = int(match.argmax())
    rows, columns = match.shape
    dy, dx = best // columns, best % columns
    dy, dx = dy - rows * (dy > rows // 2), dx - columns * (dx > columns // 2)
    if (dy, dx) == (0, 0):
        return None
    moved = [_overlap(one, following, dy, dx) for one, following in pairwise(masks)]
    checked = [_correlation(a, b) for a, b in moved if a.numel() > 16]
    return (dy, dx) if checked and min(checked) > 0.9 else None


def _overlap(a: Tensor, b: Tensor, dy: int, dx: int) -> tuple[Tensor, Tensor]:
    """The parts of a and b that coincide when b is a moved by (dy, dx)."""
    rows, columns = max(a.shape[0] - abs(dy), 0), max(a.shape[1] - abs(dx), 0)
    part_a = a[max(-dy, 0) :, max(-dx, 0) :][:rows, :columns]
    part_b = b[max(dy, 0) :, max(dx, 0) :][:rows, :columns]
    return part_a, part_b


def _correlation(a: Tensor, b: Tensor) -> float:
    a, b = a - a.mean(), b - b.mean()
    norm = float(a.norm() * b.norm())
    return float((a * b).sum()) / norm if norm > 0 else 0.0


def _uniform(shape: tuple[int, ...], generator: torch.Generator | None) -> Tensor:
    device = generator.device if generator is not None else None
    return torch.rand(shape, generator=generator, device=device)


def _optics(shape: tuple[int, ...], p: float, blur: float, generator: torch.Generator | None) -> Tensor:
    """0/1 masks (..., H, W), open with probability p, seen through a Gaussian blur of that many pixels (σ)."""
    if not 0 <= blur <= MOST_BLUR:
        raise InputError(f"blur must be a number of pixels from 0 to {MOST_BLUR}, got {blur}; use 0 for no blur")
    *many, height, width = shape
    reach = math.ceil(3 * blur)
    # The sharp mask is larger by the reach of the blur, so that the border is as blurred as the middle.
    sharp = (_uniform((*many, height + 2 * reach, width + 2 * reach), generator) < p).to(torch.float32)
    if reach == 0:
        return sharp
    weights = torch.exp(-0.5 * (torch.arange(-reach, reach + 1, dtype=torch.float32) / blur) ** 2)
    weights = weights / weights.sum()
    rows = sum((w * sharp[..., k : k + height, :] for k, w in enumerate(weights)), torch.zeros(()))
    soft = sum((w * rows[..., k : k + width] for k, w in enumerate(weights)), torch.zeros(()))
    return soft.clamp(0, 1)


def _check_size(frames: int, height: int, width: int) -> None:
    for name, value in (("frames", frames), ("height", height), ("width", width)):
        if int(value) != value or value < 1:
            raise InputError(f"{name} must be a whole number of at least 1, got {value}")


def _check_probability(p: float) -> None:
    if not 0 < p <= 1:
        raise InputError(f"p must be a probability in (0, 1], got {p}; 0.5 opens half of the pixels")
