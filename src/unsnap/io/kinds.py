"""Colour and spectral captures in other people's files: recognised, and arranged as unsnap's cameras want them."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unsnap.errors import InputError
from unsnap.io.axes import COLOURS, Arranged, Layout, arrange, as_shots, front, in_order
from unsnap.io.cie import FIELD
from unsnap.operators.bayer import mosaic
from unsnap.operators.dispersed import BandStep, dual_disperser, parse_step, step_name
from unsnap.scene import Scene

Array = NDArray[Any]
KINDS = ("bayer", "dispersed", "dual")
_WAVELENGTHS = ("wavelengths", "wavelength", "lambda", "bands", "lam", "wl")


def recognised(measurement: Array, masks: Array, name: str) -> tuple[str, str] | None:
    """The kind of camera that names or sizes give away, and why; None if nothing speaks against one snapshot."""
    if name == "rgb":
        return "rgb", "took the red, green and blue of each picture for snapshots in three colours"
    if name.lower().endswith("_bayer"):
        return (
            "bayer:rggb",
            f"took {name!r} for a snapshot behind an RGGB colour filter; --kind bayer:ORDER overrides",
        )
    y, m = (np.squeeze(a) for a in (measurement, masks))
    if y.ndim == m.ndim == 2 and y.shape != m.shape and min(a - b for a, b in zip(y.shape, m.shape, strict=True)) == 0:
        axis = 0 if y.shape[0] > m.shape[0] else 1
        beyond = y.shape[axis] - m.shape[axis]
        if 0 < beyond < 8 * m.shape[axis]:
            pixels = 2 if beyond % 2 == 0 else 1
            step = (pixels, 0) if axis == 0 else (0, pixels)
            note = (
                f"took it for the snapshot of {beyond // pixels + 1} bands, each {pixels} pixels further "
                f"{'down' if axis == 0 else 'right'}: it is {beyond} pixels larger than the mask; --kind overrides"
            )
            return f"dispersed:{step_name(step)}", note
    return None


def arrange_for(
    camera: str, fixed: bool, measured: Array, code: Array, truths: list[Array], layout: Layout
) -> tuple[Arranged, str]:
    """The arrays in order for a camera, and its name. fixed: they are in a file of unsnap's own."""
    if camera.partition(":")[0] in KINDS and not fixed:
        return _arrange_kind(camera, measured, code, truths, layout)
    rgb = camera == "rgb" and not fixed
    if not (camera == "snapshot" or rgb or (camera == "multishot" and not fixed and measured.ndim < 4)):
        return in_order(measured, code, truths, layout, camera), camera
    arranged = arrange(measured, code, truths, layout)
    if camera == "multishot":
        return as_shots(arranged, layout.where), camera
    return arranged, "snapshot" if rgb else camera


def _arrange_kind(
    kind: str, measurement: Array, masks: Array, truths: list[Array], layout: Layout
) -> tuple[Arranged, str]:
    """The arrays of a foreign file for this kind of camera, and the camera's full name."""
    base, _, setting = kind.partition(":")
    if base == "bayer":
        return _bayer(measurement, masks, truths, layout, setting or "rggb"), "bayer"
    step = parse_step(setting)
    if base == "dual":
        return _dual(measurement, masks, truths, layout, step), "dual"
    return _dispersed(measurement, masks, truths, layout, step), f"dispersed:{step_name(step)}"


def as_rgb(scene: Scene) -> Scene:
    """Snapshots that are red, green and blue in turn as captures by three detectors."""
    captures, rest = divmod(scene.snapshots, COLOURS)
    if rest:
        raise InputError(
            f"the number of snapshots, {scene.snapshots}, is no multiple of the {COLOURS} colours; leave out --kind rgb"
        )
    size, known, masks = scene.masks.shape[-3:], scene.truth, scene.masks
    own = masks.reshape(captures, COLOURS, *size) if masks.ndim == 4 else masks.expand(COLOURS, *size).contiguous()
    if known is not None:
        whole = len(known) // COLOURS
        known = known[: COLOURS * whole].reshape(whole, COLOURS * size[0], *size[1:]) if whole else None
    y = scene.measurement.reshape(captures, COLOURS, *size[1:])
    meta = {**scene.meta, "camera": "rgb", "colour": True}
    weights = scene.weights
    if weights is not None:
        shape = (captures, COLOURS) if weights.ndim == 3 else (COLOURS,)
        weights = weights.reshape(*shape, *size[1:]) if weights.ndim == 3 else weights.expand(*shape, *size[1:])
    return Scene(y, own, known, meta, "rgb", weights)


