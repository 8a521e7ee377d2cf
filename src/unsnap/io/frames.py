"""Still images: one picture, or a folder of numbered frames."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from unsnap.errors import InputError
from unsnap.io.arrays import read_tiff
from unsnap.io.atomic import FRAME_NAME, atomic_folder
from unsnap.io.checks import Array, check_size, existing, native, reading

IMAGES = (".png", ".jpg", ".jpeg", ".bmp")
FRAMES = (*IMAGES, ".tif", ".tiff")


def natural(path: Path) -> tuple[list[tuple[int, int, str]], str]:
    """Sort key by which frame10 follows frame9."""
    parts = re.findall(r"([0-9]+)|([^0-9]+)", path.name.lower())
    return [(0, int(number), "") if number else (1, 0, text) for number, text in parts], path.name


def frame_paths(folder: Path) -> list[Path]:
    """The frames of a folder in natural order, hidden files left out."""
    names = (entry for entry in folder.iterdir() if entry.suffix.lower() in FRAMES and entry.is_file())
    return sorted((entry for entry in names if not entry.name.startswith(".")), key=natural)


def read_image(path: Path) -> Array:
    """One grey image (H, W): uint8 or uint16 as stored, colour as luma, float from TIFF only."""
    if existing(path).stat().st_size == 0:
        raise InputError(f"{path} is empty (0 bytes); copy or export it again")
    if path.suffix.lower() not in IMAGES:
        pages = read_tiff(path).get("array", np.zeros(0))
        if pages.ndim != 3 or len(pages) != 1:
            raise InputError(
                f"{path} must be one grey page to serve as a frame, got shape {pages.shape}; split the stack"
            )
        frame: Array = pages[0]
        return frame
    from PIL import Image

    with reading(path, "an image", Image.DecompressionBombError), Image.open(path) as image:
        if not image.mode.startswith("I"):
            return np.array(image.convert("L"))
        wide = np.array(image)
        if wide.min() < 0 or wide.max() > 65535:
            raise InputError(f"{path} must hold 8 or 16 bits per pixel, found {wide.max()}; export it as 16-bit")
        return wide.astype(np.uint16)


def read_frames(paths: Sequence[Path]) -> Array:
    """(T, H, W) from images of one size and one depth."""
    first = native(read_image(paths[0]))
    check_size(paths[0].parent, first.nbytes * len(paths))
    video = np.empty((len(paths), *first.shape), first.dtype)
    for target, path in zip(video, paths, strict=True):
        frame = read_image(path)
        if frame.shape != first.shape or frame.dtype != first.dtype:
            raise InputError(
                f"{path} is {_describe(frame)} but {paths[0].name} is {_describe(first)}; "
                "all frames of a folder must be alike: remove or convert the odd one"
            )
        target[...] = frame
    return video


def _describe(frame: Array) -> str:
    return f"{frame.shape[0]}×{frame.shape[1]} {frame.dtype}"


def write_frames(path: Path, video: Array) -> None:
    """8-bit PNG frames frame_0001.png … in a folder that appears all at once."""
    from PIL import Image

    with atomic_folder(path) as temporary:
        for number, frame in enumerate(video, start=1):
            # Encoded in memory: Pillow hides the reason when the disk fills up under it.
            buffer = io.BytesIO()
            Image.fromarray(frame).save(buffer, format="png")
            (temporary / FRAME_NAME.format(number)).write_bytes(buffer.getvalue())
