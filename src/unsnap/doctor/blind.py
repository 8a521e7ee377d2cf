"""Do the masks belong to this capture? Told without the true video, in a few Fourier transforms.

See `unsnap.calibration.agreement` for the correlation that all of this rests on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unsnap.calibration.agreement import Snapshots, Surface, contrast, deviation, filled, ripple
from unsnap.doctor.mismatch import Finding
from unsnap.scene import Scene

Array = NDArray[np.floating[Any]]

ALIGNMENT = "alignment"
"""The subject of the one finding that is certain and yet may be overruled."""
_SIDE, _SHOTS, _SMALLEST = 512, 8, 16
# A sum of masks that varies by less than this, relative to itself or, if signed, to √Σm², shows nothing of itself.
_LEAST_RIPPLE = 0.01
_NEAR = 8
_LEAST_LOSS = 0.08
"""Of contrast: real captures have lost 3 %."""
_AROUND, _FEWEST, _MOST = 3, 20, 1000
"""Of a pixel that may be dead: how far its surroundings reach, how many of them must be seen; how many are judged."""
_EVEN = 2.2
"""Standard deviations of its surroundings by which their light is above nothing."""
_CHANCE = 8.0
"""Standard deviations above what wrong shifts give: with a quarter of a million of them, 5 occur by chance."""


def blind(scene: Scene) -> list[Finding]:
    """Alignment, symmetries, offset, hot and dead pixels of a snapshot camera; nothing for other cameras."""
    if scene.camera != "snapshot" or min(scene.masks.shape[-2:]) < _SMALLEST or not bool(scene.measurement.any()):
        return []
    y, sound, totals, energy, corner = _middle(scene)
    return [*_alignment(y, totals, energy, sound), *_pixels(y, totals, energy, sound, corner)]


def _middle(scene: Scene) -> tuple[Array, NDArray[np.bool_], Array, Array, tuple[int, int]]:
    """Of the middle of the pictures: snapshots (N, h, w) and which of their pixels count, Σm and Σm², (h, w) or one for
    each, and where the middle begins. Pixels left out are filled: their zeros would agree with zeros of weighted masks.
    """
    height, width = scene.masks.shape[-2:]
    rows, columns = min(height, _SIDE), min(width, _SIDE)
    top, left = (height - rows) // 2, (width - columns) // 2
    cut = (..., slice(top, top + rows), slice(left, left + columns))
    masks = scene.masks[cut]
    masks = masks[:_SHOTS] if masks.ndim == 4 else masks
    arrays = (scene.measurement[:_SHOTS][cut], masks.sum(-3), masks.square().sum(-3))
    y, totals, energy = (np.ascontiguousarray(a.cpu().numpy(), np.float32) for a in arrays)
    weights = scene.weights if scene.weights is None or scene.weights.ndim == 2 else scene.weights[:_SHOTS]
    y, sound = filled(y, None if weights is None else weights[cut].cpu().numpy())
    return y, sound, totals, energy, (top, left)


def _alignment(y: Array, totals: Array, energy: Array, sound: NDArray[np.bool_]) -> Iterator[Finding]:
    signed = float(totals.min()) < 0
    wave = deviation(totals) / np.sqrt(energy.mean()) if signed else ripple(totals)
    if float(np.sqrt(np.mean(wave**2))) < _LEAST_RIPPLE:
        text = "cannot tell whether the masks belong to the snapshot: "
        yield Finding("note", ALIGNMENT, f"{text}Σm is the same everywhere, so that it leaves no trace there")
        return
    seen = Snapshots(y, signed)
    here = seen.against(totals)
    best, shift = here.best()
    sure = _CHANCE * here.noise
    if here.here > max(sure, 0.05) and (here.here >= 0.93 * best or best - here.here < 4 * here.noise):
        text = f"the snapshot follows the sum of its masks: correlation {here.here:.2f}, {here.noise:.3f} by chance"
        yield Finding("ok", ALIGNMENT, text)
        yield from () if signed else _contrast(y, totals, sound)
        return
    name, remedy, value, noise, place = max(_elsewhere(seen, totals, best, shift, here), key=lambda found: found[2])
    if value > max(_CHANCE * noise, 0.15) and value > 2 * max(here.here, 0.0) + 0.1:
        text = f"{name}{place}: the snapshot follows the sum of its masks then (correlation {value:.2f}), "
        yield Finding("fatal", ALIGNMENT, f"{text}and hardly as they are ({here.here:.2f})", remedy)
    elif best > max(sure, 0.1) and max(map(abs, shift)) <= _NEAR:
        text = f"the masks fit better moved by {shift} pixels (correlation {best:.2f}, as they are {here.here:.2f})"
        yield Finding("warning", ALIGNMENT, text, "run `unsnap calibrate` on the capture")
    elif here.here > sure:
        yield Finding("ok", ALIGNMENT, f"the snapshot follows the sum of its masks weakly: {here.here:.2f}")
    else:
        text = f"cannot see the masks in the snapshot (correlation {here.here:.2f}, {here.noise:.3f} by chance): "
        text += "much noise, a scene that changes in every frame, or not the masks of this capture"
        yield Finding("note", ALIGNMENT, text, "check that capture and masks belong together")


def _contrast(y: Array, totals: Array, sound: NDArray[np.bool_]) -> Iterator[Finding]:
    """Of masks that are at least near to where they belong."""
    found, deviation = contrast(y, totals, sound)
    if 1 - found > max(5 * deviation, _LEAST_LOSS):
        text = f"the snapshot varies with the sum of its masks {found:.2f} times as much as it should: about "
        text += f"{1 - found:.0%} of its light came through no mask (an offset), or the masks are blurred or moved"
        remedy = "give a dark frame with --dark, or run `unsnap calibrate`, which tells these apart"
        yield Finding("warning", "contrast", text, remedy)


Found = tuple[str, str, float, float, str]


def _elsewhere(seen: Snapshots, totals: Array, best: float, shift: tuple[int, int], here: Surface) -> Iterator[Found]:
    """What the masks could have suffered: name, remedy, correlation, its noise, and where."""
    near = max(map(abs, shift)) <= _NEAR
    fix = "run `unsnap calibrate`, and give what it writes with --camera" if near else _ORDER.format("moved")
    if shift != (0, 0):
        yield "the masks are moved", fix, best, here.noise, f" by {_places(*shift)}"
    square = totals.shape[-1] == totals.shape[-2]
    for name, turn, remedy in _SYMMETRIES:
        if not square and ("transposed" in name or "quarter" in name):
            continue
        surface = seen.against(np.ascontiguousarray(turn(totals)))
        value, place = surface.best()
        moved = "" if place == (0, 0) else f" and moved by {_places(*place)}"
        yield f"the masks are {name}", remedy, value, surface.noise, moved


_ORDER = "give the masks {} back with --masks FILE"
_SYMMETRIES: tuple[tuple[str, Callable[[Array], Array], str], ...] = (
    ("upside down", lambda m: m[..., ::-1, :], _ORDER.format("turned")),
    ("mirrored left to right", lambda m: m[..., ::-1], _ORDER.format("mirrored")),
    ("turned by 180°", lambda m: m[..., ::-1, ::-1], _ORDER.format("turned")),
    ("transposed", lambda m: np.swapaxes(m, -1, -2), "give --transpose-masks"),
    ("transposed and turned by 180°", lambda m: np.swapaxes(m, -1, -2)[..., ::-1, ::-1], _ORDER.format("turned")),
    ("turned by a quarter to the left", lambda m: np.rot90(m, -1, (-2, -1)), _ORDER.format("turned")),
    ("turned by a quarter to the right", lambda m: np.rot90(m, 1, (-2, -1)), _ORDER.format("turned")),
)


def _pixels(
    y: Array, totals: Array, energy: Array, sound: NDArray[np.bool_], corner: tuple[int, int]
) -> Iterator[Finding]:
    """Single pixels that are brighter than any scene, or dark among bright ones, in every snapshot, over their Σm."""
    if float(totals.min()) < 0:
        return
    y, totals, energy = (a.astype(np.float64) for a in (y, totals, energy))  # half as much again must not overflow
    live = totals > 0.25 * float(np.median(totals[totals > 0])) if bool((totals > 0).any()) else totals > 0
    live = live & sound
    light = np.where(live, y / np.where(live, totals, 1), 0)
    around = _neighbours(light)
    lone = light > 1.5 * np.maximum(np.max(around, 0), 0)
    # White is as bright as anything that is not alone; through any masks a pixel sees no more.
    white = np.max(np.where(lone | ~live, 0, light), (-2, -1), keepdims=True)
    hot = live & lone & (light > 1.5 * white)
    # A pixel that sees one frame may differ from its neighbours as the frames do; not in every snapshot.
    several = len(y) > 1 or float(np.median(totals**2 / np.maximum(energy, 1e-30))) > 2.5
    dead = _dark(y, light, np.broadcast_to(totals, y.shape), np.broadcast_to(live, y.shape)) & several
    for name, which, what in (("hot", hot, "far brighter than"), ("dead", dead, "dark among")):
        places = np.argwhere(which.all(0)) + corner
        if len(places):
            first = ", ".join(f"({row}, {column})" for row, column in places[:3])
            text = f"{len(places)} {name} pixels, {what} all around them in every snapshot: {first}"
            text += " …" if len(places) > 3 else ""
            yield Finding(
                "warning", f"{name} pixels", text, "leave them out with --bad-pixels, or give --dark and --white"
            )


def _dark(y: Array, light: Array, totals: Array, live: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """(N, H, W): pixels without light, where what is around them is bright, evenly, and nowhere nearly as dark."""
    found = np.zeros(y.shape, np.bool_)
    usual = float(np.median(y[live])) if bool(live.any()) else 0.0
    for row, column in np.argwhere((live & (y < 0.01 * usual)).all(0))[:_MOST]:
        rows, columns = (slice(max(k - _AROUND, 0), k + _AROUND + 1) for k in (row, column))
        for n in range(len(y)):
            counted = live[n, rows, columns].copy()
            counted[row - rows.start, column - columns.start] = False
            around = light[n, rows, columns][counted]
            if len(around) >= _FEWEST:
                middle = float(np.median(around))
                spread = 1.4826 * float(np.median(np.abs(around - middle)))
                bright = middle * totals[n, row, column] > 0.5 * usual and middle > _EVEN * spread
                found[n, row, column] = bright and bool((around > 0.1 * middle).all())
    return found


def _neighbours(pictures: Array) -> Array:
    """(8, ..., H, W): the pixels around each; beyond the edge, those at it."""
    padded = np.pad(pictures, [(0, 0)] * (pictures.ndim - 2) + [(1, 1), (1, 1)], mode="symmetric")
    height, width = pictures.shape[-2:]
    steps = [(i, j) for i in range(3) for j in range(3) if (i, j) != (1, 1)]
    return np.stack([padded[..., i : i + height, j : j + width] for i, j in steps])


def _places(down: int, right: int) -> str:
    """`-2 rows and 1 column`: how far masks were moved that fit when they are moved by (2, -1)."""
    down, right = -down, -right
    return f"{down} row{'' if abs(down) == 1 else 's'} and {right} column{'' if abs(right) == 1 else 's'}"