def _bayer(measurement: Array, masks: Array, truths: list[Array], layout: Layout, pattern: str) -> Arranged:
    arranged = arrange(measurement, masks, [], layout)
    frames, size = arranged.masks.shape[-3], arranged.measurement.shape[-2:]
    coded = mosaic(torch.from_numpy(np.ascontiguousarray(arranged.masks)), pattern).numpy()
    notes = [*arranged.notes]
    groups = [group for truth in truths if (group := _colour_groups(truth, frames, size, layout)) is not None]
    if truths and not groups:
        notes.append("left the truth out: it is not in colour")
    x = np.concatenate(groups)[: len(arranged.measurement)] if groups else None
    return replace(arranged, masks=coded, truth=x, colour=False, notes=tuple(notes))


def _colour_groups(truth: Array, frames: int, size: tuple[int, ...], layout: Layout) -> Array | None:
    """A colour video in any order of axes as (G, 3T, H, W); None if it is none, or too short."""
    if truth.ndim != 4:
        return None
    leads = [lead for lead in (*layout.leads(4), *permutations(range(4), 2)) if truth.shape[lead[0]] == COLOURS]
    for lead in leads:
        video = front(truth, lead)
        count = video.shape[1] // frames
        if video.shape[2:] == size and count:
            groups = video[:, : count * frames].reshape(COLOURS, count, frames, *size)
            return groups.swapaxes(0, 1).reshape(count, COLOURS * frames, *size)
    return None


def _dispersed(measurement: Array, masks: Array, truths: list[Array], layout: Layout, step: BandStep) -> Arranged:
    """Masks (L, H, W) from one mask, from one for every band, or from those that are moved already."""
    where, code = layout.where, np.squeeze(masks)
    y = _pictures(measurement, layout)
    if code.ndim == 2:
        bands = _bands(y.shape[-2:], code.shape, step, where)
        m = np.broadcast_to(code, (bands, *code.shape))
    else:
        moved = _cube(code, y.shape[-2:], layout)
        m = front(code, layout.mask_leads(3)[0]) if moved is None else moved
        if moved is not None:  # as large as the detector: moved already
            reach = [(len(m) - 1) * abs(s) for s in step]
            own = tuple(n - r for n, r in zip(y.shape[-2:], reach, strict=True))
            if min(own) < 1:
                raise InputError(f"{where}: {len(m)} bands do not fit on {y.shape[-2:]} pixels; give the right step")
            m = np.stack([_moved_back(band, k, step, reach, own) for k, band in enumerate(m)])
        else:
            _bands(y.shape[-2:], m.shape[1:], step, where, len(m))
    notes = [
        f"took it for the snapshot of {len(m)} bands of {m.shape[1]}×{m.shape[2]}, moved by {step} pixels per band"
    ]
    return Arranged(y, np.ascontiguousarray(m), _truth(truths, m.shape, layout, notes), None, False, tuple(notes))


def _dual(measurement: Array, masks: Array, truths: list[Array], layout: Layout, step: BandStep) -> Arranged:
    code = np.squeeze(masks)
    if code.ndim != 2:
        return arrange(measurement, masks, truths, layout)
    y, bands = _pictures(measurement, layout), next((_band_count(t, code.shape) for t in truths), 0)
    if not bands:
        raise InputError(f"{layout.where}: one mask does not tell the number of bands; give a mask for every band")
    m = dual_disperser(torch.from_numpy(np.ascontiguousarray(code)), bands, step).numpy()
    return Arranged(y, m, _truth(truths, m.shape, layout, []), None, False, ())


