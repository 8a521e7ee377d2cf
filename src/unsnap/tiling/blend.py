"""Tiles into one picture: across the line between two, one fades into the other.

Where two tiles agree, the result is theirs to the last bit: a + r·(b − a) is a, whatever r is, if b is a.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from unsnap.tiling.plan import FADE, Plan, Span, Tile

Array = NDArray[Any]


def kept(x: Tensor, tile: Tile) -> Array:
    """Of the videos (..., h, w) of a tile's window: what is blended with its neighbours, as float32."""
    part: Array = x[..., tile.rows.kept, tile.columns.kept].detach().cpu().float().contiguous().numpy()
    return part


def ramp() -> Array:
    """How much the second of two tiles counts, pixel by pixel across the line between them: half a cosine."""
    at = (np.arange(2 * FADE) + 0.5) / (2 * FADE)
    return (0.5 - 0.5 * np.cos(math.pi * at)).astype(np.float32)


def weights(spans: tuple[Span, ...], length: int) -> Array:
    """(tiles, length): how much every tile counts at every pixel along one axis; their sum is 1 everywhere."""
    found = np.zeros((len(spans), length))
    for k, span in enumerate(spans):
        found[k, span.fade_start : span.fade_stop] = 1
        if k:
            found[k, span.fade_start : span.start + FADE] = ramp()
        if k + 1 < len(spans):
            found[k, span.stop - FADE : span.fade_stop] = 1 - ramp().astype(np.float64)
    return found


def blended(plan: Plan, frames: int, load: Callable[[Tile, int], Array]) -> Iterator[tuple[int, slice, Array]]:
    """(frame, rows, picture (rows, width)) from the top down; load(tile, frame): as `kept` gave it.

    Tiles are asked for row by row of tiles, those of a row for every frame; a row is done with when the next begins.
    """
    before: list[Array] = [np.empty((0, plan.width), np.float32)] * frames
    for row, span in enumerate(plan.rows):
        tiles = [plan[row, column] for column in range(len(plan.columns))]
        last = row + 1 == len(plan.rows)
        stop = span.fade_stop if last else span.stop - FADE
        for frame in range(frames):
            strip = _side_by_side(plan, [load(tile, frame) for tile in tiles])
            if row:
                strip[: 2 * FADE] = _faded(before[frame], strip[: 2 * FADE], ramp()[:, None])
            yield frame, slice(span.fade_start, stop), strip[: stop - span.fade_start]
            before[frame] = strip[stop - span.fade_start :].copy()


def _side_by_side(plan: Plan, parts: list[Array]) -> Array:
    """(rows, width) of one row of tiles."""
    strip = np.empty((parts[0].shape[0], plan.width), np.float32)
    for column, (span, part) in enumerate(zip(plan.columns, parts, strict=True)):
        own = np.array(part, np.float32)
        if column:
            over = slice(span.fade_start, span.fade_start + 2 * FADE)
            own[:, : 2 * FADE] = _faded(strip[:, over], own[:, : 2 * FADE], ramp())
        strip[:, span.fade_start : span.fade_stop] = own
    return strip


def _faded(first: Array, second: Array, share: Array) -> Array:
    mixed: Array = first + share * (second - first)
    return mixed
