"""Steps from a scene towards the motion of its masks: by correlation, with a still picture, with a video."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from unsnap.algorithms import gap
from unsnap.algorithms.schedules import constant
from unsnap.calibration.agreement import Snapshots, local_mean, ripple
from unsnap.calibration.fit import Correction, Evidence, gauss_newton
from unsnap.calibration.warp import REST, SOFTEST, Motion, Plates, Window, movements, slopes
from unsnap.operators import Snapshot
from unsnap.priors import TV

Array = NDArray[np.float32]
Flags = NDArray[np.bool_]
Way = tuple[int, int] | None
"""Pixels (down, right) from frame to frame, where masks are one that moves."""

# θ: down, right, turn, stretch; the variance of the blur; the offset; the variance of the masks' softness.
MOTION, VARIANCE, OFFSET, SOFTNESS, COUNT = slice(0, 4), 4, 5, 6, 7
_WIDER, _FURTHER, _LEAST_SHARE = 0.02, 0.1, 0.15
MOST_TURN, MOST_STRETCH, MOST_SHIFT = 1.5, 0.015, 8
_PRIOR = TV(temporal=0.2, isotropic=False, iterations=4)
_WEIGHT, _ITERATIONS = 0.1, 40  # those of gap-tv3d
FOLDS = 5
_EDGE = 3


@dataclass(frozen=True)
class Picture:
    """A part (h, w) of a snapshot, where it lies, which of its pixels count, and the masks that can be moved."""

    y: Array
    window: Window
    sound: Flags
    plates: Plates

    @property
    def total(self) -> Picture:
        """The same with the sum of the masks in their place."""
        return replace(self, plates=Plates(self.plates.pictures.sum(0, keepdims=True)))


@dataclass(frozen=True)
class State:
    motion: Motion = REST
    offset: float = 0.0

    def changed(self, change: NDArray[np.float64], reach: float) -> State:
        """After a step."""
        motion = self.motion.moved(np.clip(change[MOTION], -0.7, 0.7), reach)
        motion = motion.softer(float(np.clip(change[SOFTNESS], -0.1, 0.1)))
        motion = motion.blurrier(float(np.clip(change[VARIANCE], -0.5, 0.5)))
        return State(motion, self.offset + float(change[OFFSET]))


def flags(*, motion: bool = True, variance: bool = True, offset: bool = True, softness: bool = False) -> Flags:
    """Which parameters are free; the softness of masks shows only where they move."""
    free = np.zeros(COUNT, np.bool_)
    free[MOTION], free[VARIANCE], free[OFFSET], free[SOFTNESS] = motion, variance, offset, softness
    return free


def coarse(snapshots: Array, totals: Array) -> tuple[Motion, float, float]:
    """The motion with the best correlation on a grid of turns and stretches; the correlation and its noise.

    snapshots (N, H, W) and their Σm (H, W), or one for each.
    """
    height, width = totals.shape[-2:]
    seen, plates = Snapshots(snapshots), Plates(totals.reshape(-1, height, width))
    # Between neighbours on the grid the corners move by less than a pixel.
    step = 0.8 / (max(height, width) / 2)
    reach = min(MOST_SHIFT, min(height, width) // 8)
    best = (-math.inf, Motion(), 1.0)
    for turn in _grid(math.radians(MOST_TURN), step):
        for stretch in _grid(MOST_STRETCH, step):
            motion = Motion(rotation=math.degrees(turn), scale=1 + stretch)
            surface = seen.against(plates.moved(motion)[0])
            value, shift = surface.best(reach)
            if value > best[0]:
                best = (value, replace(motion, shift=(float(shift[0]), float(shift[1]))), surface.noise)
    return best[1], best[0], best[2]


def _grid(most: float, step: float) -> list[float]:
    count = math.ceil(most / step)
    return [k * most / count for k in range(-count, count + 1)]


def still(pictures: list[Picture], state: State, free: Flags, reach: float) -> Correction:
    """A step with one frame for all: y ≈ Σm · (local mean of y over that of Σm); pictures are `Picture.total`."""
    evidence = []
    for picture in pictures:
        total, known = picture.plates.moved(state.motion, picture.window)
        mean = local_mean(total[0])
        fine = mean > 1e-3 * max(float(mean.max()), 1e-30)
        light = local_mean(picture.y - np.float32(state.offset))
        x = np.where(fine, light / np.where(fine, mean, 1), 0).astype(np.float32)
        wider = [_wider(picture, total, state), np.zeros_like(total)]
        evidence.append(_evidence(picture, total, wider, x[None], state, reach, known & fine))
    return gauss_newton(evidence, free)


def predict(pictures: list[Picture], state: State, reach: float, *, seed: int, folds: int = 2) -> list[Evidence]:
    """What a video from the other pixels says about pixels held out, a fifth of them for each fold."""
    random = np.random.default_rng(seed)
    evidence = []
    for place, picture in enumerate(pictures):
        masks, known = picture.plates.moved(state.motion, picture.window)
        wider = [_wider(picture, masks, state), _softer(picture, masks, state)]
        fold = random.integers(0, FOLDS, picture.y.shape)
        for k in range(folds):
            x = video(picture, masks, state.offset, known & (fold != k))
            one = _evidence(picture, masks, wider, x, state, reach, known & (fold == k))
            evidence.append(replace(one, place=place))
    return evidence


def deepened(
    evidence: list[Evidence], pictures: list[Picture], state: State, reach: float, *, seed: int, folds: int, way: Way
) -> list[Array]:
    """∂prediction/∂θ (P, h, w) of the evidence, with what the video does about a wrong blur, offset and softness.

    A video found with a wrong offset makes up for most of it, more than its mean does, and blur and offset for one
    another: with the plain columns steps are too short, and so are their deviations. Of a shift of one mask along its
    `way` it makes up for a part, by running earlier or later.
    """
    found = [one.columns.copy() for one in evidence]
    # Of the pixels that a mask opens: of one mask, half of them may be closed.
    light = float(np.median([np.median(np.abs(picture.y[picture.y != 0])) for picture in pictures if picture.y.any()]))

    def responses(k: int, change: float) -> list[Array]:
        direction = np.zeros(COUNT)
        direction[k] = change
        others = predict(pictures, state.changed(direction, reach), reach, seed=seed, folds=folds)
        return [(one.misfit - other.misfit) / np.float32(change) for one, other in zip(evidence, others, strict=True)]

    for k, change in ((VARIANCE, _WIDER), (OFFSET, 0.02 * light), (SOFTNESS, softer_by(state))):
        for columns, response in zip(found, responses(k, change), strict=True):
            columns[k] = response
    for k in (axis for axis, step in enumerate(way or ()) if step):
        # One number for all pixels: of small pictures the response itself is too noisy.
        share = _seen(evidence, k, responses(k, _FURTHER)) / _seen(evidence, k, [one.columns[k] for one in evidence])
        for columns in found:
            columns[k] *= np.float32(np.clip(share, _LEAST_SHARE, 1.0))
    return found


def _seen(evidence: list[Evidence], k: int, columns: list[Array]) -> float:
    """What the probe of parameter k reads of these columns."""
    parts = [np.sum((one.probes[k] * column)[one.counted]) for one, column in zip(evidence, columns, strict=True)]
    return float(np.sum(parts)) or 1e-30


def shows_softness(evidence: list[Evidence]) -> bool:
    """Whether another softness would be noticed; masks moved by whole pixels are the same with any."""
    change = sum(float(np.square(one.columns[SOFTNESS][one.counted], dtype=np.float64).sum()) for one in evidence)
    rest = sum(float(np.square(one.misfit[one.counted], dtype=np.float64).sum()) for one in evidence)
    return change > 0.1 * rest  # a variance larger by 0.1 changes more than 3 % of the misfit


def video(picture: Picture, masks: Array, offset: float, seen: Flags) -> Array:
    """gap-tv3d's video from the pixels seen."""
    seen = seen & picture.sound
    phi = Snapshot(torch.from_numpy(masks * seen))
    light = torch.from_numpy((picture.y - np.float32(offset)) * seen)
    x: Array = gap(light, phi, _PRIOR, constant(_WEIGHT, _ITERATIONS), early=False).x.numpy()
    return x


