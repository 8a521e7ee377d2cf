"""Bring masks, measurement and truth to units in which the video lies in [0, 1]."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unsnap.operators import CAMERAS
from unsnap.scene import Scene

Array = NDArray[np.float32]

LEVELS = (255.0, 1023.0, 4095.0, 16383.0, 65535.0)
# Candidate factors lie far apart; anything closer than this to y = Φx is the same unit with noise or a small gain.
CLOSE = 0.2


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

    def record(self) -> dict[str, Any]:
        return {
            "mask_scale": self.mask_scale,
            "white": self.white if self.white is not None else self.factor,
            "measurement_factor": self.factor,
        }


def measure_units(
    measurement: Array,
    masks: Array,
    truth: Array | None,
    scale: float | None = None,
    colour: bool = False,
    camera: str = "snapshot",
) -> Units:
    """Units of y (N, H, W), m ([N,] T, H, W) and x (M, T, H, W) or None; `scale` fixes the measurement's factor."""
    mask_scale = scale_of_masks(masks)
    notes = [f"divided the masks by their maximum {mask_scale:g}"] if mask_scale != 1 else []
    if truth is not None:
        return _from_truth(measurement, masks, truth, mask_scale, scale, colour, notes, camera)
    if scale is not None:
        return Units(mask_scale, None, scale, notes=(*notes, f"white is {scale:g} as asked"))
    factor, note = guess_white(measurement, masks / np.float32(mask_scale))
    return Units(mask_scale, None, factor, notes=(*notes, note))


def scale_of_masks(masks: Array) -> float:
    """The largest |m|, when it is above 1; masks within [-1, 1] keep their values."""
    return max(float(np.abs(masks).max()), 1.0)


def white_of_truth(truth: Array) -> float:
    """The white level of a video by its maximum: 1, 255, 1023, 4095, 16383 or 65535."""
    top = float(truth.max())
    if top <= 1.5:
        return 1.0
    return next((level for level in LEVELS if top <= 1.02 * level), top)


def guess_white(measurement: Array, masks: Array) -> tuple[float, str]:
    """White level of a measurement without truth, from the bright end of y / Σ|m|, and how it was found."""
    total = np.abs(masks).sum(-3)
    total = np.broadcast_to(total, measurement.shape)
    seen = total > 0.05 * np.median(total)
    level = float(np.percentile(np.abs(measurement[seen]) / total[seen], 99.9)) if seen.any() else 0.0
    if level == 0 or 0.02 <= level <= 1.3:
        return 1.0, "took the measurement for a video in 0 to 1"
    if 1.3 < level <= 1.3 * 255 and is_binary(masks):
        return 255.0, "took the measurement for a video in 0 to 255"
    white = level / 0.9
    return white, f"units unknown: set white to {white:.4g}, so that the bright end lies at 0.9; --scale overrides it"


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
) -> Units:
    """Choose the (white, factor) pair, and the order of colours, for which y/factor is nearest to Φ(x/white)."""
    known = measurement[: len(truth)]
    white = white_of_truth(truth)
    frames = masks.shape[-3]
    if scale is None:
        bases = dict.fromkeys((white * mask_scale, white, mask_scale, 1.0))
        options = [(white, base / div) for div, base in product((1, frames), bases)]
    else:
        options = [(w, scale) for w in dict.fromkeys((white, scale, scale / mask_scale, 1.0))]
    orders = (False, True) if colour else (False,)
    best = (np.inf, options[0], False)
    for order in orders:
        own = masks.ndim > CAMERAS.find(camera).RANK
        coded = encode(masks[: len(truth)] if own else masks, reverse(truth) if order else truth, camera)
        for w, factor in options:
            error = relative_error(known / np.float32(factor), coded / np.float32(w * mask_scale))
            if error < best[0] - 1e-6:
                best = (error, (w, factor), order)
    error, (w, factor), order = best
    if error > CLOSE:
        (w, factor), order = options[0], False
    if order:
        notes.append("reversed the colour order of the truth, which fits the measurement")
    notes.append(f"divided the truth by {w:g} and the measurement by {factor:g}")
    return Units(mask_scale, w, factor, order, tuple(notes))


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
