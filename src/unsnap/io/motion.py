"""Masks that a file gives as one mask and its way."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from unsnap.errors import InputError
from unsnap.io.axes import Array, Layout
from unsnap.io.budget import claim
from unsnap.masks import moving

Places = Sequence[tuple[float, float]]
# Bytes per value of what is stacked, moved and cut out on the way.
CONVERTED = 20


def moving_masks(mask: Array, where: str, motion: Places, measurement: Array, layout: Layout) -> Array:
    """The masks (T, H, W) that one mask makes on its way, for pictures as large as those of the measurement."""
    plate = np.squeeze(mask)
    if plate.ndim != 2:
        raise InputError(f"{where}: --motion needs one mask (H, W), found {mask.shape}; leave it out, or give one mask")
    size = measurement.shape[:2] if layout.time_last else measurement.shape[-2:]
    claim(Path(where), CONVERTED * len(motion) * max(plate.size, math.prod(size)))
    try:
        return moving(torch.from_numpy(plate.astype(np.float32)), motion, *size).numpy()
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