def misfit(evidence: list[Evidence], offset: float) -> float:
    """‖y − prediction‖ / ‖y‖ of the pixels held out."""
    lost = sum(float((e.misfit[e.counted].astype(np.float64) ** 2).sum()) for e in evidence)
    seen = sum(float(((e.predicted + e.misfit + offset)[e.counted].astype(np.float64) ** 2).sum()) for e in evidence)
    return math.sqrt(lost / max(seen, 1e-300))


def _wider(picture: Picture, masks: Array, state: State) -> Array:
    """How masks change with the variance of their blur."""
    found: Array = picture.plates.moved(state.motion.blurrier(_WIDER), picture.window)[0] - masks
    return found / np.float32(_WIDER)


def _softer(picture: Picture, masks: Array, state: State) -> Array:
    """How masks change with the variance of their softness, as recorded."""
    cells = Plates(picture.plates.pictures)  # the cells of the present softness are kept in the other one
    change = softer_by(state)
    found: Array = cells.moved(state.motion.softer(change), picture.window)[0] - masks
    return found / np.float32(change)


def softer_by(state: State) -> float:
    """A small change of the softness that is possible."""
    return _WIDER if state.motion.softness_variance + _WIDER < SOFTEST**2 else -_WIDER


def _through(masks: Array, x: Array) -> Array:
    return np.asarray(Snapshot(torch.from_numpy(np.ascontiguousarray(masks))).A(torch.from_numpy(x)))


def _evidence(
    picture: Picture, masks: Array, wider: list[Array], x: Array, state: State, reach: float, counted: Flags
) -> Evidence:
    smooth, total = local_mean(x.mean(0)), masks.sum(0)
    predicted = _through(masks, x)
    down, right = (_through(slope, x) for slope in slopes(masks))
    moves = movements(down, right, picture.window, reach)
    # A video found with too low an offset is too bright by what is missing over the mean of Σm.
    offset = -ripple(total)
    blur, soft = (_through(change, x) for change in wider)
    columns = [*moves, blur, offset, soft]
    blur, soft = (change.sum(0) * smooth for change in wider)
    probes = [*moves, blur, offset, soft]
    return Evidence(
        picture.y - np.float32(state.offset) - predicted,
        predicted,
        np.stack(columns).astype(np.float32),
        np.stack(probes).astype(np.float32),
        counted & _inner(counted) & picture.sound,
    )


def _inner(picture: Flags) -> Flags:
    inner = np.zeros_like(picture)
    inner[_EDGE:-_EDGE, _EDGE:-_EDGE] = True
    return inner
