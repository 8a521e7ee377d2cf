"""Arrays that stay on the disk: mapped where a file holds them as plain numbers, else None, and the file is read whole.

Plain are .npy, .npz without compression, HDF5 and MATLAB v7.3 without chunks, and TIFF without compression; what is
compressed in .npz or in chunks of HDF5 is unpacked first, a piece at a time, into the folder that `folder` makes.
"""

from __future__ import annotations

import math
import shutil
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from unsnap.io import hdf5, mat, npy
from unsnap.io.checks import Array, is_numeric

_PIECE = 2**24
"""Bytes that are unpacked at a time."""


def forget(array: Array) -> None:
    """Give the memory of a mapped file back; what is on the disk stays there."""
    base: Any = array
    while base is not None and not isinstance(base, np.memmap):
        base = base.base
    pages = getattr(base, "_mmap", None)
    if pages is not None and hasattr(pages, "madvise"):
        import mmap

        pages.madvise(mmap.MADV_DONTNEED)


def _numpy(path: Path, file: IO[bytes], start: int) -> Array:
    """The array whose header begins here."""
    file.seek(start)
    version = np.lib.format.read_magic(file)
    header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = header(file)
    if not is_numeric(dtype) or 0 in shape:
        return np.empty(0, dtype if is_numeric(dtype) else np.uint8)
    order: Any = "F" if fortran else "C"
    return np.memmap(path, dtype, "r", file.tell(), shape, order)


def npy_file(path: Path, folder: Callable[[], Path]) -> dict[str, Array]:
    with path.open("rb") as file:
        return {"array": _numpy(path, file, 0)}


def npz(path: Path, folder: Callable[[], Path]) -> dict[str, Array]:
    arrays: dict[str, Array] = {}
    with zipfile.ZipFile(path) as archive, path.open("rb") as file:
        for info in archive.infolist():
            name = info.filename.removesuffix(".npy")
            if name == info.filename:
                continue
            with archive.open(info) as member:
                npy.announced(path, name, member, info.file_size)  # refuses pickles and arrays that are cut short
            if info.compress_type == zipfile.ZIP_STORED:
                file.seek(info.header_offset + 26)
                lengths = file.read(4)
                start = info.header_offset + 30 + int.from_bytes(lengths[:2], "little")
                arrays[name] = _numpy(path, file, start + int.from_bytes(lengths[2:], "little"))
                continue
            unpacked = folder() / f"{len(arrays)}.npy"
            with archive.open(info) as member, unpacked.open("wb") as target:
                shutil.copyfileobj(member, target, _PIECE)
            with unpacked.open("rb") as plain:
                arrays[name] = _numpy(unpacked, plain, 0)
    return {name: array for name, array in arrays.items() if array.size}


def matlab(path: Path, folder: Callable[[], Path]) -> dict[str, Array] | None:
    import h5py

    return hdf5_file(path, folder, matlab=True) if h5py.is_hdf5(path) else None


def hdf5_file(path: Path, folder: Callable[[], Path], matlab: bool = False) -> dict[str, Array] | None:
    import h5py

    arrays: dict[str, Array] = {}
    with h5py.File(path, "r") as file:
        for name, node in hdf5.datasets(path, file):
            if matlab and not mat.plain(file, name, node):
                return None
            if not is_numeric(node.dtype) or 0 in node.shape:
                continue
            if node.chunks is None and node.id.get_offset() is not None:
                array: Array = np.memmap(path, node.dtype, "r", node.id.get_offset(), node.shape)
            else:
                hdf5.check_chunks(path, node)
                array = _unpacked(node, folder() / f"{len(arrays)}.npy")
            arrays[name] = array.T if matlab else array
    return arrays


def _unpacked(node: Any, target: Path) -> Array:
    with target.open("wb") as file:
        for piece in _pieces(node):
            file.write(np.ascontiguousarray(node[piece]).tobytes())
    array: Array = np.memmap(target, node.dtype, "r", 0, node.shape or (1,))
    return array.reshape(node.shape)


def _pieces(node: Any) -> Iterator[tuple[slice, ...]]:
    """Of the first axis, or of the second where the first alone would be too much, in the order of memory."""
    if not node.shape:
        yield ()
        return
    inner = math.prod(node.shape[1:]) * node.dtype.itemsize
    deep = inner > _PIECE and len(node.shape) > 1
    axis, each = (1, inner // node.shape[1]) if deep else (0, inner)
    chunk = node.chunks[axis] if node.chunks else 1
    step = max(_PIECE // max(each, 1) // chunk, 1) * chunk
    for outer in range(node.shape[0]) if deep else (None,):
        for start in range(0, node.shape[axis], step):
            along = slice(start, min(start + step, node.shape[axis]))
            yield (slice(outer, outer + 1), along) if outer is not None else (along,)


def tiff(path: Path, folder: Callable[[], Path]) -> dict[str, Array] | None:
    import tifffile

    with tifffile.TiffFile(path, _multifile=False) as tiff:
        series = tiff.series[0] if len(tiff.series) == 1 else None
        if series is None or series.dataoffset is None or "S" in series.axes or len(series.shape) > 3:
            return None
        if series.keyframe.photometric != tifffile.PHOTOMETRIC.MINISBLACK:
            return None
        dtype = np.dtype(tiff.byteorder + series.dtype.char)
        array: Array = np.memmap(path, dtype, "r", series.dataoffset, series.shape)
    return {"array": array[None] if array.ndim == 2 else array}
