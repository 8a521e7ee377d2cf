"""A part of a scene as a scene of its own, and a sample of its parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from unsnap.errors import InputError
from unsnap.operators import Dispersed
from unsnap.scene import Scene
from unsnap.tiling.plan import MOSAIC, Tile

PIECE, PIECES = 88, 3
"""A sample of a large picture is 3 × 3 pieces of it, 88 × 88 pixels each."""

Window = Callable[[slice, slice], Scene]
"""window(rows, columns): that part of a scene, wherever the rest of it is"""


def cut(scene: Scene, tile: Tile) -> Scene:
    """What the tile is reconstructed from, without the truth."""
    return part(scene, tile.rows.window, tile.columns.window)


def part(scene: Scene, rows: slice, columns: slice) -> Scene:
    """A window of the video, and what the detector saw of it."""
    scene, phi = replace(scene, truth=None), scene.operator
    if phi.pixelwise:
        return _compact(scene.crop(rows, columns))
    if not isinstance(phi, Dispersed):
        raise InputError(f"a {scene.camera} mixes pixels in a way of its own, so that it cannot be cut into tiles")
    seen = (..., *landing(phi.spread, rows, columns))
    return leaving_out(
        replace(
            scene,
            measurement=scene.measurement[seen],
            masks=scene.masks[..., rows, columns],
            weights=None if scene.weights is None else scene.weights[seen],
        ),
        foreign(phi.video, phi.step, rows, columns),
    )


def landing(spread: tuple[int, int], rows: slice, columns: slice) -> tuple[slice, slice]:
    """Where on a detector the bands of a window land."""
    return slice(rows.start, rows.stop + spread[0]), slice(columns.start, columns.stop + spread[1])


def foreign(video: tuple[int, ...], step: tuple[int, int], rows: slice, columns: slice) -> Tensor:
    """Boolean, where the bands of a window land: does the pixel see something beyond the window, too?"""
    bands = torch.arange(video[0])[:, None]
    own, any_ = [], []
    for length, window, move in zip(video[1:], (rows, columns), step, strict=True):
        first = -min(0, (video[0] - 1) * move)
        at = torch.arange(window.start, window.stop + (video[0] - 1) * abs(move))
        source = at - first - bands * move  # the pixel of every band that lands there
        own.append((source >= window.start) & (source < window.stop))
        any_.append((source >= 0) & (source < length))
    inside, seen = (r[:, :, None] & c[:, None, :] for r, c in (own, any_))
    return (seen & ~inside).any(0)


def leaving_out(scene: Scene, pixels: Tensor) -> Scene:
    """Without some of the pixels of the detector."""
    return _compact(scene.weighted((~pixels).to(scene.measurement)) if bool(pixels.any()) else scene)


def _compact(scene: Scene) -> Scene:
    """With memory of its own, which kernels want in one piece."""
    weights = None if scene.weights is None else scene.weights.contiguous()
    return replace(scene, measurement=scene.measurement.contiguous(), masks=scene.masks.contiguous(), weights=weights)


def sample(scene: Scene, most: int | None = None) -> Scene:
    """A small scene that stands for a large one, of `most` pixels at most: pieces from all over it, side by side."""
    phi = scene.operator
    return sampled(partial(part, scene), phi.video, phi.spread or (0, 0), most)


def sampled(window: Window, video: tuple[int, ...], spread: tuple[int, int], most: int | None = None) -> Scene:
    """The same of a scene that is read by windows; a small one is itself its sample."""
    side = PIECE * PIECES if most is None else min(PIECE * PIECES, int(most**0.5))
    if max(video[1:]) <= PIECE * PIECES and (most is None or video[1] * video[2] <= most):
        side = max(video[1:])  # all of it, though it is no square
    down, across = (_pieces(n, side, mixes > 0) for n, mixes in zip(video[1:], spread, strict=True))
    lines = [_joined([window(rows, columns) for columns in across], -1) for rows in down]
    return _joined(lines, -2)


def _pieces(length: int, side: int, mixed: bool) -> list[slice]:
    """Along one axis: all of it, or pieces of it; one in the middle where pixels along it are mixed."""
    if length <= side:
        return [slice(0, length)]
    if mixed:
        return [slice((length - side) // 2, (length - side) // 2 + side)]
    piece = max(side // PIECES // MOSAIC, 1) * MOSAIC
    starts = [k * (length - piece) // (PIECES - 1) // MOSAIC * MOSAIC for k in range(PIECES)]
    return [slice(start, start + piece) for start in starts]


def _joined(scenes: list[Scene], axis: int) -> Scene:
    if len(scenes) == 1:
        return scenes[0]
    weights = None
    if any(scene.weights is not None for scene in scenes):
        known = [torch.ones_like(s.measurement) if s.weights is None else s.weights for s in scenes]
        most = max(w.ndim for w in known)
        full = [w if w.ndim == most else w.expand_as(s.measurement) for w, s in zip(known, scenes, strict=True)]
        weights = torch.cat(full, axis)
    y, masks = (torch.cat([getattr(s, name) for s in scenes], axis) for name in ("measurement", "masks"))
    return replace(scenes[0], measurement=y, masks=masks, weights=weights)
