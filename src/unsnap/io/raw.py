"""From what a sensor counts to the light that fell on it; broken and saturated pixels get weight 0."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unsnap.errors import InputError, short
from unsnap.io.budget import claim
from unsnap.io.checks import read_text
from unsnap.io.files import read_arrays
from unsnap.io.roles import describe, pictures

Array = NDArray[Any]
Source = str | Path | Array

DARKEST = 0.1
"""Of the median gain: a pixel that answers less to white light is dead."""
HOT = 0.25
"""Of the bright end of the snapshots: a pixel whose dark signal is that far above the others' is hot."""
_PAIR = r"\s*(\d{1,6})\s*[,; \t]\s*(\d{1,6})\s*"
_PAIRS = re.compile(r"\s*-?\d{1,6}\s*,\s*-?\d{1,6}\s*(;\s*-?\d{1,6}\s*,\s*-?\d{1,6}\s*)*;?\s*")


@dataclass(frozen=True)
class Raw:
    """How to develop snapshots, in the file's units; frames and lists are files or arrays.

    dark: a picture without light; white: one of an evenly lit white surface, every mask open; of several exposures in
    a file the mean counts. offset: a number to subtract. bad_pixels: "y,x;y,x", a text file of such pairs, an array
    (n, 2) of them, or a picture that is not 0 there. saturated: "keep", "exclude" (all pixels at the very maximum), or
    the level from which on pixels are left out.
    """

    dark: Source | None = None
    white: Source | None = None
    bad_pixels: Source | None = None
    offset: float = 0.0
    saturated: str | float = "keep"

    def __post_init__(self) -> None:
        self.limit(0.0)
        if not abs(self.offset) <= 1e30:
            raise InputError(
                f"--offset must be a number of usual size, got {self.offset}; give what the sensor counts without light"
            )

    @property
    def inputs(self) -> tuple[Source | None, ...]:
        return self.dark, self.white, self.bad_pixels

    def limit(self, top: float) -> float:
        """From which value on a pixel counts as saturated, where the largest is `top`."""
        if self.saturated in ("keep", "exclude"):
            return math.inf if self.saturated == "keep" else top
        try:
            level = float(self.saturated)
        except (ValueError, OverflowError):
            level = math.nan
        if math.isnan(level):
            raise InputError(
                f"--saturated must be keep, exclude or a level in the file's units, got {short(self.saturated)}"
            )
        return level

    def without_holes(self, y: Array) -> tuple[Array, Array | None]:
        """Snapshots as stored, with 0 where they are not finite, and where; if some pixels are left out anyway."""
        holes = None if self.bad_pixels is None or y.dtype.kind not in "fc" else ~np.isfinite(y)
        return (y, None) if holes is None or not holes.any() else (np.where(holes, 0, y), holes)

    def develop(self, y: Array, unit: float, where: str, notes: list[str]) -> tuple[Array, Array | None]:
        """Snapshots (N, ..., H, W) and their weights (the same, or without N where all agree; None if all count).

        unit: what y is to be multiplied by to be in the file's units; NaN only at bad pixels. Everything done is told
        in `notes`.
        """
        if not self.offset and self.saturated == "keep" and self.dark is self.white is self.bad_pixels is None:
            return y, None
        if not 0 < unit < math.inf:
            raise InputError(f"{where}: no sensor counts in numbers of this size; scale the snapshots first")
        size = y.shape[-2:]
        holes = np.isnan(y)
        y = np.where(holes, 0, y) if holes.any() else y
        out = y >= np.float64(self.limit(float(y.max()) * unit) / unit)
        why = [f"{int(out.sum())} saturated"] if out.any() else []
        dark = self._frame(self.dark, size, "dark")
        if (self.dark is not None or self.white is not None) and self.saturated == "keep" and (full := piled_up(y)):
            top = f"{full} pixels ({full / y.size:.2%}) were exactly at the maximum {float(y.max()) * unit:.4g}"
            notes.append(f"{top}: saturated; leave them out with --saturated exclude")
        ground = (0 if dark is None else dark) + self.offset
        broken = np.zeros(size, bool)
        if dark is not None:
            bright = float(np.percentile(y, 99.9)) * unit - float(np.median(dark))
            broken = dark - np.median(dark) > HOT * bright if bright > 0 else broken
            why += [f"{int(broken.sum())} hot"] if broken.any() else []
            notes.append(f"subtracted the dark frame, {dark.mean():.4g} on average")
        if self.offset:
            notes.append(f"subtracted the offset {self.offset:g}")
        with np.errstate(over="ignore", invalid="ignore"):
            y = y - ground / unit
        if not float(np.abs(y).max()) < 1e30:
            raise InputError(f"{where}: the snapshots are nothing beside the offset or dark frame; check their units")
        white = self._frame(self.white, size, "white")
        if white is not None:
            y, dead = self._flat(y, white - ground, where, notes)
            why += [f"{int((dead & ~broken).sum())} dead"] if (dead & ~broken).any() else []
            broken |= dead
        if self.bad_pixels is not None:
            listed = _bad_pixels(self.bad_pixels, size)
            _check_holes(holes & ~listed, where)
            why += [f"{int(listed.sum())} listed as bad"]
            broken |= listed
        out |= broken
        if out.all():
            raise InputError(
                f"{where}: no pixel is left ({', '.join(why)}); check --dark, --white, --bad-pixels, --saturated"
            )
        if not out.any():
            return y.astype(np.float32), None
        notes.append(f"left out {int(out.sum())} pixels ({out.mean():.2%}): {', '.join(why)}")
        weights = (out[0] if (out == out[0]).all() else out) < 0.5
        return np.where(out, 0, y).astype(np.float32), weights.astype(np.float32)

    @staticmethod
    def _flat(y: Array, light: Array, where: str, notes: list[str]) -> tuple[Array, Array]:
        middle = float(np.median(light))
        if not middle > 0:
            raise InputError(
                f"{where}: the white frame is not brighter than the dark one (median {middle:.4g} above it); give a "
                "picture of an evenly lit white surface with --white"
            )
        gain = light / middle
        dead = gain < DARKEST
        notes.append(f"divided by the gains of the white frame, {gain[~dead].min():.3g} to {gain.max():.3g}")
        return y / np.where(dead, 1, gain), dead

    @staticmethod
    def _frame(source: Source | None, size: tuple[int, ...], what: str) -> Array | None:
        """(H, W) as float64, the mean of several."""
        if source is None:
            return None
        name, array = _picture(source, f"--{what}")
        claim(Path(name), 8 * array.size)
        if array.ndim == 3 and array.shape[-2:] != size and array.shape[:2] == size:
            array = np.moveaxis(array, -1, 0)
        if array.ndim not in (2, 3) or array.shape[-2:] != size:
            raise InputError(
                f"{name} must be a {what} frame of {size[0]}×{size[1]}, or several, like the snapshots, got shape "
                f"{array.shape}; take it with the same sensor and region"
            )
        mean: Array = array.reshape(-1, *size).mean(0, dtype=np.float64)
        if not np.isfinite(mean).all():
            raise InputError(f"{name} must be finite to serve as {what} frame; replace NaN and infinite values")
        return mean


