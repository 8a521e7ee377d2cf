"""Scene files that are read a window at a time, for pictures that do not fit into memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unsnap.errors import InputError
from unsnap.io import scene_file
from unsnap.io.axes import Layout, match
from unsnap.io.budget import passing
from unsnap.io.checks import Array, existing, reading
from unsnap.io.formats import find
from unsnap.io.mapped import forget
from unsnap.io.roles import Roles, assign, assign_masks
from unsnap.io.units import Units
from unsnap.kernels.memory import MUCH, give_back
from unsnap.operators import Dispersed, kind_of
from unsnap.operators.dispersed import parse_step
from unsnap.scene import Scene

_WHOLE = ("motion", "calibration", "roi")
"""Options that say something about the whole picture"""
_PIECES, _PIECE = 8, 32
"""Units are measured in 8 × 8 pieces of 32 × 32 pixels from all over a picture."""
_MAPPED = 2**23
"""Bytes of a mapped file that a part is copied from before their memory is given back."""


@dataclass(frozen=True)
class Windows:
    """A scene on the disk. video: (T, H, W); spread: how far the camera mixes pixels (down, right)."""

    path: Path
    camera: str
    video: tuple[int, int, int]
    snapshots: int
    spread: tuple[int, int]
    step: tuple[int, int]
    arrays: dict[str, Array]
    masks: dict[str, Array] | None
    """Those of a file of their own"""
    roles: Roles
    axes: dict[str, tuple[int, int]]
    """Rows and columns of every array of `arrays` that is a picture"""
    mask_axes: tuple[int, int]
    options: dict[str, Any]
    units: Units | None = None
    meta: dict[str, Any] | None = None

    def window(self, rows: slice, columns: slice) -> Scene:
        """All snapshots of a part of the picture, without the truth; of a dispersed one, where its bands land."""
        landing = tuple(slice(s.start, s.stop + m) for s, m in zip((rows, columns), self.spread, strict=True))
        scene = self._interpreted((rows, columns), landing)
        expected = (self.video[0], rows.stop - rows.start, columns.stop - columns.start)
        if tuple(scene.operator.video) != expected or scene.snapshots != self.snapshots:
            raise InputError(f"{self.path} cannot be read by parts; give more with --memory, to read it as a whole")
        return replace(scene, meta=self.meta or scene.meta)

    def thinned(self) -> Scene:
        """Pieces from all over the picture, to measure units in; of a camera that mixes pixels a corner."""
        if max(self.spread):
            size = [min(n, _PIECES * _PIECE) for n in self.video[1:]]
            pixels = (slice(0, size[0]), slice(0, size[1]))
            landing = (slice(0, size[0] + self.spread[0]), slice(0, size[1] + self.spread[1]))
            return self._interpreted(pixels, landing)
        some = (_some(self.video[1]), _some(self.video[2]))
        return self._interpreted(some, some)

    def _interpreted(self, pixels: tuple[Any, ...], landing: tuple[Any, ...]) -> Scene:
        """Of rows and columns of the video, and of the detector; slices or indices."""
        roles = self.roles
        own = {roles.measurement, scene_file.WEIGHTS} | (set() if self.masks else {roles.masks})
        small = {name: a for name, a in self.arrays.items() if name not in self.axes and a.size < 2**16}
        parts = {
            n: _cut(a, self.axes[n], landing if self.masks or n != roles.masks else pixels)
            for n, a in self.arrays.items()
            if n in own and n in self.axes
        }
        others = None
        if self.masks is not None:
            others = {roles.masks: _cut(self.masks[roles.masks], self.mask_axes, pixels)}
        small = {name: np.array(a) for name, a in small.items() if name not in roles.truth}
        with passing():
            scene = scene_file.interpret(
                {**small, **parts}, self.path, mask_arrays=others, units=self.units, **self.options
            )
        for array in (*self.arrays.values(), *(self.masks or {}).values()):
            forget(array)
        give_back(MUCH)
        return scene

    def truth(self, snapshot: int, frame: int) -> torch.Tensor | None:
        """One frame (H, W) of the true video, if this is a file of unsnap's own that knows it."""
        if not self.roles.truth or not self._fixed:
            return None
        frames = self.arrays[self.roles.truth[0]]
        last = find(self.path.suffix).time_last
        selected = (self.meta or {}).get("selected") or range(self.snapshots)
        number = selected[snapshot] * self.video[0] + frame
        if number >= frames.shape[-1 if last else 0]:
            return None
        found = torch.from_numpy(np.array(frames[..., number] if last else frames[number], np.float32))
        forget(frames)
        return found

    @property
    def _fixed(self) -> bool:
        return scene_file.FORMAT in self.arrays


def open_windows(path: str | Path, folder: Callable[[], Path], **options: Any) -> Windows | None:
    """A scene to be read by windows, with the options of `load_scene`; None if it has to be read as a whole.

    folder: makes a place for what is compressed and has to be unpacked. Cameras other than one snapshot are read by
    windows from files of unsnap's own.
    """
    path = existing(path)
    raw = options.pop("raw", None)
    if path.is_dir() or any(options.pop(name, None) is not None for name in _WHOLE) or _develops(raw):
        return None
    arrays = _mapped(path, folder)
    other = options.get("masks")
    masks = None if other is None else _mapped(existing(other), folder)
    if arrays is None or (other is not None and masks is None):
        return None
    return _opened(path, arrays, masks, {k: v for k, v in options.items() if v is not None})


