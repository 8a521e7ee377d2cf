"""Read a scene from any file that holds a measurement and masks, and write one back exactly."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unsnap.errors import InputError
from unsnap.io.axes import Arranged, Layout, leading_first
from unsnap.io.budget import claim, counted
from unsnap.io.checks import real_array
from unsnap.io.film import within
from unsnap.io.formats import find
from unsnap.io.frames import GREYED
from unsnap.io.kinds import KINDS, arrange_for, as_rgb, recognised, wavelengths
from unsnap.io.motion import Places, moving_masks
from unsnap.io.raw import Raw, read_capture
from unsnap.io.roles import Roles, assign, assign_masks, is_uncertain
from unsnap.io.units import MODEST, Powers, Units, in_range, measure_units, modest, power, reverse
from unsnap.operators import kind_of
from unsnap.scene import Scene

Array = NDArray[Any]

# A file with this array was written by save_scene: axes in the container's own order, video in [0, 1]; no guessing.
FORMAT, CAMERA, WEIGHTS = "unsnap_format", "unsnap_camera", "weights"
COLOUR_FORMAT = 2  # of files written before there were colour cameras: red, green and blue as snapshots in turn
# Bytes per value from the stored array to the tensor: float32, rearranged, coded to find the units, scaled.
_CONVERTED = 20


@counted()
def load_scene(
    path: str | Path,
    *,
    masks: str | Path | None = None,
    time_axis: int | None = None,
    transpose_masks: bool = False,
    scale: float | None = None,
    snapshots: slice | None = None,
    camera: str | None = None,
    measurement_key: str | None = None,
    masks_key: str | None = None,
    motion: Places | None = None,
    raw: Raw | None = None,
    roi: tuple[slice, slice] | None = None,
) -> Scene:
    """Read measurement, masks and, if present, truth; everything decided on the way stands in `scene.meta["notes"]`.

    masks: another file to take the masks from. time_axis: the masks' time axis, where sizes leave it open.
    scale: what a white pixel adds to the measurement through one fully open mask. snapshots: which of them to keep.
    camera: "multishot" if the snapshots are shots of one video, "rgb" if they are colours, "bayer:rggb" (or another
    order) behind a colour filter, "dispersed:2" (or another step) of a spectrum, or that of a plug-in; names and sizes
    tell the last two in most files, and a file of unsnap's knows its own. measurement_key, masks_key: the names of the
    arrays, where they are unusual. motion: the masks are one that moves to these places (down, right), one for each
    frame. raw: dark frame, flat field, bad and saturated pixels. roi: rows and columns to keep.

    >>> load_scene("drop8_cacti.mat").measurement.shape     # doctest: +SKIP
    torch.Size([5, 256, 256])
    """
    arrays, mask_arrays = read_capture(path, masks, raw)
    return interpret(
        arrays, path, mask_arrays=mask_arrays, masks=masks, time_axis=time_axis, transpose_masks=transpose_masks,
        scale=scale, snapshots=snapshots, camera=camera, measurement_key=measurement_key, masks_key=masks_key,
        motion=motion, raw=raw, roi=roi,
    )  # fmt: skip


def save_scene(path: str | Path, scene: Scene, *, overwrite: bool = True) -> Path:
    """Write meas, mask and orig so that `load_scene` gives the same float32 values back, bit for bit."""
    from unsnap.io.files import write_arrays

    last = _time_last(path)
    arrays = {
        "meas": _stored(scene.measurement, last),
        "mask": _stored(scene.masks, last),
        FORMAT: np.array([1], dtype=np.int32),
    }
    if scene.meta.get("wavelengths"):
        arrays["wavelengths"] = np.asarray(scene.meta["wavelengths"], dtype=np.float64)
    if scene.camera != "snapshot":
        arrays[CAMERA] = np.frombuffer(scene.camera.encode(), np.uint8)
    if scene.weights is not None:
        arrays[WEIGHTS] = _stored(scene.weights, last)
    if scene.truth is not None:
        arrays["orig"] = _stored(scene.truth.reshape(-1, *scene.truth.shape[-2:]), last)
    return write_arrays(path, arrays, overwrite=overwrite)


@counted()
def interpret(
    arrays: dict[str, Array],
    path: str | Path,
    *,
    mask_arrays: dict[str, Array] | None = None,
    masks: str | Path | None = None,
    time_axis: int | None = None,
    transpose_masks: bool = False,
    scale: float | None = None,
    snapshots: slice | None = None,
    camera: str | None = None,
    measurement_key: str | None = None,
    masks_key: str | None = None,
    motion: Places | None = None,
    raw: Raw | None = None,
    roi: tuple[slice, slice] | None = None,
    units: Units | None = None,
) -> Scene:
    """Make a Scene of the arrays of a file; `mask_arrays` are those of the separate file `masks`.

    units: those of the whole file, of which these are parts of the arrays.
    """
    where = str(path)
    if scale is not None and not (math.isfinite(scale) and scale > 0):
        raise InputError(f"--scale must be a positive number, got {scale}; give the intensity of white in the file")
    kind = _format_of(arrays, where)
    camera = _agreed(camera, camera_of(arrays, where), where, kind)
    if kind and {"meas", "mask"} <= arrays.keys() and not (measurement_key or masks_key):
        roles = Roles("meas", "mask", ("orig",) if "orig" in arrays else ())
    else:
        roles = assign(arrays, where, mask_arrays is not None, measurement_key, masks_key)
    layout = Layout(
        where,
        time_last=_time_last(path),
        masks_last=_time_last(masks or path),
        fixed=kind > 0 and mask_arrays is None,
        time_axis=time_axis,
        transpose_masks=transpose_masks,
    )
    notes = list(roles.notes)
    if roles.measurement == GREYED:
        notes.append("made the pictures grey, which are in colour: a capture in colour is read from TIFF or arrays")
    mask_where = where if masks is None else str(masks)
    mask_name = roles.masks if mask_arrays is None else assign_masks(mask_arrays, mask_where, masks_key)
    mask_array = (arrays if mask_arrays is None else mask_arrays)[mask_name]
    if motion is not None:
        mask_array = moving_masks(mask_array, mask_where, motion, arrays[roles.measurement], layout)
        layout = replace(layout, masks_last=False, fixed=False, time_axis=0)
        notes.append(f"moved one mask to {len(motion)} places")
    used = [arrays[role] for role in (roles.measurement, *roles.truth)] + ([mask_array] if masks is None else [])
    claim(Path(path), _CONVERTED * sum(array.size for array in used))
    claim(Path(masks or path), 0 if masks is None else _CONVERTED * mask_array.size)
    known = units is not None
    shots, holes = (raw or Raw()).without_holes(arrays[roles.measurement])
    (measured,), y_power = modest([real_array(shots, roles.measurement, where, notes)], known)
    if holes is not None:
        measured[holes] = np.nan  # known to `develop` by it, wherever their axes go until then
    (code,), m_power = modest([real_array(mask_array, mask_name, mask_where, notes)], known)
    if not (camera or layout.fixed):
        camera, why = recognised(measured, code, roles.measurement) or ("snapshot", "")
        notes += [why] if why else []
    camera = camera or "snapshot"
    rgb = camera == "rgb" and not kind
    try:
        truths, x_power = modest([real_array(arrays[name], name, where, notes) for name in roles.truth])
        arranged, camera = arrange_for(camera, kind > 0, measured, code, truths, layout)
    except InputError as error:
        if not is_uncertain(roles):
            raise
        truths, x_power = modest([])
        arranged, camera = arrange_for(camera, kind > 0, measured, code, truths, layout)
        notes.append(f"left {', '.join(roles.truth)!r} out: {str(error).removeprefix(f'{where}: ').partition(';')[0]}")
        roles = replace(roles, truth=())
    powers = Powers(y_power, m_power, x_power)
    measured, weights = (raw or Raw()).develop(arranged.measurement, power(1.0, y_power), where, notes)
    if kind and WEIGHTS in arrays:
        weights = _known_weights(arrays[WEIGHTS], weights, measured, layout, notes)
    arranged = replace(arranged, measurement=measured)
    planes = rgb or arranged.colour or kind == COLOUR_FORMAT
    if not known:  # a part may be dark
        check_masks(arranged.masks, mask_where, notes)
    if units is None:
        units = _units(arranged, scale, planes, layout.fixed, camera, powers, weights)
    _check_factor(units.factor, arranged.measurement, powers, where)
    meta = {
        "name": Path(path).stem,
        "file": Path(path).name,
        "arrays": listing(arrays),
        "roles": {"measurement": roles.measurement, "masks": mask_name, "truth": list(roles.truth)},
        "time_axis": arranged.time_axis,
        "offset": 0.0 if raw is None else raw.offset,
        **units.record(powers),
        "colour": camera in ("bayer", "rgb"),
        "wavelengths": wavelengths(arrays, arranged.masks.shape[-3], notes) if kind_of(camera).SPECTRAL else None,
        "camera": camera,
        "notes": [*notes, *arranged.notes, *units.notes],
    }
    scene = _scene(arranged, units, meta)
    if weights is not None:
        scene = replace(scene, weights=torch.from_numpy(np.array(weights, np.float32)))
    scene = scene if roi is None else region(scene, roi, where)
    return _select(as_rgb(scene) if planes and camera == "snapshot" else scene, snapshots, where)


def _known_weights(stored: Array, more: Array | None, y: Array, layout: Layout, notes: list[str]) -> Array:
    """Those of a file of unsnap's, beside others."""
    found = leading_first(real_array(stored, WEIGHTS, layout.where, notes), layout.time_last)
    if found.shape not in (y.shape, y.shape[1:]) or found.min() < 0 or found.max() > 1:
        raise InputError(
            f"{layout.where}: {WEIGHTS!r} must be {y.shape} in [0, 1], found {stored.shape}; save it again"
        )
    return found if more is None else found * more


