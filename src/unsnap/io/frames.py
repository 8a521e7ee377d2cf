"""Folders of numbered frames, in any format that has single frames."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from unsnap.errors import InputError
from unsnap.io.budget import claim, passing
from unsnap.io.checks import MAX_ARRAYS, Array, native
from unsnap.io.formats import find, reader

GREYED = "colours as grey"
"""The name of pictures of a capture whose colours were not kept"""


def natural(path: Path) -> tuple[list[tuple[int, int, str]], str]:
    """Sort key by which frame10 follows frame9."""
    parts = re.findall(r"([0-9]+)|([^0-9]+)", path.name.lower())
    return [(0, int(number), "") if number else (1, 0, text) for number, text in parts], path.name


def frame_paths(folder: Path) -> list[Path]:
    """The frames of a folder in natural order, hidden files left out."""
    names = (entry for entry in folder.iterdir() if find(entry.suffix).read_frame and entry.is_file())
    return sorted((entry for entry in names if not entry.name.startswith(".")), key=natural)


def read_frames(paths: Sequence[Path], colour: bool = False) -> Array:
    """(T, H, W), in colour with a last axis of three, from images of one size and one depth."""
    if len(paths) > MAX_ARRAYS:
        raise InputError(f"{paths[0].parent} holds {len(paths)} frames, more than {MAX_ARRAYS}; keep fewer of them")
    first = _read(paths[0], colour)
    claim(paths[0].parent, first.nbytes * len(paths))
    video = np.empty((len(paths), *first.shape), first.dtype)
    for target, path in zip(video, paths, strict=True):
        frame = _read(path, colour)
        if frame.shape != first.shape or frame.dtype != first.dtype:
            raise InputError(
                f"{path} is {_describe(frame)} but {paths[0].name} is {_describe(first)}; "
                "all frames of a folder must be alike: remove or convert the odd one"
            )
        target[...] = frame
    return video


def coloured(path: Path) -> bool:
    """Is a picture in colour?"""
    picture = _read(path, colour=True)
    return picture.ndim == 3 and not (picture == picture[..., :1]).all()


def _read(path: Path, colour: bool) -> Array:
    read = reader(path).read_frame
    if read is None:
        raise InputError(f"{path} is not a single image and cannot serve as a frame; convert it to png")
    with passing():
        return native(read(path, colour=True) if colour else read(path))


def _describe(frame: Array) -> str:
    return f"{frame.shape[0]}×{frame.shape[1]} {frame.dtype}"
