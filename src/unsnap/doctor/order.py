"""What only a quick reconstruction tells: whether frames are in order, and equally exposed.

A mask set whose frames are in another order gives the same frames in that order: every snapshot is explained as well,
but the video jumps. A set that runs backwards gives the video backwards, which is as smooth: only several snapshots in
a row, the end of one being near the beginning of the next, tell it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from unsnap.algorithms import gap
from unsnap.algorithms.schedules import constant
from unsnap.calibration.exposure import exposures, seen_enough
from unsnap.doctor.mismatch import Finding
from unsnap.masks import shift_per_frame
from unsnap.priors import TV
from unsnap.scene import Scene

Array = NDArray[np.float64]

_SIDE, _SHOTS, _MOST_FRAMES, _BLOCK, _SMALLEST = 160, 4, 64, 16, 48
_SURE, _SMOOTHER = 6.0, 0.85


def unfolded(scene: Scene) -> list[Finding]:
    """Order of frames, direction of time and exposures, from the middle of the first snapshots."""
    if scene.camera != "snapshot" or scene.frames < 2 or min(scene.masks.shape[-2:]) < _SMALLEST:
        return []
    x = _videos(scene)
    colour = bool(scene.meta.get("colour"))
    order = list(_order(x))
    enough = seen_enough(float((scene.masks != 0).float().mean()))
    moves = shift_per_frame(scene.masks.reshape(-1, *scene.masks.shape[-3:])[0]) is not None
    exposure = list(_exposure(x, enough=enough, moves=moves))
    if any(finding.level == "warning" for finding in order):
        return [*exposure, *order]
    return [*exposure, *order, *_direction(x, consecutive=not colour and len(x) > 1)]


def _videos(scene: Scene) -> NDArray[np.float32]:
    """(N, T, h, w) with nothing that ties frames to their neighbours."""
    height, width = scene.masks.shape[-2:]
    side = min(_SIDE, height, width)
    part = scene.pick(slice(_SHOTS)).window(side, (height - side) // 2, (width - side) // 2)
    y, phi = part.operator.normalised(part.measurement)
    x: NDArray[np.float32] = gap(y, phi, TV(iterations=4), constant(0.15, 40), early=False).x.cpu().numpy()
    return x


def _exposure(x: NDArray[np.float32], *, enough: bool, moves: bool) -> Iterator[Finding]:
    """moves: the masks are one mask on its way; the ends of the video show it if it lies elsewhere."""
    found = exposures(x) if enough else None
    if found is None:
        why = "nearly all is dark" if enough else "few pixels see each of them"
        yield Finding("note", "exposure", f"cannot tell whether frames are equally exposed: {why}")
    elif found.unequal:
        frame = int(np.argmax(np.abs(np.log(found.values))))
        text = f"frame {frame} is {found.values[frame]:.2f} times as bright as the mean frame, nearly everywhere (all: "
        text += f"{min(found.values):.2f} to {max(found.values):.2f})"
        text += "; a mask that moves and lies part of a pixel further along its way looks the same" if moves else ""
        yield Finding("warning", "exposure", text, "run `unsnap calibrate`, if the light did not flicker")
    else:
        low, high = min(found.values), max(found.values)
        text = f"no frame is brighter or darker nearly everywhere: {low:.2f} to {high:.2f} of their mean"
        yield Finding("ok", "exposure", text)


def _order(x: NDArray[np.float32]) -> Iterator[Finding]:
    frames = x.shape[1]
    if not 3 <= frames <= _MOST_FRAMES:
        yield Finding("note", "frame order", f"cannot tell the order of {frames} frames")
        return
    apart = _distances(x, x)
    given = list(range(frames))
    better = _shortest(apart.mean(0))
    gain = _length(apart, given) - _length(apart, better)
    sure = float(gain.mean()) > _SURE * float(gain.std()) / np.sqrt(len(gain))
    if (
        better not in (given, given[::-1])
        and sure
        and _length(apart, better).mean() < _SMOOTHER * _length(apart, given).mean()
    ):
        text = f"the video would jump less with its frames in the order {', '.join(map(str, better))}"
        yield Finding("warning", "frame order", text, "give the masks in the order of time with --masks FILE")
    elif _still(apart):
        yield Finding("note", "frame order", "cannot tell the order of the frames: hardly anything moves")
    else:
        yield Finding("ok", "frame order", "no other order of the frames makes a clearly smoother video")


def _direction(x: NDArray[np.float32], *, consecutive: bool) -> Iterator[Finding]:
    reason = "a video that runs backwards explains one snapshot as well"
    if consecutive:
        onward = _distances(x[:-1, -1:], x[1:, :1])[:, 0, 0]
        back = _distances(x[:-1, :1], x[1:, -1:])[:, 0, 0]
        gain = (onward - back).mean() / max(float((onward - back).std()) / np.sqrt(len(onward)), 1e-30)
        if gain > _SURE and back.mean() < _SMOOTHER * onward.mean():
            text = "each snapshot's first frame is near the last of the next one: the masks run backwards in time"
            remedy = "give the masks in the order of time with --masks FILE, unless the snapshots are in reverse"
            yield Finding("warning", "time", text, remedy)
            return
        if -gain > _SURE and onward.mean() < _SMOOTHER * back.mean():
            yield Finding("ok", "time", "each snapshot begins where the one before ended: time runs forwards")
            return
        reason = "neither end of a snapshot is clearly nearer to the next one"
    yield Finding("note", "time", f"cannot tell whether time runs backwards: {reason}")


def _distances(a: NDArray[np.float32], b: NDArray[np.float32]) -> Array:
    """(blocks of all videos, S, T): mean |a_s − b_t| of videos (N, S, H, W) and (N, T, H, W), over 2 × 2 means."""
    a, b = _halved(a), _halved(b)
    side = _BLOCK // 2
    rows, columns = a.shape[-2] // side, a.shape[-1] // side
    found = np.empty((len(a) * rows * columns, a.shape[1], b.shape[1]))
    for s in range(a.shape[1]):
        gap_to = np.abs(b - a[:, s : s + 1])[..., : rows * side, : columns * side]
        blocks = gap_to.reshape(len(a), b.shape[1], rows, side, columns, side).mean((3, 5))
        found[:, s] = np.moveaxis(blocks, 1, -1).reshape(-1, b.shape[1])
    return found


def _halved(x: NDArray[np.float32]) -> NDArray[np.float32]:
    height, width = (side // 2 * 2 for side in x.shape[-2:])
    found: NDArray[np.float32] = (
        x[..., :height, :width].reshape(*x.shape[:2], height // 2, 2, width // 2, 2).mean((3, 5))
    )
    return found


def _length(apart: Array, order: list[int]) -> Array:
    found: Array = apart[:, order[:-1], order[1:]].sum(-1)
    return found


def _still(apart: Array) -> bool:
    """Far frames are as near as neighbours."""
    mean = apart.mean(0)
    frames = len(mean)
    near = np.mean([mean[t, t + 1] for t in range(frames - 1)])
    return bool(mean[0, frames - 1] < 1.1 * near)


def _shortest(apart: Array) -> list[int]:
    """A short path through all frames: nearest neighbours from each, then pieces turned round while it helps."""
    frames = len(apart)
    paths = []
    for first in range(frames):
        path, left = [first], set(range(frames)) - {first}
        while left:
            path.append(min(left, key=lambda t: apart[path[-1], t]))
            left.remove(path[-1])
        paths.append(_untangled(path, apart))
    best = min(paths, key=lambda path: sum(apart[a, b] for a, b in pairwise(path)))
    return best if best[0] <= best[-1] else best[::-1]


def _untangled(path: list[int], apart: Array) -> list[int]:
    def length(path: list[int]) -> float:
        return float(apart[path[:-1], path[1:]].sum())

    improved = len(path) <= 24
    while improved:
        improved = False
        for i in range(len(path) - 1):
            for j in range(i + 2, len(path) + 1):
                turned = path[:i] + path[i:j][::-1] + path[j:]
                if length(turned) < length(path) - 1e-12:
                    path, improved = turned, True
    return path
