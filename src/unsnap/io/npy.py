"""numpy's own files: one array (npy) or several in a zip archive (npz). Pickled objects are never loaded."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import IO

import numpy as np

from unsnap.errors import InputError
from unsnap.io.checks import Array, check_size, is_numeric, reading


def read(path: Path) -> Array:
    with reading(path, "a numpy array"), path.open("rb") as file:
        return _read_member(path, "array", file, path.stat().st_size)


def read_npz(path: Path) -> dict[str, Array]:
    arrays: dict[str, Array] = {}
    with reading(path, "an npz archive"), zipfile.ZipFile(path) as archive:
        members = [info for info in archive.infolist() if info.filename.endswith(".npy")]
        for info in members:
            key = info.filename.removesuffix(".npy")
            with archive.open(info) as file:
                arrays[key] = _read_member(path, key, file, info.file_size)
            check_size(path, sum(a.nbytes for a in arrays.values()))
    return arrays


def _read_member(path: Path, key: str, file: IO[bytes], size: int) -> Array:
    """One array; what is not numeric comes out empty."""
    version = np.lib.format.read_magic(file)
    if version == (3, 0):  # only structured types with non-latin names need it
        return np.empty(0, object)
    header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = header(file)
    if dtype.hasobject:
        raise InputError(
            f"{path} holds a pickled Python object under {key!r}, which is never loaded because it can run code; "
            "save it as plain numeric arrays"
        )
    if not is_numeric(dtype):
        return np.empty(0, dtype)
    if any(length < 0 for length in shape):
        raise InputError(f"{path} is damaged (array {key!r} has the shape {shape}); copy or export it again")
    claimed = math.prod(shape) * dtype.itemsize
    check_size(path, claimed)
    present = size - file.tell()
    if claimed > present:
        raise InputError(
            f"{path} is cut short: array {key!r} of shape {shape} needs {claimed} bytes and {present} are there; "
            "copy or export it again"
        )
    file.seek(0)
    array: Array = np.lib.format.read_array(file, allow_pickle=False)
    return array


def write(path: Path, video: Array, fps: float) -> None:
    with path.open("wb") as file:
        np.save(file, video, allow_pickle=False)


def write_npz_video(path: Path, video: Array, fps: float) -> None:
    """Not compressed, because the last bits of a reconstruction are noise."""
    with path.open("wb") as file:
        np.savez(file, video=video)


def write_npz(path: Path, arrays: dict[str, Array]) -> None:
    # Written by hand because np.savez has no room for an array called "file".
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.asanyarray(array), allow_pickle=False)
