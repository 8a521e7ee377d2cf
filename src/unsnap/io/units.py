"""Bring masks, measurement and truth to units in which the video lies in [0, 1]."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from unsnap.operators import camera as make
from unsnap.operators import kind_of
from unsnap.scene import Scene

Array = NDArray[np.float32]

LEVELS = (255.0, 1023.0, 4095.0, 16383.0, 65535.0)
# Candidate factors lie far apart; anything closer than this to y = Φx is the same unit with noise or a small gain.
CLOSE = 0.2
# Masks whose brightest pixel exceeds the 99.5th percentile by more than this have hot pixels.
SPREAD = 1.25
# Arrays whose largest value lies within 2 to the power of ± this are taken as they are.
MODEST = 40


class Powers(NamedTuple):
    """The arrays hold the file's values divided by 2 to these powers: 0 but for files of extreme scale."""

    measurement: int = 0
    masks: int = 0
    truth: int = 0

    @property
    def own(self) -> float:
        """In the arrays, y = own · Σ m x where the file has y = Σ m x."""
        return power(1.0, self.masks - self.measurement)


AS_STORED = Powers()


def modest(arrays: list[NDArray[Any]], always: bool = False) -> tuple[list[Array], int]:
    """As float32, divided by a power of two where that could not hold them, or their squares; and the power.

    Denormal numbers and those that only float64 holds keep their digits. always: they are known to be modest.
    """
    if always:
        return [np.asarray(a, dtype=np.float32) for a in arrays], 0
    # As long doubles: the smallest integer of a type has no opposite in it, and float64 goes beyond Python's float.
    top = max((abs(np.longdouble(end)) for a in arrays if a.size for end in (a.max(), a.min())), default=0)
    exponent = int(np.frexp(np.longdouble(top))[1]) - 1
    if abs(exponent) <= MODEST or top == 0:
        return [np.asarray(a, dtype=np.float32) for a in arrays], 0
    wide = [a if a.dtype.kind == "f" and a.itemsize >= 8 else a.astype(np.float64) for a in arrays]
    with np.errstate(under="ignore"):
        return [np.ldexp(a, -exponent).astype(np.float32) for a in wide], exponent


def power(value: float, exponent: int) -> float:
    """value · 2^exponent, infinite where a float cannot hold it."""
    try:
        return math.ldexp(value, exponent)
    except OverflowError:
        return math.inf


@dataclass(frozen=True)
class Units:
    """Divide the masks by mask_scale, the truth by white (None without truth) and the measurement by factor.

    `factor` is what a white pixel adds to the measurement through one fully open mask.
    """

    mask_scale: float
    white: float | None
    factor: float
    reverse_colours: bool = False
    notes: tuple[str, ...] = ()
    guessed: bool = False
    """Nothing but the measurement itself told `factor`."""

    def record(self, powers: Powers) -> dict[str, Any]:
        """In the file's units; what no float can hold is None."""
        factor = power(self.factor, powers.measurement)
        white = factor if self.white is None else power(self.white, powers.truth)
        record = {"mask_scale": power(self.mask_scale, powers.masks), "white": white, "measurement_factor": factor}
        numbers: dict[str, Any] = {key: value if math.isfinite(value) else None for key, value in record.items()}
        return {**numbers, "white_guessed": self.guessed}


def measure_units(
    measurement: Array,
    masks: Array,
    truth: Array | None,
    scale: float | None = None,
    colour: bool = False,
    camera: str = "snapshot",
    powers: Powers = AS_STORED,
    weights: Array | None = None,
) -> Units:
    """Units of y (N, H, W), m ([N,] T, H, W) and x (M, T, H, W) or None; `scale` fixes the measurement's factor.

    weights: as those of a `Scene`, 0 at pixels that say nothing.
    """
    mask_scale = scale_of_masks(masks)
    in_file = power(mask_scale, powers.masks)
    notes = []
    if in_file != 1:
        hot = mask_scale < float(np.abs(masks).max())
        notes = [f"divided the masks by {in_file:g}, {'which few pixels exceed' if hot else 'their maximum'}"]
    if truth is not None:
        return _from_truth(measurement, masks, truth, mask_scale, scale, colour, notes, camera, powers, weights)
    if scale is not None:
        factor = power(scale, -powers.measurement)
        return Units(mask_scale, None, factor, notes=(*notes, f"white is {scale:g} as asked"))
    factor, note = guess_white(measurement, masks / np.float32(mask_scale), powers, mask_scale, camera, weights)
    return Units(mask_scale, None, factor, notes=(*notes, note), guessed=True)


def scale_of_masks(masks: Array) -> float:
    """The largest |m|, when it is above 1; masks within [-1, 1] keep their values. A few hot pixels do not set it."""
    brightest = np.abs(masks).max(-3)  # of every pixel: a shutter may be closed nearly always
    top, usual = float(brightest.max()), float(np.percentile(brightest[brightest > 0], 99.5)) if masks.any() else 0.0
    return max(top if top <= SPREAD * usual else usual, 1.0)


def white_of_truth(truth: Array) -> float:
    """The white level of a video by its maximum: 1, 255, 1023, 4095, 16383 or 65535."""
    top = float(truth.max())
    if top <= 1.5:
        return 1.0
    return next((level for level in LEVELS if top <= 1.02 * level), top)