def _pictures(measurement: Array, layout: Layout) -> Array:
    """(N, H, W)."""
    y = np.squeeze(measurement)
    if y.ndim not in (2, 3):
        raise InputError(f"{layout.where}: snapshots of a spectrum must have 2 or 3 axes, got {y.shape}; reshape them")
    return y[None] if y.ndim == 2 else front(y, layout.leads(3)[0])


def _bands(
    detector: tuple[int, ...], mask: tuple[int, ...], step: BandStep, where: str, known: int | None = None
) -> int:
    """How many bands lie on the detector."""
    counts = {(n - own) / abs(s) + 1 for n, own, s in zip(detector, mask, step, strict=True) if s}
    still = all(n == own for n, own, s in zip(detector, mask, step, strict=True) if not s)
    count = counts.pop() if len(counts) == 1 else 0
    if not still or count < 1 or count != int(count) or known not in (None, int(count)):
        raise InputError(
            f"{where}: a detector of {detector} and masks of {mask} do not fit to bands that move by {step} pixels "
            "(down, right); give the step with --kind dispersed:DOWN,RIGHT"
        )
    return int(count)


def _cube(cube: Array, size: tuple[int, ...], layout: Layout) -> Array | None:
    """(L, *size) from a cube with its bands first or last; None if its pictures have another size."""
    for lead in layout.mask_leads(3):
        if front(cube, lead).shape[1:] == size:
            return front(cube, lead)
    return None


def _moved_back(band: Array, k: int, step: BandStep, reach: list[int], size: tuple[int, ...]) -> Array:
    top, left = ((r if s < 0 else 0) + k * s for r, s in zip(reach, step, strict=True))
    return band[top : top + size[0], left : left + size[1]]


def _band_count(truth: Array, size: tuple[int, ...]) -> int:
    rest = [n for n in truth.shape if n not in size]
    return rest[0] if truth.ndim == 3 and len(rest) == 1 else 0


def _truth(truths: list[Array], shape: tuple[int, ...], layout: Layout, notes: list[str]) -> Array | None:
    """(M, L, H, W)."""
    found = [_cube(np.squeeze(t), shape[1:], layout) for t in truths if np.squeeze(t).ndim == 3]
    cubes = [cube for cube in found if cube is not None and len(cube) == shape[0]]
    if truths and not cubes:
        notes.append("left the truth out: it is not of the size of the cube")
    return np.stack(cubes) if cubes else None


def _nanometres(known: Array, notes: list[str]) -> list[float]:
    """Wavelengths in nm, µm or m as nm; none if they are no wavelengths, such as the numbers of the bands."""
    numbers = np.array_equal(np.diff(known), np.ones(len(known) - 1)) and known[0] in (0, 1)
    for unit, factor in (("nm", 1.0), ("µm", 1e3), ("m", 1e9)):
        if not numbers and (factor * known >= 100).all() and (factor * known <= 30_000).all():
            if factor > 1:
                notes.append(f"took the wavelengths for {unit}")
            return [float(value) for value in factor * known]
    notes.append(f"left the wavelengths out: {known[0]:g} to {known[-1]:g} are none")
    return []


def wavelengths(arrays: dict[str, Array], bands: int, notes: list[str]) -> list[float]:
    """Nanometres of each band, as the file says; of 28 the field's, of other numbers none: []."""
    for name, a in arrays.items():
        known = np.asarray(a).ravel()
        if name.lower() not in _WAVELENGTHS or known.size != bands or known.dtype.kind not in "iuf":
            continue
        if np.isfinite(known).all() and (found := _nanometres(known.astype(np.float64), notes)):
            return found
    if bands != len(FIELD):
        notes.append("the wavelengths are not stored: a picture is coloured as if they went from 450 to 650 nm")
        return []
    notes.append(f"the wavelengths are not stored: took those of the field for {bands} bands")
    return list(FIELD)
