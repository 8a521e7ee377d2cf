"""Which tiles: as large as memory allows, alike in size, with as much around each as its method looks at."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

from unsnap.errors import InputError
from unsnap.io.budget import TooLargeError, in_words
from unsnap.methods import Method
from unsnap.operators import CodedOperator

FADE = 8
"""Pixels on either side of the line between two tiles in which one becomes the other."""
MOSAIC = 4
"""Tiles begin at multiples of it, so that a colour filter (of 2 × 2, or quad of 4 × 4) looks alike to all."""
SMALLEST = 32
"""Pixels of the core of a tile: the tiles around it would overlap one another if it were less."""


@dataclass(frozen=True)
class Span:
    """A tile along one axis: its own pixels, those that it is blended in, and those that it is reconstructed from."""

    start: int
    stop: int
    fade_start: int
    fade_stop: int
    low: int
    high: int

    @property
    def window(self) -> slice:
        return slice(self.low, self.high)

    @property
    def kept(self) -> slice:
        """Of the window: the pixels that are blended."""
        return slice(self.fade_start - self.low, self.fade_stop - self.low)


@dataclass(frozen=True)
class Tile:
    index: int
    rows: Span
    columns: Span


@dataclass(frozen=True)
class Plan:
    """Tiles of a picture of height × width, row by row."""

    height: int
    width: int
    rows: tuple[Span, ...]
    columns: tuple[Span, ...]

    @property
    def tiles(self) -> list[Tile]:
        pairs = [(rows, columns) for rows in self.rows for columns in self.columns]
        return [Tile(index, *pair) for index, pair in enumerate(pairs)]

    def __getitem__(self, place: tuple[int, int]) -> Tile:
        row, column = place
        return Tile(row * len(self.columns) + column, self.rows[row], self.columns[column])

    @property
    def largest(self) -> int:
        """Pixels of the largest window."""
        return max(s.high - s.low for s in self.rows) * max(s.high - s.low for s in self.columns)


def reach(method: Method, phi: CodedOperator | None = None) -> tuple[int, int]:
    """Pixels (down, right) around a tile that have a say in it: the method's, and what the camera mixes."""
    spread = (0, 0) if phi is None else phi.spread
    if spread is None:
        raise InputError(
            f"a {type(phi).__name__} mixes pixels in a way of its own, so that it cannot be cut into tiles"
        )
    return method.reach + spread[0], method.reach + spread[1]


def plan(
    video: tuple[int, ...],
    method: Method,
    memory: int | None = None,
    *,
    around: tuple[int, int] | None = None,
    side: int | None = None,
    snapshots: int = 1,
) -> Plan:
    """Tiles for videos (T, H, W): so few that each is reconstructed in `memory` bytes, or of `side` pixels.

    around: `reach(method, phi)` of a camera that mixes pixels; snapshots: reconstructed at a time.

    >>> from unsnap.methods import get
    >>> plan((8, 512, 512), get("gap-tv3d"), side=256).rows[1].window
    slice(232, 512, None)
    """
    frames, height, width = video
    step = math.lcm(method.grid, MOSAIC)
    down, right = (_round(FADE + r, step) for r in (around or reach(method)))
    if side is not None:
        if side < SMALLEST:
            raise InputError(f"--tile must be at least {SMALLEST} pixels, got {side}")
        return Plan(height, width, _spans(height, side, step, down), _spans(width, side, step, right))
    each = method.footprint * frames * snapshots
    least = Plan(height, width, _spans(height, SMALLEST, step, down), _spans(width, SMALLEST, step, right))
    counts = [1, 1]
    while True:
        found = Plan(height, width, _cut(height, counts[0], step, down), _cut(width, counts[1], step, right))
        if memory is None or each * found.largest <= memory:
            return found
        if each * least.largest > memory:
            raise TooLargeError(
                f"{in_words(memory)} of memory is too little for one tile of {method.name} with {frames} frames, which "
                f"takes {in_words(each * least.largest)}; allow more with --memory, or use gap-tv3d or fewer frames"
            )
        tall, wide = (max(s.high - s.low for s in spans) for spans in (found.rows, found.columns))
        down_next = counts[1] >= len(least.columns) or (tall >= wide and counts[0] < len(least.rows))
        counts[0 if down_next else 1] += 1


def _spans(length: int, side: int, step: int, around: int) -> tuple[Span, ...]:
    return _cut(length, max(1, math.ceil(length / side)), step, around)


def _cut(length: int, count: int, step: int, around: int) -> tuple[Span, ...]:
    """`count` parts, or fewer, nearly equal, that begin at multiples of `step`."""
    part = max(_round(math.ceil(length / count), step), _round(SMALLEST, step))
    starts = list(range(0, length, part))
    if len(starts) > 1 and length - starts[-1] < SMALLEST:
        starts.pop()
    edges = [*starts, length]
    return tuple(
        Span(
            start,
            stop,
            max(start - FADE, 0),
            min(stop + FADE, length),
            max(start - around, 0),
            min(stop + around, length),
        )
        for start, stop in pairwise(edges)
    )


def _round(number: int, step: int) -> int:
    return -(-number // step) * step