def guess_white(
    measurement: Array,
    masks: Array,
    powers: Powers = AS_STORED,
    mask_scale: float = 1.0,
    camera: str = "snapshot",
    weights: Array | None = None,
    binary: bool | None = None,
) -> tuple[float, str]:
    """White level of a measurement without truth, from the bright end of y / Σ|m|, and how it was found.

    binary: the masks are those of a 0/1 shutter, though moved between pixels.
    """
    phi = make(camera, torch.from_numpy(np.ascontiguousarray(np.abs(masks))))
    total = phi.A(torch.ones(phi.video)).numpy() * (np.float32(1) if weights is None else weights)
    total = np.broadcast_to(total, measurement.shape)
    seen = total > max(0.05 * np.median(total), 1e-7 * total.max())
    level = float(np.percentile(np.abs(measurement[seen]) / total[seen], 99.9)) if seen.any() else 0.0
    units = [power(1.0, -powers.measurement)]
    if powers.masks or mask_scale > LEVELS[-1]:  # masks that nobody calls white: the measurement may be in their units
        units.append(powers.own * mask_scale)
    for unit in units if phi.pixelwise else []:  # nobody agrees on the white of a spectrum
        if level == 0 or 0.02 * unit <= level <= 1.3 * unit:
            return unit, "took the measurement for a video in 0 to 1"
    if not powers.measurement and 0.2 * 255 < level <= 1.1 * 255 and (is_binary(masks) if binary is None else binary):
        return 255.0, "took the measurement for a video in 0 to 255"
    white = level / 0.9
    in_file = power(white, powers.measurement)
    return white, f"units unknown: set white to {in_file:.4g}, so that the bright end lies at 0.9; --scale overrides it"


def in_range(divisor: float) -> bool:
    """Can arrays near 1 be divided by it, and squared then?"""
    return 2.0**-MODEST <= divisor <= 2.0 ** (2 * MODEST)


def is_binary(masks: Array) -> bool:
    return bool(np.isin(masks, (0.0, 1.0)).all())


def _from_truth(
    measurement: Array,
    masks: Array,
    truth: Array,
    mask_scale: float,
    scale: float | None,
    colour: bool,
    notes: list[str],
    camera: str,
    powers: Powers,
    weights: Array | None,
) -> Units:
    """Choose the (white, factor) pair, and the order of colours, for which y/factor is nearest to Φ(x/white).

    Where none of the usual factors makes them alike, that of the measurement is fitted, unless it is asked for.
    """
    known = measurement[: len(truth)]
    seen = np.broadcast_to(np.float32(1) if weights is None else weights, measurement.shape)[: len(truth)]
    white = white_of_truth(truth)
    frames = masks.shape[-3]
    y_power, m_power, x_power = powers
    if scale is None:
        scales = ((white * mask_scale, x_power + m_power), (white, x_power), (mask_scale, m_power), (1.0, 0))
        bases = dict.fromkeys(power(base, up - y_power) for base, up in scales)
        options = [(white, base / div) for div, base in product((1, frames), bases)]
    else:
        whites = (scale, power(scale / mask_scale, -m_power), 1.0)
        factor = power(scale, -y_power)
        options = [(w, factor) for w in dict.fromkeys((white, *(power(w, -x_power) for w in whites)))]
    orders = (False, True) if colour else (False,)
    best = fitted = (np.inf, options[0], False)
    for order in orders:
        own = masks.ndim > kind_of(camera).RANK
        coded = seen * encode(masks[: len(truth)] if own else masks, reverse(truth) if order else truth, camera)
        for w, factor in options:
            if not in_range(factor) or not in_range(w * mask_scale):
                continue
            error = relative_error(known / np.float32(factor), coded / np.float32(w * mask_scale))
            if error < best[0] - 1e-6:
                best = (error, (w, factor), order)
        if scale is not None or not in_range(white * mask_scale):
            continue
        reference = coded / np.float32(white * mask_scale)
        factor = _slope(known, reference)
        if in_range(factor):
            error = relative_error(known / np.float32(factor), reference)
            fitted = min(fitted, (error, (white, factor), order))
    if best[0] > CLOSE:
        best = fitted if fitted[0] <= CLOSE else (np.inf, options[0], False)
    _, (w, factor), order = best
    if order:
        notes.append("reversed the colour order of the truth, which fits the measurement")
    notes.append(f"divided the truth by {power(w, x_power):g} and the measurement by {power(factor, y_power):g}")
    return Units(mask_scale, w, factor, order, tuple(notes))


def _slope(y: Array, reference: Array) -> float:
    """Of the least-squares line of y against a reference, through 0; 0 if the reference is."""
    x = reference.astype(np.float64)
    energy = float((x * x).sum())
    return float((x * y).sum()) / energy if energy else 0.0


def encode(masks: Array, truth: Array, camera: str) -> Array:
    """Φx of the camera for videos (M, T, H, W)."""
    x, m = (torch.from_numpy(np.ascontiguousarray(part)) for part in (truth, masks))
    values: Array = Scene.of(x, m, camera).measurement.numpy()
    return values


def reverse(truth: Array) -> Array:
    """RGB to BGR: planes are stored colour by colour, three per snapshot."""
    if len(truth) % 3:
        return truth
    return truth.reshape(-1, 3, *truth.shape[1:])[:, ::-1].reshape(truth.shape)


def relative_error(y: Array, reference: Array) -> float:
    """‖y − reference‖ / ‖reference‖ in double precision; 0/0 counts as 0."""
    miss = float(np.linalg.norm((y - reference).astype(np.float64)))
    norm = float(np.linalg.norm(reference.astype(np.float64)))
    return 0.0 if miss == 0 else miss / norm if norm else float("inf")
