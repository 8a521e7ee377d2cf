"""Zarr arrays, version 2, as folders: one file for each frame, not compressed; any Zarr library reads them."""

from __future__ import annotations

import re
from pathlib import Path

from unsnap.io.checks import Array

NAMES = re.compile(r"\.zarray|\.zattrs|\d+(\.\d+)+")


def write(path: Path, video: Array, fps: float) -> None:
    from unsnap.io.sink import create

    sink = create(path, ".zarr", video.shape)
    for k, frame in enumerate(video):
        for colour in range(3 if video.ndim == 4 else 1):
            sink.put(k, slice(0, len(frame)), frame[..., colour] if video.ndim == 4 else frame, colour)
