"""Which array of a file is the measurement, which the masks, which the true video."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unsnap.errors import InputError, short
from unsnap.io.mat import unread

Array = NDArray[Any]

# Lower case, best name first; these are the names used by the field's published files.
MASK_NAMES = ("mask", "masks", "mask_3d", "mask3d", "phi", "code", "codes", "c", "mask_bayer")
MEASUREMENT_NAMES = (
    *("meas", "measurement", "measurements", "meas_t", "meas_real", "meas_bayer"),
    *("snapshot", "snapshots", "coded", "y"),
)
TRUTH_NAMES = (
    *("orig", "truth", "gt", "ground_truth", "patch_save", "orig_bayer", "video", "vid", "frames", "img", "image"),
    *("images", "x"),
)
UNCERTAIN = ("video", "vid", "frames", "img", "image", "images", "x")
"""Names of the truth that may as well be those of something else"""
NUMBERED = re.compile(r"p(\d+)")


@dataclass(frozen=True)
class Roles:
    """Names of the arrays that play each role; numbered patches p1, p2, … together make the truth."""

    measurement: str
    masks: str
    truth: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def pictures(arrays: dict[str, Array]) -> dict[str, Array]:
    """The arrays that can be images or stacks of images: at least two axes longer than one."""
    return {
        name: a
        for name, a in arrays.items()
        if not name.startswith("__") and a.ndim >= 2 and (a.size == 0 or sum(n > 1 for n in a.shape) >= 2)
    }


def describe(arrays: dict[str, Array], where: str = "") -> str:
    """`meas (256, 256), mask (256, 256, 8)`: what a file holds, for messages; and which cells were not read of it."""
    return (", ".join(f"{name} {a.shape}" for name, a in arrays.items()) or "nothing") + unread(where)


def assign(
    arrays: dict[str, Array],
    where: str,
    separate_masks: bool = False,
    measurement_key: str | None = None,
    masks_key: str | None = None,
) -> Roles:
    """Assign the roles by key where one is given, else by name and, where no name fits, by shape.

    separate_masks: they come from another file.
    """
    found = pictures(arrays)
    measurement = _asked(arrays, measurement_key, "--measurement-key", where) or _named(found, MEASUREMENT_NAMES)
    masks = None
    if not separate_masks:
        masks = _asked(arrays, masks_key, "--masks-key", where) or _named(
            {name: a for name, a in found.items() if name != measurement}, MASK_NAMES
        )
    if measurement is not None and measurement == masks:
        raise InputError(
            f"{where}: {short(masks)} cannot be both the measurement and the masks; give another --masks-key"
        )
    truth = tuple(name for name in _truth(found) if name not in (measurement, masks))
    free = {name: a for name, a in found.items() if name not in {measurement, masks, *truth}}
    if separate_masks:
        free = {name: a for name, a in free.items() if name != _named(found, MASK_NAMES)}
    guessed, notes = _by_shape(free, measurement, masks, separate_masks)
    measurement, masks = guessed
    if measurement is None:
        raise InputError(_no_measurement(where, arrays, masks, truth))
    if masks is None and not separate_masks:
        raise InputError(
            f"{where}: no masks among {describe(arrays, where)}; say which with --masks-key NAME, or give --masks FILE"
        )
    return Roles(measurement, masks or "", truth, tuple(notes))


def assign_masks(arrays: dict[str, Array], where: str, key: str | None = None) -> str:
    """The name of the masks in a file that was given for its masks."""
    found = pictures(arrays)
    name = _asked(arrays, key, "--masks-key", where) or _named(found, MASK_NAMES)
    if name is None and len(found) == 1:
        name = next(iter(found))
    if name is None:
        raise InputError(
            f"{where}: no masks among {describe(arrays, where)}; say which they are with --masks-key NAME, or keep "
            "them alone in the file"
        )
    return name


def _asked(arrays: dict[str, Array], key: str | None, option: str, where: str) -> str | None:
    if key is not None and key not in arrays:
        raise InputError(
            f"{where}: {option} {short(key)} is not among {describe(arrays, where)}; give one of these names"
        )
    return key


def _named(found: dict[str, Array], names: tuple[str, ...]) -> str | None:
    lower = {_last(name): name for name in sorted(found, key=lambda name: -name.count("/"))}  # the outer wins
    return next((lower[name] for name in names if name in lower), None)


def is_uncertain(roles: Roles) -> bool:
    """May what is taken for the truth be none?"""
    return any(_last(name) in UNCERTAIN for name in roles.truth)


def _last(name: str) -> str:
    """The name inside its group or struct: "Scene/Meas" is a "meas"."""
    return name.rpartition("/")[2].lower()


def _truth(found: dict[str, Array]) -> tuple[str, ...]:
    name = _named(found, TRUTH_NAMES)
    if name is not None:
        return (name,)
    numbered = [(int(m[1]), name) for name in found if (m := NUMBERED.fullmatch(_last(name)))]
    return tuple(name for _, name in sorted(numbered))


def _by_shape(
    free: dict[str, Array], measurement: str | None, masks: str | None, separate_masks: bool
) -> tuple[tuple[str | None, str | None], list[str]]:
    """Fill a missing role when only one unnamed array can play it."""
    notes = []
    if measurement is None and masks is None and not separate_masks:
        flat = [n for n, a in free.items() if np.squeeze(a).ndim == 2]
        deep = [n for n, a in free.items() if np.squeeze(a).ndim == 3]
        if len(free) == 2 and len(flat) == 1 and len(deep) == 1:
            measurement, masks = flat[0], deep[0]
            notes = [f"took {measurement!r} for the measurement and {masks!r} for the masks, by their shapes"]
    elif measurement is None and len(free) == 1:
        measurement = next(iter(free))
        notes = [f"took {measurement!r} for the measurement: the only array left"]
    elif masks is None and not separate_masks and [a.ndim >= 3 for a in free.values()] == [True]:
        masks = None if _named(free, MEASUREMENT_NAMES) else next(iter(free))
        notes = [] if masks is None else [f"took {masks!r} for the masks: the only array left"]
    return (measurement, masks), notes


def _no_measurement(where: str, arrays: dict[str, Array], masks: str | None, truth: tuple[str, ...]) -> str:
    thin = [name for name in arrays if name in MEASUREMENT_NAMES and name not in pictures(arrays)]
    if thin:
        return f"{where}: {thin[0]} {arrays[thin[0]].shape} is no picture, which has at least two rows and columns"
    if truth:
        return (
            f"{where}: no measurement among {describe(arrays)}, only the true video {truth[0]!r}; "
            "make the measurement with `unsnap simulate`"
        )
    if masks is None and len(pictures(arrays)) == 1:
        held = describe(arrays, where)
        return f"{where}: no masks beside {held}; if this is the measurement, give its masks with --masks FILE"
    held = f", only the masks {masks!r}" if masks else ""
    which = "--measurement-key NAME" + ("" if masks else " and --masks-key NAME")
    left = unread(where) or " (text, cells and sparse matrices are not read)"
    return f"{where}: no measurement among {describe(arrays)}{held}{left}; say which is which with {which}"