def region(scene: Scene, roi: tuple[slice, slice], where: str) -> Scene:
    """These rows and columns of a scene; an InputError if there are none, or if they cannot be cut out."""
    if not scene.operator.pixelwise:
        raise InputError(f"{where}: a {scene.camera} mixes pixels, so that no region can be cut out; leave out --roi")
    size = scene.operator.video[-2:]
    if not all(map(within, roi, size)):
        raise InputError(
            f"{where}: --roi must choose some of the {size[0]} rows and {size[1]} columns and no others; count from 0"
        )
    return scene.crop(*roi)


def listing(arrays: dict[str, Array]) -> dict[str, dict[str, Any]]:
    """Shape and dtype of every array, ready for JSON."""
    return {name: {"shape": list(a.shape), "dtype": str(a.dtype)} for name, a in arrays.items()}


def check_masks(masks: Array, where: str, notes: list[str]) -> None:
    """Refuse masks that let nothing through; record negative ones, which are legal."""
    if not masks.any():
        raise InputError(
            f"{where}: all masks are zero, so the measurement holds nothing; give other masks with --masks"
        )
    negative = int((masks < 0).sum())
    if negative:
        notes.append(f"{negative / masks.size:.1%} of the mask values are negative, which is legal")


def _format_of(arrays: dict[str, Array], where: str) -> int:
    if FORMAT not in arrays:
        return 0
    number = np.asarray(arrays[FORMAT]).ravel().tolist()
    if number not in ([1], [COLOUR_FORMAT]):
        raise InputError(f"{where}: {FORMAT} must be 1 or {COLOUR_FORMAT}, found {number}; read it with a newer unsnap")
    return int(number[0])


