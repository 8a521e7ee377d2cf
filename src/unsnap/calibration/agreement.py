r"""How well masks agree with a snapshot that nobody has reconstructed.

Frames of a scene are alike, so that $y \approx \bar x \odot \sum_t m_t$: pixel by pixel a snapshot goes up and down
with the sum of its masks, over the local mean. With the right masks this correlation is 0.3 to 0.99 for any scene and
camera we know, and within chance of 0 for masks that are flipped, transposed or a pixel away.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
WINDOW = 3.0
"""Pixels (σ) of the local mean."""
_TILES = 4


def local_mean(picture: Array, sigma: float = WINDOW) -> Array:
    from scipy.ndimage import gaussian_filter

    mean: Array = gaussian_filter(picture, (0,) * (picture.ndim - 2) + (sigma, sigma), mode="reflect")
    return mean


def ripple(total: Array) -> Array:
    """Σm over its local mean, minus 1; 0 where the mean is as good as nothing."""
    mean = local_mean(total)
    fine = mean > 1e-3 * max(float(mean.max()), 1e-30)
    found: Array = np.where(fine, total / np.where(fine, mean, 1) - 1, 0).astype(np.float32)
    return found


def deviation(total: Array) -> Array:
    """Σm minus its local mean, for sums of both signs, whose mean says nothing."""
    return total - local_mean(total)


def correlation(y: Array, total: Array, counted: NDArray[np.bool_]) -> float:
    """Of a snapshot's details with those of Σm · (local mean of y), over the pixels that count."""
    mean = local_mean(y)
    detail, expected = (part[counted].astype(np.float64) for part in (y - mean, ripple(total) * mean))
    size = float(np.linalg.norm(detail) * np.linalg.norm(expected))
    return float(detail @ expected) / size if size > 0 else 0.0


def filled(shots: Array, weights: Array | None) -> tuple[Array, NDArray[np.bool_]]:
    """Snapshots with the mean of what is around in place of pixels left out, and which pixels count."""
    if weights is None:
        return shots, np.ones(shots.shape, np.bool_)
    weights = np.broadcast_to(weights.astype(np.float32), shots.shape)
    around = local_mean(shots) / np.maximum(local_mean(np.ascontiguousarray(weights)), 1e-6)
    sound = weights > 0
    return np.where(sound, shots / np.where(sound, weights, 1), around).astype(np.float32), sound


def contrast(y: Array, totals: Array, sound: NDArray[np.bool_] | None = None) -> tuple[float, float]:
    """How much snapshots (N, H, W) vary with Σm, in units of what they should, and its standard deviation.

    1 for the right masks, whatever moves; 1 − o/y with an offset o; less with masks that are blurred, or moved by a
    part of a pixel. sound: the pixels that count; the others are filled.
    """
    mean = local_mean(y)
    expected = (ripple(totals) * mean).astype(np.float64)
    both = np.stack([(y - mean) * expected, expected**2]) * (1.0 if sound is None else sound)
    height, width = (side // _TILES * _TILES for side in y.shape[-2:])
    tiles = both[..., :height, :width].reshape(2, -1, _TILES, height // _TILES, _TILES, width // _TILES).sum((1, 3, 5))
    sums = tiles.reshape(2, -1)
    total = sums.sum(1)
    if not total[1] > 0:
        return 1.0, np.inf
    left = (total[0] - sums[0]) / np.maximum(total[1] - sums[1], 1e-300)
    count = len(left)
    return float(total[0] / total[1]), float(np.sqrt((count - 1) / count * np.square(left - left.mean()).sum()))


@dataclass(frozen=True)
class Surface:
    """The correlation for every cyclic shift (dy, dx) of the masks; `at[0, 0]` for masks as they are."""

    at: Array

    @property
    def here(self) -> float:
        return float(self.at[0, 0])

    @property
    def noise(self) -> float:
        """The spread of the correlation over shifts, nearly all of which are wrong; robust."""
        return 1.4826 * float(np.median(np.abs(self.at - np.median(self.at)))) + 1e-12

    def best(self, reach: int | None = None) -> tuple[float, tuple[int, int]]:
        """The largest correlation and its shift, within `reach` pixels."""
        height, width = self.at.shape
        y, x = np.fft.fftfreq(height, 1 / height), np.fft.fftfreq(width, 1 / width)
        allowed = self.at
        if reach is not None:
            allowed = np.where((np.abs(y)[:, None] <= reach) & (np.abs(x)[None] <= reach), self.at, -np.inf)
        row, column = np.unravel_index(int(np.argmax(allowed)), self.at.shape)
        return float(self.at[row, column]), (int(y[row]), int(x[column]))


class Snapshots:
    """What snapshots (N, H, W) show of the masks' sum: transforms that every scan over masks shares.

    signed: the sum has both signs, so that the local mean of y does not tell the light, which is taken for even.
    """

    def __init__(self, y: Array, signed: bool = False) -> None:
        mean = local_mean(y)
        detail = y - mean
        light = np.ones_like(mean) if signed else mean
        self.wave = deviation if signed else ripple
        self.power = float((detail.astype(np.float64) ** 2).sum())
        self.weighted = np.fft.rfft2(detail * light)
        self.weights = np.fft.rfft2(light.astype(np.float64) ** 2).sum(0)

    def against(self, totals: Array) -> Surface:
        """Σm (H, W), or one for each snapshot."""
        shape = totals.shape[-2:]
        wave = self.wave(totals).reshape(-1, *shape)
        match = np.fft.irfft2((self.weighted * np.conj(np.fft.rfft2(wave))).sum(0), shape)
        weights = self.weights if len(wave) == 1 else self.weights / len(wave)
        energy = np.fft.irfft2((weights * np.conj(np.fft.rfft2(wave**2))).sum(0), shape)
        scale = np.sqrt(np.maximum(self.power * energy, 1e-30 * max(self.power, 1e-30)))
        return Surface((match / scale).astype(np.float32) if self.power > 0 else np.zeros(shape, np.float32))
