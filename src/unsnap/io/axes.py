"""Bring arrays in any layout to (N, H, W), (T, H, W) and (M, T, H, W) by letting their sizes agree."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import permutations, product
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unsnap.errors import InputError
from unsnap.operators import camera as make

Array = NDArray[Any]
Size = tuple[int, ...]
Lead = tuple[int, ...]
COLOURS = 3


@dataclass(frozen=True)
class Layout:
    """How the axes of a file are to be read.

    time_last: MATLAB's H×W×T is the container's habit, otherwise T×H×W; habit decides only what sizes leave open.
    masks_last: the same for the masks, which may come from another file.
    fixed: the habit is a promise (a file written by unsnap). time_axis: the masks' time axis as the user states it.
    transpose_masks: the masks are stored W×H.
    """

    where: str
    time_last: bool
    masks_last: bool
    fixed: bool = False
    time_axis: int | None = None
    transpose_masks: bool = False

    def leads(self, ndim: int) -> list[Lead]:
        """Candidates for the leading axes of measurement and truth, usual first: (n,) of three axes, (n, t) of four."""
        return _leads(ndim, self.time_last, self.fixed)

    def mask_leads(self, ndim: int) -> list[Lead]:
        """The same for the masks: (t,) of three axes, (n, t) of four."""
        return _leads(ndim, self.masks_last, self.fixed)


@dataclass(frozen=True)
class Arranged:
    """Measurement (N, H, W), masks (T, H, W) or (N, T, H, W), truth (M, T, H, W) or None, still in the file's units."""

    measurement: Array
    masks: Array
    truth: Array | None
    time_axis: int | None
    colour: bool
    notes: tuple[str, ...]


def arrange(measurement: Array, masks: Array, truths: list[Array], layout: Layout) -> Arranged:
    """Order all axes; InputError when no order makes the sizes agree."""
    for name, a in (("measurement", measurement), ("masks", masks), *(("truth", t) for t in truths)):
        if a.ndim not in (2, 3, 4):
            raise InputError(f"{layout.where}: {name} must have 2 to 4 axes, found shape {a.shape}; reshape it")
    y_lead, m_lead = match(measurement, masks, layout)
    y, planes = _planes(front(measurement, y_lead))
    m = front(masks, m_lead)
    m = m.reshape(1, *m.shape) if m.ndim == 2 else m
    m = np.swapaxes(m, -1, -2) if layout.transpose_masks else m
    notes = ["transposed the masks (W×H to H×W) as asked"] if layout.transpose_masks else []
    x, colour = None, planes
    if truths:
        x, colour = _arrange_truth(truths, y, m.shape[-3], planes, layout, notes)
    return Arranged(y, m, x, m_lead[-1] if m_lead else None, colour, tuple(notes))


def as_shots(arranged: Arranged, where: str) -> Arranged:
    """K snapshots, each with masks of its own, as one capture of K shots of the same video."""
    if arranged.masks.ndim != 4:
        raise InputError(
            f"{where}: several shots of one video need masks for each (K, T, H, W), found one set "
            f"{arranged.masks.shape}; leave out --kind multishot, or give the masks of all shots"
        )
    truth = None if arranged.truth is None else arranged.truth[:1]
    notes = (*arranged.notes, f"took the {len(arranged.measurement)} snapshots for shots of one video")
    return replace(arranged, measurement=arranged.measurement[None], truth=truth, notes=notes)