def _agreed(asked: str | None, stored: str | None, where: str, kind: int) -> str:
    """The camera that is asked for and the one that the file names, which must not contradict each other."""
    camera = asked or stored or ""
    kind_of(camera or "snapshot")
    if kind and stored is None and camera.partition(":")[0] in KINDS:
        raise InputError(f"{where} was recorded by a snapshot, not by a {camera}; leave out --kind")
    if stored is not None and camera.partition(":")[0] != stored.partition(":")[0]:
        raise InputError(f"{where} was recorded by a {stored}, not by a {camera}; leave out --kind")
    return stored or camera


def camera_of(arrays: dict[str, Array], where: str) -> str | None:
    """The camera that a file of unsnap's names, as the bytes of its name."""
    if CAMERA not in arrays:
        return None
    letters = np.asarray(arrays[CAMERA]).ravel()
    if letters.dtype.kind not in "iuf" or letters.size > 100 or not np.all((letters > 0) & (letters < 128)):
        raise InputError(f"{where}: {CAMERA} must hold the bytes of a camera's name; save the scene again")
    return bytes(letters.astype(np.uint8)).decode("ascii", "replace")


def _units(
    arranged: Arranged,
    scale: float | None,
    colour: bool,
    fixed: bool,
    camera: str,
    powers: Powers,
    weights: Array | None,
) -> Units:
    if fixed:
        return Units(1.0, power(1.0, -powers.truth), powers.own * (1.0 if scale is None else scale))
    return measure_units(arranged.measurement, arranged.masks, arranged.truth, scale, colour, camera, powers, weights)