def _mapped(path: Path, folder: Callable[[], Path]) -> dict[str, Array] | None:
    """The numeric arrays of a file, as `read_arrays` has them, still on the disk; None if it must be read whole."""
    kind = find(path.suffix)
    if kind.map_arrays is None:
        return None
    with reading(path, "arrays"):
        return kind.map_arrays(path, folder)


def _develops(raw: Any) -> bool:
    return raw is not None and (
        bool(raw.offset) or raw.saturated != "keep" or not raw.dark is raw.white is raw.bad_pixels is None
    )


def _opened(
    path: Path, arrays: dict[str, Array], masks: dict[str, Array] | None, options: dict[str, Any]
) -> Windows | None:
    fixed = scene_file.FORMAT in arrays and masks is None
    where, other = str(path), options.get("masks")
    keys = options.get("measurement_key"), options.get("masks_key")
    if fixed and not any(keys):
        roles = Roles("meas", "mask", ("orig",) if "orig" in arrays else ())
    else:
        roles = assign(arrays, where, masks is not None, *keys)
        if masks is not None:
            roles = replace(roles, masks=assign_masks(masks, str(other), keys[1]))
    camera = scene_file.camera_of(arrays, where) or options.get("camera") or "snapshot"
    kind = kind_of(camera)
    if not fixed and (camera != "snapshot" or options.get("transpose_masks")):
        return None
    code, y = (arrays if masks is None else masks)[roles.masks], arrays[roles.measurement]
    last = find(path.suffix).time_last
    if fixed:
        names = [name for name in (roles.measurement, roles.masks, scene_file.WEIGHTS) if name in arrays]
        axes = {name: (0, 1) if last else (arrays[name].ndim - 2, arrays[name].ndim - 1) for name in names}
        mask_axes = axes[roles.masks]
    else:
        masks_last = find(Path(other or path).suffix).time_last
        y_lead, m_lead = match(y, code, Layout(where, last, masks_last, False, options.get("time_axis")))
        axes, mask_axes = {roles.measurement: _image(y, y_lead)}, _image(code, m_lead)
        if masks is None:
            axes[roles.masks] = mask_axes
    height, width = (code.shape[i] for i in mask_axes)
    step, spread = (0, 0), (0, 0)
    if issubclass(kind, Dispersed):
        step = parse_step(camera.partition(":")[2])
        spread = (y.shape[axes[roles.measurement][0]] - height, y.shape[axes[roles.measurement][1]] - width)
    found = Windows(path, camera, (0, height, width), 0, spread, step, arrays, masks, roles, axes, mask_axes, options)
    few = found.thinned()
    if not (few.operator.pixelwise or issubclass(kind, Dispersed)) or few.camera != camera:
        return None
    told = few.meta["mask_scale"], few.meta["measurement_factor"]
    if None in told or max(few.snapshots, few.operator.video[0]) >= _PIECE * _PIECES:
        return None  # an extreme scale, or so many frames that sizes of parts would not tell the axes
    frames = int(few.operator.video[0])
    return replace(
        found,
        video=(frames, height, width),
        snapshots=few.snapshots,
        units=Units(told[0], None, told[1]),
        meta=few.meta,
    )


def _cut(array: Array, axes: tuple[int, int], parts: tuple[Any, ...]) -> Array:
    """These rows and columns, which are slices or indices; few pages of a mapped file are in memory at a time."""
    chosen = [np.arange(n) for n in array.shape]
    for axis, some in zip(axes, parts, strict=True):
        chosen[axis] = chosen[axis][some]
    cut = np.empty([len(some) for some in chosen], array.dtype)
    slowest = max(range(array.ndim), key=lambda axis: abs(array.strides[axis]))
    step = max(_MAPPED // max(abs(array.strides[slowest]), 1), 1)
    whole: list[Any] = [slice(None)] * array.ndim
    for start in range(0, len(chosen[slowest]), step):
        piece = [*chosen]
        piece[slowest] = piece[slowest][start : start + step]
        place = [*whole]
        place[slowest] = slice(start, start + step)
        cut[tuple(place)] = array[_indices(piece)]
        forget(array)
    return cut


def _indices(chosen: list[Array]) -> tuple[Any, ...]:
    """Slices where these indices are without gaps, as copying is faster then."""
    if all(len(some) and some[-1] - some[0] == len(some) - 1 for some in chosen):
        return tuple(slice(int(some[0]), int(some[-1]) + 1) for some in chosen)
    return np.ix_(*chosen)


def _image(array: Array, lead: tuple[int, ...]) -> tuple[int, int]:
    """The axes of the picture."""
    rows, columns = (axis for axis in range(array.ndim) if axis not in lead)
    return rows, columns


def _some(length: int) -> Array:
    """Indices of pieces from all over an axis, all of a short one."""
    if length <= _PIECES * _PIECE:
        return np.arange(length)
    starts = [k * (length - _PIECE) // (_PIECES - 1) // 4 * 4 for k in range(_PIECES)]
    return np.concatenate([np.arange(start, start + _PIECE) for start in starts])