def piled_up(y: Array) -> int:
    """How many values are exactly the largest, if these are many and the next values below it are not as crowded."""
    top = y.max()
    count = int((y == top).sum())
    if not top > 0 or count <= 1e-3 * y.size:
        return 0
    crowds = np.unique(y[(y < top) & (y > 0.8 * top)], return_counts=True)[1][-5:]
    return count if count > 3 * int(crowds.max(initial=0)) else 0


def read_capture(
    path: str | Path, masks: str | Path | None, raw: Raw | None
) -> tuple[dict[str, Array], dict[str, Array] | None]:
    """The arrays of a capture, and of another file for its masks; of a folder without what plays another part."""
    arrays = read_arrays(path, capture=True, without=(masks, *(raw or Raw()).inputs))
    return arrays, None if masks is None else read_arrays(masks)


def _picture(source: Source, option: str) -> tuple[str, Array]:
    """The only picture, or stack, of a file; and how to call it."""
    if isinstance(source, np.ndarray):
        return f"the array for {option}", source
    found = pictures(read_arrays(source))
    if len(found) != 1:
        raise InputError(f"{source} must hold one array to serve as {option}, found {describe(found)}; save it alone")
    array = next(iter(found.values()))
    return str(source), array.real if array.dtype.kind == "c" else array


def _bad_pixels(source: Source, size: tuple[int, ...]) -> Array:
    """(H, W), true where a pixel is bad."""
    if isinstance(source, str) and _PAIRS.fullmatch(source):
        name, places = "--bad-pixels", np.array([int(n) for n in re.findall(r"-?\d+", source)]).reshape(-1, 2)
    elif not isinstance(source, np.ndarray) and Path(source).suffix.lower() in (".txt", ".csv"):
        name, places = str(source), _pairs(Path(source))
    else:
        name, places = _picture(source, "--bad-pixels")
        places = places[0] if places.ndim == 3 and len(places) == 1 else places
        if places.shape == size:
            marked: Array = places != 0
            return marked
    if places.ndim != 2 or places.shape[-1] != 2:
        raise InputError(
            f"{name} must be a picture of {size[0]}×{size[1]} that is not 0 at bad pixels, or pairs y,x, got shape "
            f"{places.shape}"
        )
    outside = (places < 0) | (places >= np.array(size)) | (places % 1 != 0)
    if outside.any():
        y, x = places[outside.any(1)][0]
        raise InputError(
            f"{name} names the pixel {y},{x}, which the picture of {size[0]}×{size[1]} does not have; count from 0,0"
        )
    marked = np.zeros(size, bool)
    marked[tuple(places.astype(int).T)] = True
    return marked


def _check_holes(unlisted: Array, where: str) -> None:
    """Only bad pixels may be without a number."""
    if unlisted.any():
        row, column = np.argwhere(unlisted)[0, -2:]
        raise InputError(
            f"{where}: {int(unlisted.sum())} values are NaN or infinite at pixels that --bad-pixels does not name, the "
            f"first at {row},{column}; name them as well"
        )


def _pairs(path: Path) -> Array:
    lines = [line.partition("#")[0].strip() for line in read_text(path, "a list of pixels").splitlines()]
    found = [(line, re.fullmatch(_PAIR, line)) for line in lines if line]
    wrong = next((line for line, pair in found if pair is None), None)
    if wrong is not None:
        raise InputError(f"{path} must hold a pixel y,x on every line, found {short(wrong)}; count from 0,0")
    return np.array([[int(pair[1]), int(pair[2])] for _, pair in found if pair]).reshape(-1, 2)
