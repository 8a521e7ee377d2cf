"""numpy's own files: one array (npy) or several in a zip archive (npz). Pickled objects are never loaded."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np

from unsnap.errors import InputError
from unsnap.io.budget import claim
from unsnap.io.checks import MAX_ARRAYS, Array, is_numeric, reading

_MAX_HEADER = 10_000


def read(path: Path) -> Array:
    with reading(path, "a numpy array"), path.open("rb") as file:
        size = path.stat().st_size
        claim(path, announced(path, "array", file, size))
        return _read_member(file)


def read_npz(path: Path) -> dict[str, Array]:
    with reading(path, "an npz archive"), zipfile.ZipFile(path) as archive:
        members = [info for info in archive.infolist() if info.filename.endswith(".npy")]
        if len(members) > MAX_ARRAYS:
            raise InputError(f"{path} holds {len(members)} arrays, more than {MAX_ARRAYS}; keep measurement and masks")
        total = 0
        for info in members:
            if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise InputError(f"{path} is compressed as numpy does not do it; save it again with numpy.savez")
            with archive.open(info) as file:
                total += announced(path, info.filename.removesuffix(".npy"), file, info.file_size)
        claim(path, total)
        arrays: dict[str, Array] = {}
        for info in members:
            with archive.open(info) as file:
                arrays[info.filename.removesuffix(".npy")] = _read_member(file)
    return arrays


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and type of the array that follows; an empty one for what is never numeric."""
    version = np.lib.format.read_magic(file)
    if version == (3, 0):  # only structured types with non-latin names need it
        return (0,), np.dtype(np.void)
    # numpy reads as many bytes as the header claims to have before it looks at their number.
    start, width = file.tell(), 2 if version == (1, 0) else 4
    length = int.from_bytes(file.read(width), "little")
    if length > _MAX_HEADER:
        raise ValueError(f"a header of {length} bytes")
    file.seek(start)
    header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = header(file)
    return shape, dtype


def announced(path: Path, key: str, file: IO[bytes], size: int) -> int:
    """Bytes of an array that the header announces and the file can hold; 0 for what is not numeric."""
    shape, dtype = _header(file)
    if dtype.hasobject:
        raise InputError(
            f"{path} holds a pickled Python object under {key!r}, which is never loaded because it can run code; "
            "save it as plain numeric arrays"
        )
    if not is_numeric(dtype):
        return 0
    if any(length < 0 for length in shape):
        raise InputError(f"{path} is damaged (array {key!r} has the shape {shape}); copy or export it again")
    claimed, present = math.prod(shape) * dtype.itemsize, size - file.tell()
    if claimed > present:
        raise InputError(
            f"{path} is cut short: array {key!r} of shape {shape} needs {claimed} bytes and {present} are there; "
            "copy or export it again"
        )
    return claimed * (1 if dtype.isnative else 2)


def _read_member(file: IO[bytes]) -> Array:
    """One array; what is not numeric comes out empty."""
    file.seek(0)
    _, dtype = _header(file)
    if not is_numeric(dtype):
        return np.empty(0, dtype)
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