def in_order(measurement: Array, masks: Array, truths: list[Array], layout: Layout, camera: str) -> Arranged:
    """Arrays whose axes are in the container's own order, for cameras other than one snapshot; N may be left out."""
    y, m = (leading_first(a, last) for a, last in ((measurement, layout.time_last), (masks, layout.masks_last)))
    m = np.swapaxes(m, -1, -2) if layout.transpose_masks else m
    phi = make(camera, torch.from_numpy(np.ascontiguousarray(m)))
    y = y[None] if y.ndim == len(phi.image) else y
    x = None
    if truths:
        size, known = tuple(phi.video), [leading_first(t, layout.time_last) for t in truths]
        if any(t.shape[-2:] != size[1:] for t in known):
            raise InputError(f"{layout.where}: the truth must hold frames of {size[1]}×{size[2]}; leave it out")
        frames = np.concatenate([t.reshape(-1, *size[1:]) for t in known])
        x = frames[: len(frames) // size[0] * size[0]].reshape(-1, *size)
    return Arranged(y, m, x, None, False, ())


def leading_first(a: Array, last: bool) -> Array:
    """(…, H, W) from MATLAB's (H, W, …) with its leading axes in reverse."""
    return a.transpose((*range(a.ndim - 1, 1, -1), 0, 1)) if last else a


def front(a: Array, lead: Lead) -> Array:
    """Move the axes `lead` to the front; the two image axes keep their order."""
    return a.transpose(lead + tuple(i for i in range(a.ndim) if i not in lead))


def _leads(ndim: int, last: bool, fixed: bool) -> list[Lead]:
    first_axes, last_axes = tuple(range(ndim - 2)), tuple(range(ndim - 1, 1, -1))
    usual, opposite = (last_axes, first_axes) if last else (first_axes, last_axes)
    rest = sorted(permutations(range(ndim), ndim - 2), reverse=last)
    return [usual] if fixed else list(dict.fromkeys([usual, opposite, *rest]))


def _size(a: Array, lead: Lead) -> Size:
    return tuple(n for i, n in enumerate(a.shape) if i not in lead)


def match(measurement: Array, masks: Array, layout: Layout) -> tuple[Lead, Lead]:
    """The first pair of layouts whose images have one size; T as large as both H and W only if nothing else fits."""
    pairs = _agreeing(measurement, masks, layout, swapped=layout.transpose_masks)
    if not pairs:
        raise InputError(_disagreement(measurement, masks, layout))
    likely = [(y, m) for y, m in pairs if m and masks.shape[m[-1]] < max(_size(masks, m))]
    return (likely or pairs)[0]


def _agreeing(measurement: Array, masks: Array, layout: Layout, swapped: bool) -> list[tuple[Lead, Lead]]:
    axis = layout.time_axis
    if axis is not None and not -masks.ndim <= axis < masks.ndim:
        raise InputError(
            f"{layout.where}: --time-axis {axis} must be an axis of the masks {masks.shape}; "
            f"choose 0 to {masks.ndim - 1}"
        )
    step = -1 if swapped else 1
    pairs = []
    for m, y in product(layout.mask_leads(masks.ndim), layout.leads(measurement.ndim)):
        asked = axis is None or (m != () and m[-1] == axis % masks.ndim)
        coloured = measurement.ndim < 4 or measurement.shape[y[1]] == COLOURS
        count = int(np.prod([measurement.shape[i] for i in y]))
        paired = masks.ndim < 4 or masks.shape[m[0]] == count
        if asked and coloured and paired and _size(masks, m)[::step] == _size(measurement, y):
            pairs.append((y, m))
    return pairs


def _disagreement(measurement: Array, masks: Array, layout: Layout) -> str:
    said = f"{layout.where}: masks {masks.shape} and measurement {measurement.shape}"
    if _agreeing(measurement, masks, layout, swapped=not layout.transpose_masks):
        if layout.transpose_masks:
            return f"{said} agree in height and width without transposing; leave out --transpose-masks"
        return f"{said} have height and width exchanged; give --transpose-masks"
    if layout.time_axis is not None:
        return f"{said} do not agree in image size with time on axis {layout.time_axis}; leave out --time-axis"
    if sum(side > 1 for side in masks.shape) == 2:
        return f"{said} do not agree in image size; if it is one mask that moves, give its way with --motion DY,DX,T"
    return (
        f"{said} do not agree in image size (or number of snapshots); give the masks of this capture with --masks FILE"
    )


def _planes(y: Array) -> tuple[Array, bool]:
    """(k, 3, H, W) colour snapshots become 3k snapshots; (H, W) becomes one."""
    return y.reshape(-1, *y.shape[-2:]), y.ndim == 4


def _arrange_truth(
    truths: list[Array], y: Array, frames: int, planes: bool, layout: Layout, notes: list[str]
) -> tuple[Array, bool]:
    parts = [_groups(t, y, frames, planes, layout) for t in truths]
    if len({len(p) for p, _ in parts}) > 1:
        raise InputError(f"{layout.where}: the truth is in grey and colour parts; store one kind")
    stacked = np.concatenate([p for p, _ in parts], axis=1)
    colour = planes or any(c for _, c in parts)
    groups, rest = divmod(stacked.shape[1], frames)
    if groups == 0:
        raise InputError(
            f"{layout.where}: the truth has {stacked.shape[1]} frames but the masks code {frames} per snapshot; "
            "give the masks of this capture with --masks FILE"
        )
    if rest:
        notes.append(f"dropped the last {rest} frames of the truth: not a whole group of {frames}")
    x = stacked[:, : groups * frames].reshape(-1, groups, frames, *y.shape[-2:])
    x = np.swapaxes(x, 0, 1).reshape(-1, frames, *y.shape[-2:])
    if len(x) > len(y):
        notes.append(f"dropped the truth of {len(x) - len(y)} snapshots that have no measurement")
    elif len(x) < len(y):
        notes.append(f"the truth is known for the first {len(x)} of {len(y)} snapshots only")
    return x[: len(y)], colour


def _groups(truth: Array, y: Array, frames: int, planes: bool, layout: Layout) -> tuple[Array, bool]:
    """Truth as (colours, frames, H, W) with one colour for grey video, and whether it is coloured."""
    size = y.shape[-2:]
    leads = [lead for lead in layout.leads(truth.ndim) if _size(truth, lead) == size]
    if layout.time_axis is not None and truth.ndim == 3:
        asked = (layout.time_axis % 3,)
        leads.sort(key=lambda lead: lead != asked)
    if not leads:
        raise InputError(_truth_disagreement(truth, size, layout))
    if truth.ndim < 4:
        return front(truth, leads[0]).reshape(1, -1, *size), False
    shape = truth.shape
    usual = layout.leads(4)[0]
    whole = [lead for lead in leads if shape[lead[1]] == frames and not planes]
    if whole and whole[0] == usual:
        return front(truth, usual).reshape(1, -1, *size), False
    coloured = [lead for lead in leads if shape[lead[0]] == COLOURS and len(y) % COLOURS == 0]
    if coloured:
        best = max(coloured, key=lambda lead: shape[lead[1]] % frames == 0)
        return front(truth, best), True
    if whole and shape[whole[0][0]] != COLOURS:
        return front(truth, whole[0]).reshape(1, -1, *size), False
    raise InputError(
        f"{layout.where}: a truth of shape {shape} is neither groups of {frames} frames nor colour frames "
        f"for {len(y)} snapshots; store it as frames × height × width"
    )


def _truth_disagreement(truth: Array, size: Size, layout: Layout) -> str:
    said = f"{layout.where}: the truth {truth.shape}"
    if any(_size(truth, lead) == size[::-1] for lead in layout.leads(truth.ndim)):
        return (
            f"{said} has height and width exchanged against the measurement {size}; store it transposed or leave it out"
        )
    return f"{said} does not hold frames of the measurement's size {size}; store frames of that size or leave it out"
