"""Videos that are written as they come, a few rows of a frame at a time, and need not fit into memory.

.npy, .tif, .h5 and .zarr (version 2, one chunk for each frame, not compressed) hold plain numbers at known places, so
that rows are written where they belong. Any other format is written from such a file at the end: .mp4, .gif and a
folder of PNG frames frame by frame, the rest as a whole.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from unsnap.errors import InputError
from unsnap.io.checks import Array

Place = tuple[Path, int]
"""A file, and where in it a frame begins"""


class Sink:
    """Frames (F, H, W) or (F, H, W, 3) of float32; `put` may come in any order, and twice."""

    def __init__(self, places: Sequence[Place], shape: tuple[int, ...]) -> None:
        self.places, self.shape = places, shape

    def put(self, frame: int, rows: slice, picture: Array, colour: int = 0) -> None:
        """Rows (rows, W) of a frame, of one of its colours."""
        values = picture.astype("<f4")
        if not np.isfinite(values).all():
            raise InputError("the video is not written because it holds NaN or infinite values; use another method")
        path, start = self.places[frame]
        row = math.prod(self.shape[2:])
        with path.open("r+b") as file:
            if len(self.shape) == 4:
                file.seek(start + 4 * row * rows.start)
                all_colours = np.frombuffer(file.read(4 * row * len(values)), "<f4").reshape(len(values), -1, 3).copy()
                all_colours[..., colour] = values
                values = all_colours
            file.seek(start + 4 * row * rows.start)
            file.write(values.tobytes())

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, frame: int) -> Array:
        path, start = self.places[frame]
        with path.open("rb") as file:
            file.seek(start)
            values = np.frombuffer(file.read(4 * math.prod(self.shape[1:])), "<f4")
        return values.astype(np.float32, copy=False).reshape(self.shape[1:])

    def __iter__(self) -> Iterator[Array]:
        return (self[k] for k in range(len(self)))

    @property
    def ndim(self) -> int:
        return len(self.shape)


def _block(path: Path, start: int, shape: tuple[int, ...]) -> Sink:
    """All frames one after the other; room is taken now, so that a full disk is found now."""
    frame = 4 * math.prod(shape[1:])
    _room(path, start + frame * shape[0])
    return Sink([(path, start + k * frame) for k in range(shape[0])], shape)


def _room(path: Path, size: int) -> None:
    with path.open("r+b") as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)
        elif path.stat().st_size < size:
            file.truncate(size)


def npy(path: Path, shape: tuple[int, ...], wavelengths: Sequence[float] | None = None) -> Sink:
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})
        start = file.tell()
    return _block(path, start, shape)


def tiff(path: Path, shape: tuple[int, ...], wavelengths: Sequence[float] | None = None) -> Sink:
    import tifffile

    found = tifffile.imwrite(
        path,
        shape=shape,
        dtype="float32",
        byteorder="<",
        photometric="rgb" if len(shape) == 4 else "minisblack",
        returnoffset=True,
    )
    if found is None:
        raise OSError(None, "tifffile wrote no contiguous pages")
    return _block(path, found[0], shape)


def hdf5(path: Path, shape: tuple[int, ...], wavelengths: Sequence[float] | None = None) -> Sink:
    import h5py

    with h5py.File(path, "w") as file:
        if wavelengths is not None:
            file["wavelengths"] = np.asarray(wavelengths, np.float64)
        # Room for the numbers, which libhdf5 never touches: it does not survive a disk that fills up under it.
        how = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        how.set_layout(h5py.h5d.CONTIGUOUS)
        how.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        how.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        node = h5py.h5d.create(file.id, b"video", h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple(shape), how)
        start = int(node.get_offset())
    return _block(path, start, shape)


def zarr(path: Path, shape: tuple[int, ...], wavelengths: Sequence[float] | None = None) -> Sink:
    path.mkdir(exist_ok=True)
    facts = {
        "zarr_format": 2, "shape": list(shape), "chunks": [1, *shape[1:]], "dtype": "<f4", "compressor": None,
        "fill_value": 0.0, "order": "C", "filters": None,
    }  # fmt: skip
    (path / ".zarray").write_text(json.dumps(facts, indent=2))
    about = {} if wavelengths is None else {"wavelengths": [float(w) for w in wavelengths]}
    (path / ".zattrs").write_text(json.dumps(about))
    places = [(path / ".".join(map(str, (k, *[0] * (len(shape) - 1)))), 0) for k in range(shape[0])]
    for file, _ in places:
        file.touch()
        _room(file, 4 * math.prod(shape[1:]))
    return Sink(places, shape)
