"""Find what is wrong with a camera from its own captures: `calibrate(scene) -> Camera`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unsnap.calibration.agreement import filled
from unsnap.calibration.align import (
    FOLDS,
    MOTION,
    OFFSET,
    VARIANCE,
    Picture,
    State,
    coarse,
    deepened,
    flags,
    misfit,
    predict,
    shows_softness,
    still,
    video,
)
from unsnap.calibration.bend import bend
from unsnap.calibration.camera import Camera
from unsnap.calibration.exposure import exposures, seen_enough
from unsnap.calibration.fit import Correction, Evidence, gauss_newton
from unsnap.calibration.warp import REST, Motion, Plates, Window, coded
from unsnap.errors import InputError
from unsnap.masks import shift_per_frame
from unsnap.scene import Scene

Array = NDArray[np.float32]
Told = Callable[[str, float], None]

SMALLEST = 32
_WHOLE, _PART, _PICTURES = 320, 192, 6
_STILL, _MOVING, _BETWEEN, _BENDING, _LAST = 8, 2, 3, 4, 3
# What is smaller than this makes no difference that a reconstruction could show, whatever its uncertainty.
LEAST_MOVE, LEAST_VARIANCE, LEAST_OFFSET = 0.05, 0.03, 0.02
# Of any place, in pixels: masks between pixels are not quite as we think (measured, benchmarks/calibration.py).
SYSTEMATIC = 0.004
_SURE = 3.0
# Of a distortion: one of many places, each of which could be so by chance.
_SURE_BENT, LEAST_BENT = 5.0, 0.1


def calibrate(
    scene: Scene, *, dark: Array | None = None, white: Array | None = None, told: Told | None = None
) -> Camera:
    """The camera behind a scene's snapshots, as far as they tell.

    dark (H, W): the sensor without light; white (H, W): a white, still scene through all masks; both in the scene's
    units. told(stage, share done) is called now and then. Without `white` the gain cannot be told from the scene's
    brightness, and stays 1.
    """
    _check(scene, dark, white)
    say = told or (lambda stage, share: None)
    # The zeros of pixels left out belong to the sensor: they must not move with the masks.
    y, phi = replace(scene, weights=None).operator.normalised(scene.measurement)
    power = float(phi.masks.abs().max() / scene.masks.to(phi.masks).abs().max())
    shots, masks = y.cpu().numpy().astype(np.float32), phi.masks.cpu().numpy().astype(np.float32)
    sets = masks[None] if masks.ndim == 3 else masks
    shots, sound = filled(shots, None if scene.weights is None else scene.weights.cpu().numpy())
    if dark is not None:
        shots = shots - np.float32(power) * dark
    if white is not None:
        lit = np.float32(power) * (white if dark is None else white - dark)
        shots, sets = np.concatenate([lit[None], shots]), np.concatenate([sets[:1], sets]) if len(sets) > 1 else sets
        sound = np.concatenate([sound[:1], sound])
    search = _Search(shots, sound, sets, say)
    state, step, before, after, sure = search.run()
    camera = _camera(scene, state, step, before, after, search.reach, power, sure=sure)
    camera = replace(camera, dark=None if dark is None else np.ascontiguousarray(dark, np.float32))
    camera = _with_exposure(camera, search, state, sure=sure)
    return camera if white is None else _with_gain(camera, lit - state.offset, sets[0])


def _check(scene: Scene, dark: Array | None, white: Array | None) -> None:
    if scene.camera != "snapshot":
        raise InputError(f"calibrate moves the masks of a snapshot camera, got a {scene.camera}")
    size = tuple(scene.masks.shape[-2:])
    if min(size) < SMALLEST:
        raise InputError(f"calibrate needs pictures of at least {SMALLEST} pixels a side, got {size[0]}×{size[1]}")
    for name, picture in (("dark", dark), ("white", white)):
        if picture is not None and picture.shape != size:
            raise InputError(f"the {name} picture must be {size[0]}×{size[1]} as the masks, got {picture.shape}")
    for name, numbers in (("masks", scene.masks), ("snapshots", scene.measurement)):
        if not bool(numbers.any()):
            raise InputError(f"the {name} are zero everywhere, so there is nothing to calibrate by; check the capture")


class _Search:
    """Coarse to fine; knows the pictures, and what was found on the way is passed from step to step."""

    def __init__(self, shots: Array, sound: NDArray[np.bool_], sets: Array, say: Told) -> None:
        self.shots, self.sets, self.say = shots, sets, say
        height, width = shots.shape[-2:]
        self.reach = max(height, width) / 2
        self.light = float(np.median(np.abs(shots)))
        plates = [Plates(one) for one in sets]
        self.pictures = [
            _picture(shots[n], sound[n], window, plates[n if len(plates) > 1 else 0])
            for n, window in _places(len(shots), height, width)
        ]
        self.totals = [picture.total for picture in self.pictures]
        self.way = shift_per_frame(torch.from_numpy(sets[0]))

    def run(self) -> tuple[State, Correction, float, float, bool]:
        """State, last step, misfit before and after, and whether the captures tell anything at all."""
        self.say("looking at the masks as given", 0.0)
        before = self._misfit(State())
        self.say("correlating", 0.1)
        start, sure = self._start()
        state = self._bent(self._moving(self._still(start) if sure else start))
        state, step = self._settled(state)
        after = self._misfit(state)
        if not sure:
            # Masks that explain more than masks that are certainly elsewhere are near where they belong.
            away = [self._misfit(State(Motion(shift=shift))) for shift in ((3.0, 2.0), (-2.0, 3.0), (2.0, -3.0))]
            sure = before < 0.95 * min(away)
        if state != State() and not after < before:
            state, after = State(), before
        return (state if sure else State()), step, before, (after if sure else before), sure

    def _start(self) -> tuple[State, bool]:
        height, width = self.shots.shape[-2:]
        middle = _middle(height, width)
        totals = self.sets.sum(1)
        motion, value, noise = coarse(self.shots[middle.cut], totals[middle.cut])
        sure = value > max(8 * noise, 0.05)
        return (State(motion), True) if sure else (State(), False)

    def _still(self, state: State) -> State:
        totals = self.totals
        middle = [p for p in totals if p.window == totals[0].window]
        for k in range(_STILL):
            step = still(middle if k < _STILL - 3 else totals, state, flags(), self.reach)
            state = state.changed(step.change, self.reach)
        return state

    def _moving(self, state: State) -> State:
        for k in range(_MOVING + _BETWEEN):
            self.say("reconstructing", 0.15 + 0.06 * k)
            evidence = self._predicted(state, k)
            state = self._taken(evidence, state, flags(softness=k >= _MOVING and shows_softness(evidence)))
        return state

    def _bent(self, state: State) -> State:
        """With a smooth field of displacements, where a similarity certainly leaves one."""
        for k in range(1 + _BENDING):
            self.say("looking for distortion", 0.4 + 0.02 * k)
            bending = bend(self._predicted(state, 5, FOLDS if k == 0 else 2), self.pictures, self.reach)
            if k == 0 and not bending.certain(_SURE_BENT, LEAST_BENT):
                return state
            state = replace(state, motion=bending.applied(state.motion, self.reach))
        return state

    def _settled(self, state: State) -> tuple[State, Correction]:
        """With all pixels held out in turn, and without what is not certain."""
        seed, folds = 6, FOLDS
        evidence = self._predicted(state, seed, folds)
        soft = shows_softness(evidence)
        self.say("settling", 0.45)
        columns = deepened(evidence, self.pictures, state, self.reach, seed=seed, folds=folds, way=self.way)
        for k in range(_LAST):
            if k:
                self.say("settling", 0.75 + 0.08 * k)
                evidence = self._predicted(state, seed, folds)
            evidence = [replace(one, columns=deep) for one, deep in zip(evidence, columns, strict=True)]
            taken = self._taken(evidence, state, self._free(state, soft))
            step = gauss_newton(evidence, flags(softness=soft and not state.motion.still))
            state = self._kept(taken, step) if k < _LAST - 1 else taken
        return state, step

    def _taken(self, evidence: list[Evidence], state: State, free: NDArray[np.bool_]) -> State:
        """After a step; a blur that would become negative becomes 0, and the others know of it."""
        if not bool(free.any()):
            return state
        step = gauss_newton(evidence, free)
        if free[VARIANCE] and state.motion.variance + step.change[VARIANCE] < 0:
            known = np.zeros(len(free))
            known[VARIANCE], free = -state.motion.variance, free & ~flags(motion=False, offset=False)
            step = gauss_newton(evidence, free, known) if free.any() else replace(step, change=known)
        taken = state.changed(step.change, self.reach)
        # No light is negative: more than the median of all pixels is no offset.
        return replace(taken, offset=float(np.clip(taken.offset, -self.light, self.light)))

    def _kept(self, state: State, step: Correction) -> State:
        motion, deviation = state.motion, step.deviation
        move = np.array([*motion.shift, math.radians(motion.rotation) * self.reach, (motion.scale - 1) * self.reach])
        spread = np.maximum(_SURE * deviation[MOTION], LEAST_MOVE)
        if not any(motion.distortion) and not bool((np.abs(move) > spread).any()):
            motion = replace(REST, blur=motion.blur)
        if motion.still and motion.variance < max(_SURE * deviation[VARIANCE], LEAST_VARIANCE):
            motion = REST
        # Masks that are to be moved anyway need no proof of an offset.
        least = deviation[OFFSET] if motion != REST else max(_SURE * deviation[OFFSET], LEAST_OFFSET * self.light)
        return State(motion, 0.0 if abs(state.offset) < least else state.offset)

    def _free(self, state: State, soft: bool) -> NDArray[np.bool_]:
        """All that is not nothing."""
        moves = not state.motion.still
        blurred = moves or state.motion.blur != 0
        return flags(motion=moves, variance=blurred, offset=state.offset != 0, softness=moves and soft)

    def _misfit(self, state: State) -> float:
        return misfit(self._predicted(state, 0), state.offset)

    def _predicted(self, state: State, seed: int, folds: int = 2) -> list[Evidence]:
        return predict(self.pictures, state, self.reach, seed=seed, folds=folds)


def _middle(height: int, width: int) -> Window:
    rows, columns = min(height, 256), min(width, 256)
    return Window((height, width), (height - rows) // 2, (width - columns) // 2, rows, columns)


def _places(shots: int, height: int, width: int) -> list[tuple[int, Window]]:
    """Snapshot and window: all of small pictures, else the middle and the corners; the middle first."""
    if max(height, width) <= _WHOLE:
        return [(n, Window.whole(height, width)) for n in range(min(shots, _PICTURES))]
    rows, columns = min(_PART, height), min(_PART, width)
    down, right = height - rows, width - columns
    corners = [(down // 2, right // 2), (0, 0), (down, right), (0, right), (down, 0)]
    windows = [Window((height, width), top, left, rows, columns) for top, left in dict.fromkeys(corners)]
    return [(n, window) for n in range(shots) for window in windows][: max(_PICTURES, len(windows))]


def _picture(shot: Array, sound: NDArray[np.bool_], window: Window, plates: Plates) -> Picture:
    full = shot == shot[sound].max(initial=0)
    cut_off = full.mean() > 1e-3  # a pile-up at the very top is saturation, and no light
    counted = sound & ~full if cut_off else sound
    return Picture(np.ascontiguousarray(shot[window.cut]), window, np.ascontiguousarray(counted[window.cut]), plates)


def _camera(
    scene: Scene, state: State, step: Correction, before: float, after: float, reach: float, power: float, *, sure: bool
) -> Camera:
    motion, deviation = state.motion, step.deviation
    deviation[MOTION] = np.hypot(deviation[MOTION], SYSTEMATIC)
    blur, spread = motion.blur, deviation[VARIANCE]
    uncertainty: dict[str, Any] = dict.fromkeys(("shift", "rotation", "scale", "blur", "gain", "offset", "exposure"))
    if sure:
        uncertainty |= {
            "shift": [float(value) for value in deviation[:2]],
            "rotation": math.degrees(float(deviation[2]) / reach),
            "scale": float(deviation[3]) / reach,
            "blur": float(spread / (2 * abs(blur))) if abs(blur) > math.sqrt(spread) else math.sqrt(float(spread)),
            "offset": float(deviation[OFFSET]) / power,
        }
    height, width = scene.masks.shape[-2:]
    return Camera(
        motion.shift,
        motion.rotation,
        motion.scale,
        blur,
        offset=state.offset / power,
        uncertainty=uncertainty,
        changed=state != State(),
        objective_before=before,
        objective_after=after,
        softness=motion.softness,
        distortion=motion.distortion,
        exposure=(1.0,) * scene.frames,
        size=(int(height), int(width)),
        unit=float(scene.meta.get("measurement_factor") or 1.0),
    )


def _with_exposure(camera: Camera, search: _Search, state: State, *, sure: bool) -> Camera:
    if not sure or len(camera.exposure) < 2 or not seen_enough(float((search.sets != 0).mean())):
        return camera
    videos = []
    for picture in search.pictures:
        masks, known = coded(picture.plates, state.motion)
        cut = picture.window.cut
        videos.append(video(picture, np.ascontiguousarray(masks[cut]), state.offset, known[cut]))
    found = exposures(np.stack(videos))
    if found is None:
        return camera
    exposure = found.values if found.unequal else camera.exposure
    uncertainty = {**camera.uncertainty, "exposure": list(found.deviation)}
    return replace(camera, exposure=exposure, changed=camera.changed or found.unequal, uncertainty=uncertainty)


def _with_gain(camera: Camera, white: Array, masks: Array) -> Camera:
    moved, known = coded(Plates(masks), camera.motion)
    total = np.tensordot(np.asarray(camera.exposure, np.float32), moved, 1)[known].astype(np.float64)
    light = white[known].astype(np.float64)
    gain = float((light * total).sum() / max(float((total**2).sum()), 1e-300))
    if not gain > 0:
        raise InputError("the white picture is not brighter than the dark one; check which file is which")
    error = float((light - gain * total).std() / math.sqrt(total.size) / max(float(total.mean()), 1e-300))
    changed = camera.changed or abs(gain - 1) > 0.01
    return replace(camera, gain=gain, changed=changed, uncertainty={**camera.uncertainty, "gain": error})