def _check_factor(factor: float, measurement: Array, powers: Powers, where: str) -> None:
    """Divided by white, the measurement must be numbers that can be squared, and not vanish."""
    top = float(np.abs(measurement).max())
    if top > 0 and not (in_range(factor) and 2.0**-MODEST <= top / factor <= 2.0**MODEST):
        found, white = power(top, powers.measurement), power(factor, powers.measurement)
        raise InputError(
            f"{where}: the measurement reaches {found:.3g} where white would be {white:.3g}, which cannot be one "
            "camera's; give the value of white in the measurement's units with --scale"
        )


def _scene(arranged: Arranged, units: Units, meta: dict[str, Any]) -> Scene:
    truth = arranged.truth
    if truth is not None:
        truth = reverse(truth) if units.reverse_colours else truth
    return Scene(
        _tensor(arranged.measurement, units.factor),
        _tensor(arranged.masks, units.mask_scale),
        None if truth is None else _tensor(truth, units.white or 1.0),
        meta,
        meta["camera"],
    )


def _select(scene: Scene, snapshots: slice | None, where: str) -> Scene:
    if snapshots is None:
        return scene
    chosen = range(scene.snapshots)[snapshots]
    if not chosen or chosen.step < 0:
        asked = ":".join("" if part is None else str(part) for part in (snapshots.start, snapshots.stop))
        asked += "" if snapshots.step is None else f":{snapshots.step}"
        raise InputError(
            f"{where}: snapshots {asked} must choose some of the {scene.snapshots} in increasing order; "
            "give another range, counted from 0"
        )
    return replace(scene.pick(list(chosen)), meta={**scene.meta, "selected": list(chosen)})


def _time_last(path: str | Path) -> bool:
    return find(Path(path).suffix).time_last


def _tensor(a: Array, divisor: float) -> torch.Tensor:
    values = np.array(a, dtype=np.float32, order="C")
    if divisor != 1 and values.any():  # nothing tells the units of zeros
        values /= np.float32(divisor)
    return torch.from_numpy(values)


def _stored(tensor: torch.Tensor, last: bool) -> NDArray[np.float32]:
    """(…, H, W) as float32 in the container's order: leading axes reversed behind the image in MATLAB files."""
    a = tensor.detach().cpu().numpy().astype(np.float32)
    if not last:
        return a
    axes = (a.ndim - 2, a.ndim - 1, *range(a.ndim - 3, -1, -1))
    return np.ascontiguousarray(a.transpose(axes))
