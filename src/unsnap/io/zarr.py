"""Zarr arrays, version 2, as folders: one file for each frame, not compressed; any Zarr library reads them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from unsnap.errors import InputError
from unsnap.io.budget import claim
from unsnap.io.checks import MAX_ARRAYS, Array, is_numeric, read_text, reading
from unsnap.io.sink import zarr as create

ABOUT = ".zarray"
NAMES = re.compile(r"\.zarray|\.zattrs|\d+(\.\d+)+")


def is_array(folder: Path) -> bool:
    return (folder / ABOUT).is_file()


def read(folder: Path) -> Array:
    """An array as `write` leaves it; others are compressed, or cut in other ways."""
    about = read_text(folder / ABOUT, "a Zarr array")
    with reading(folder, "a Zarr array"):
        facts = json.loads(about)
        shape, dtype = tuple(int(n) for n in facts["shape"]), np.dtype(str(facts["dtype"]))
        plain = facts.get("compressor") is None and not facts.get("filters") and facts.get("order") == "C"
        if not plain or tuple(facts["chunks"]) != (1, *shape[1:]) or not is_numeric(dtype):
            raise InputError(
                f"{folder} must be a Zarr array without compression, a chunk for each frame, to be read here; open it "
                "with the zarr package and save it as .npy"
            )
        if not 0 < shape[0] <= MAX_ARRAYS or min(shape) < 1:
            raise ValueError(f"the shape {shape}")
        claim(folder, math.prod(shape) * dtype.itemsize)
        size, frames = math.prod(shape[1:]), []
        for k in range(shape[0]):
            path = folder / ".".join(map(str, (k, *[0] * (len(shape) - 1))))
            if path.stat().st_size != size * dtype.itemsize:
                raise ValueError(f"{path.name} is cut short")
            frames.append(np.fromfile(path, dtype))
    return np.stack(frames).reshape(shape)


def write(path: Path, video: Array, fps: float, wavelengths: Sequence[float] | None = None) -> None:
    sink = create(path, video.shape, wavelengths)
    for k, frame in enumerate(video):
        for colour in range(3 if video.ndim == 4 else 1):
            sink.put(k, slice(0, len(frame)), frame[..., colour] if video.ndim == 4 else frame, colour)
