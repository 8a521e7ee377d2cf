"""Still images through Pillow, and folders of them written as frames."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from unsnap.errors import InputError
from unsnap.io.atomic import FRAME_NAME
from unsnap.io.budget import PICTURES, claim
from unsnap.io.checks import MAX_SIDE, Array, as_bytes, reading

_FORMATS = ("PNG", "JPEG", "BMP")
ROW = 8
"""Frames in a row of a strip."""


def read(path: Path, colour: bool = False) -> Array:
    """One grey image (H, W): uint8 or uint16 as stored, colour as luma; or in colour, (H, W, 3) of 8 bits."""
    from PIL import Image

    # Only these formats: Pillow would hand others to programs outside, PostScript for one.
    with reading(path, "an image", Image.DecompressionBombError), Image.open(path, formats=_FORMATS) as image:
        if max(image.size) > MAX_SIDE:
            raise InputError(f"{path} has {image.width} × {image.height} pixels; a side may have {MAX_SIDE}: crop it")
        claim(path, 12 * image.width * image.height, PICTURES)
        if not image.mode.startswith("I"):
            return np.array(image.convert("RGB" if colour else "L"))
        wide = np.array(image)
        if wide.min() < 0 or wide.max() > 65535:
            raise InputError(f"{path} must hold 8 or 16 bits per pixel, found {wide.max()}; export it as 16-bit")
        return wide.astype(np.uint16)


def write_strip(path: Path, video: Array, fps: float) -> None:
    """All frames beside each other as one 8-bit PNG, in rows of eight."""
    from PIL import Image

    frames = as_bytes(video)
    row = min(len(frames), ROW)
    blank = np.zeros((-len(frames) % row, *frames.shape[1:]), np.uint8)
    grid = np.concatenate([frames, blank]).reshape(-1, row, *frames.shape[1:])
    height, width = frames.shape[1:3]
    sheet = grid.swapaxes(1, 2).reshape(len(grid) * height, row * width, *frames.shape[3:])
    if max(sheet.shape[:2]) > MAX_SIDE:
        raise InputError(f"{len(frames)} frames of {height}×{width} are too large for one picture; write .tif or .mp4")
    buffer = io.BytesIO()
    Image.fromarray(sheet).save(buffer, format="png")
    path.write_bytes(buffer.getvalue())


def write_frames(folder: Path, video: Array, fps: float) -> None:
    """8-bit PNG frames frame_0001.png …"""
    from PIL import Image

    for number, frame in enumerate(video, start=1):
        # Encoded in memory: Pillow hides the reason when the disk fills up under it.
        buffer = io.BytesIO()
        Image.fromarray(as_bytes(frame)).save(buffer, format="png")
        (folder / FRAME_NAME.format(number)).write_bytes(buffer.getvalue())
