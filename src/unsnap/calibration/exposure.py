"""Frames that were exposed longer than others, from a reconstruction."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LEAST = 0.1
"""Less than this is left to the scene."""
_SIDE, _FEWEST = 16, 8


@dataclass(frozen=True)
class Exposures:
    """Relative exposure of every frame, mean 1, its standard deviation, and whether they certainly differ."""

    values: tuple[float, ...]
    deviation: tuple[float, ...]
    unequal: bool


def seen_enough(open_share: float) -> bool:
    """Whether several pixels of a block see each frame, where masks are open in this share of all."""
    return open_share * _SIDE**2 >= _FEWEST


def exposures(videos: NDArray[np.float32]) -> Exposures | None:
    """From videos (N, T, H, W): the median, over blocks that are not dark, of a frame's light over that of all frames.

    More exposure lifts all blocks alike; something bright that moves lifts some and lowers others. Light that truly
    flickers over the whole scene cannot be told from exposure. None if there are too few blocks to say anything.
    """
    count, frames, height, width = videos.shape
    rows, columns = height // _SIDE, width // _SIDE
    cut = videos[..., : rows * _SIDE, : columns * _SIDE].reshape(count, frames, rows, _SIDE, columns, _SIDE)
    blocks = np.moveaxis(cut.mean((3, 5)), 1, 0).reshape(frames, -1).astype(np.float64)
    light = blocks.mean(0)
    bright = light > max(0.25 * float(np.quantile(light, 0.9)), 1e-12) if light.size else np.zeros(0, np.bool_)
    if int(bright.sum()) < _FEWEST:
        return None
    ratio = blocks[:, bright] / light[bright]
    found = np.maximum(np.median(ratio, 1), 0.05)
    found = found / found.mean()
    low, high = np.quantile(ratio, (0.15, 0.85), axis=1)
    deviation = 1.25 * (high - low) / 2 / math.sqrt(ratio.shape[1])
    apart = (low > 1 + LEAST / 2) | (high < 1 - LEAST / 2)
    unequal = bool((apart & (np.abs(found - 1) > LEAST)).any())
    return Exposures(tuple(found.tolist()), tuple(deviation.tolist()), unequal)
