"""Array containers: npy, npz, HDF5 and TIFF. Shapes are checked against header, file and memory before reading."""

from __future__ import annotations

import logging
import math
import struct
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np

from unsnap.errors import InputError
from unsnap.io.atomic import atomic_file
from unsnap.io.checks import Array, check_size, is_numeric, luma, reading

_QUIET = logging.NullHandler()  # tifffile logs what it then raises; the one sentence is enough


def read_npy(path: Path) -> dict[str, Array]:
    with reading(path, "a numpy array"), path.open("rb") as file:
        array = _read_member(path, "array", file, path.stat().st_size)
    return {} if array is None else {"array": array}


def read_npz(path: Path) -> dict[str, Array]:
    arrays: dict[str, Array] = {}
    with reading(path, "an npz archive"), zipfile.ZipFile(path) as archive:
        members = [info for info in archive.infolist() if info.filename.endswith(".npy")]
        for info in members:
            key = info.filename.removesuffix(".npy")
            with archive.open(info) as file:
                array = _read_member(path, key, file, info.file_size)
            if array is not None:
                arrays[key] = array
            check_size(path, sum(a.nbytes for a in arrays.values()))
    return arrays


def _read_member(path: Path, key: str, file: IO[bytes], size: int) -> Array | None:
    version = np.lib.format.read_magic(file)
    if version == (3, 0):  # only structured types with non-latin names need it
        return None
    header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = header(file)
    if dtype.hasobject:
        raise InputError(
            f"{path} holds a pickled Python object under {key!r}, which is never loaded because it can run code; "
            "save it as plain numeric arrays"
        )
    if not is_numeric(dtype):
        return None
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


def read_hdf5(path: Path) -> dict[str, Array]:
    """Every numeric dataset at any depth, named by its path ("scene/meas")."""
    import h5py

    found: dict[str, Any] = {}

    def visit(name: str, node: Any) -> None:
        if isinstance(node, h5py.Dataset) and node.shape is not None and is_numeric(node.dtype):
            found[name] = node

    with reading(path, "an HDF5 file"), h5py.File(path, "r") as file:
        file.visititems(visit)
        check_size(path, sum(math.prod(node.shape) * node.dtype.itemsize for node in found.values()))
        return {name: np.asarray(node[()]) for name, node in found.items()}


def read_tiff(path: Path) -> dict[str, Array]:
    """All pages as one (pages, H, W) array; colour becomes luma."""
    import tifffile

    logging.getLogger("tifffile").addHandler(_QUIET)
    with reading(path, "a TIFF stack", tifffile.TiffFileError), tifffile.TiffFile(path) as tiff:
        if len(tiff.series) > 1:
            raise InputError(
                f"{path} holds images of different sizes or types ({tiff.series[0].shape} and {tiff.series[1].shape}); "
                "all pages must be alike: save the stack on its own"
            )
        if _breaks_off(tiff):
            raise InputError(f"{path} is cut short after {len(tiff.pages)} pages; copy or export it again")
        series = tiff.series[0]
        check_size(path, math.prod(series.shape) * series.dtype.itemsize)
        array = _pixels(path, series)
        if series.keyframe.photometric == tifffile.PHOTOMETRIC.MINISWHITE and array.dtype.kind in "bu":
            array = ~array
        if series.axes.endswith("S"):
            array = luma(array)
    return {"array": array[None] if array.ndim == 2 else array} if is_numeric(array.dtype) else {}


def _pixels(path: Path, series: Any) -> Array:
    try:
        array: Array = series.asarray()
    except ValueError as error:
        if "imagecodecs" not in str(error):
            raise
        raise InputError(
            f"{path} is compressed as {series.keyframe.compression.name}, which needs the imagecodecs package; "
            "install it or save the stack uncompressed"
        ) from error
    return array


def _breaks_off(tiff: Any) -> bool:
    """Whether the last readable page points to a further one; tifffile itself would return fewer pages in silence."""
    form, file = tiff.tiff, tiff.filehandle
    file.seek(tiff.pages[-1].offset)
    (tags,) = struct.unpack(form.tagnoformat, file.read(form.tagnosize))
    file.seek(tags * form.tagsize, 1)
    (following,) = struct.unpack(form.offsetformat, file.read(form.offsetsize))
    return bool(following)


def write_tiff(path: Path, video: Array) -> None:
    import tifffile

    with atomic_file(path) as temporary:
        tifffile.imwrite(temporary, video, photometric="minisblack")


def write_npy(path: Path, array: Array) -> None:
    with atomic_file(path) as temporary, temporary.open("wb") as file:
        np.save(file, array, allow_pickle=False)


def write_npz(path: Path, arrays: dict[str, Array]) -> None:
    # Written by hand because np.savez has no room for an array called "file".
    with (
        atomic_file(path) as temporary,
        zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
    ):
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.asanyarray(array), allow_pickle=False)


def write_hdf5(path: Path, arrays: dict[str, Array]) -> None:
    import h5py

    # Built in memory: libhdf5 does not survive a disk that fills up under an open file.
    with h5py.File("image", "w", driver="core", backing_store=False) as file:
        for name, array in arrays.items():
            file.create_dataset(
                name, data=array, **({"compression": "gzip", "compression_opts": 1} if array.size > 1 else {})
            )
        file.flush()
        image = file.id.get_file_image()
    with atomic_file(path) as temporary:
        temporary.write_bytes(image)
