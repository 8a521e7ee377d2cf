"""The file formats, one line each: a new one is a module with some of the functions named below, and its line.

All else is derived from `FORMATS`: what can be read and written, what the sentences say, which files of a folder are
scenes, clips or frames. The modules import their libraries when a function is called, so that this list costs nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from unsnap.errors import InputError
from unsnap.io import codec, envi, hdf5, images, mapped, mat, npy, sink, tiff, zarr
from unsnap.io.atomic import FRAMES, atomic_file, atomic_folder
from unsnap.io.checks import Array, check_holes, existing, is_numeric, native

FOLDER = ""  # the extension that stands for a folder
Arrays = dict[str, Array]


@dataclass(frozen=True)
class Format:
    """What can be done with the files of some extensions; None: it cannot be done.

    read_arrays: path -> arrays by name, so such a file can be a scene. read_array: path -> one array, as (T, H, W).
    read_video: (path, max_frames) -> grey (T, H, W). read_frame: path -> grey (H, W), so a folder of them is a video;
    with colour=True both have a last axis of three, if they can. read_colour: path -> pictures (N, H, W, 3), or grey
    ones (N, H, W) where nothing is in colour. write_arrays: (path, arrays).
    write_video: (path, (T, H, W) or (T, H, W, 3) float32, frames per second); where it is missing,
    the array `video` is written. Writers get a temporary path, and an OSError of theirs becomes a sentence.
    map_arrays: (path, a function that makes a folder to unpack into) -> arrays that stay on the disk, or None if this
    file must be read as a whole. stream: (path, shape, wavelengths) -> a `Sink`, for videos larger than memory;
    by_frames: write_video takes one of these too, and holds a frame of it at a time.
    time_last: videos are stored H×W×T. folder: it is a folder, in which unsnap writes files of these names.
    """

    suffixes: tuple[str, ...]
    read_arrays: Callable[[Path], Arrays] | None = None
    read_array: Callable[[Path], Array] | None = None
    read_video: Callable[..., Array] | None = None
    read_frame: Callable[..., Array] | None = None
    read_colour: Callable[[Path], Array] | None = None
    write_arrays: Callable[[Path, Arrays], None] | None = None
    write_video: Callable[[Path, Array, float], None] | None = None
    map_arrays: Callable[[Path, Callable[[], Path]], Arrays | None] | None = None
    stream: Callable[[Path, tuple[int, ...], Sequence[float] | None], sink.Sink] | None = None
    by_frames: bool = False
    time_last: bool = False
    folder: re.Pattern[str] | None = None

    @property
    def holds_video(self) -> bool:
        return bool(self.read_arrays or self.read_array or self.read_video)

    @property
    def is_readable(self) -> bool:
        return self.holds_video or self.read_frame is not None

    @property
    def takes_video(self) -> bool:
        return bool(self.write_video or self.write_arrays)

    def read(self, path: Path) -> Arrays:
        """All numeric arrays of a file; one without a name is called "array", a decoded video "frames"."""
        arrays: Arrays = {}
        if self.read_arrays:
            arrays = self.read_arrays(path)
        elif self.read_array:
            arrays = {"array": self.read_array(path)}
        elif self.read_video:
            arrays = {"frames": self.read_video(path, None)}
        elif self.read_frame:
            arrays = {"array": self.read_frame(path)[None]}
        return {name: native(array) for name, array in arrays.items() if is_numeric(array.dtype)}

    def read_capture(self, path: Path) -> Arrays:
        """The same; pictures in colour are called "rgb" and become planes (3N, H, W): red, green, blue of each."""
        pictures = self.read_colour(path) if self.read_colour else None
        if pictures is None:
            return self.read(path)
        if pictures.ndim == 4 and not (pictures == pictures[..., :1]).all():
            return {"rgb": native(np.moveaxis(pictures, -1, 1).reshape(-1, *pictures.shape[1:3]))}
        return {"array": native(pictures if pictures.ndim == 3 else pictures[..., 0])}

    def writing(self, path: Path, overwrite: bool) -> AbstractContextManager[Path]:
        """A temporary path that takes the place of `path` when the block succeeds."""
        if self.folder is not None:
            return atomic_folder(path, self.folder, overwrite=overwrite)
        return atomic_file(path, overwrite=overwrite)


FORMATS = (
    Format((".mat",), read_arrays=mat.read, write_arrays=mat.write, map_arrays=mapped.matlab, time_last=True),
    Format(
        (".npz",),
        read_arrays=npy.read_npz, write_arrays=npy.write_npz, write_video=npy.write_npz_video, map_arrays=mapped.npz,
    ),
    Format(
        (".h5", ".hdf5"),
        read_arrays=hdf5.read, write_arrays=hdf5.write, map_arrays=mapped.hdf5_file, stream=sink.hdf5,
    ),
    Format((".zarr",), write_video=zarr.write, stream=sink.zarr, folder=zarr.NAMES),
    Format((".npy",), read_array=npy.read, write_video=npy.write, map_arrays=mapped.npy_file, stream=sink.npy),
    Format(
        (".tif", ".tiff"),
        read_array=tiff.read, read_frame=tiff.read_page, write_video=tiff.write, map_arrays=mapped.tiff,
        read_colour=partial(tiff.read, colour=True), stream=sink.tiff,
    ),
    Format((".mp4",), read_video=codec.read, write_video=codec.write_mp4, by_frames=True),
    Format((".gif",), read_video=codec.read, write_video=codec.write_gif),
    Format((".avi", ".mov", ".mkv", ".webm"), read_video=codec.read),
    Format((".png",), read_frame=images.read, write_video=images.write_strip),
    Format((".jpg", ".jpeg", ".bmp"), read_frame=images.read),
    Format((envi.SUFFIX,), write_video=envi.write_header),
    Format((FOLDER,), write_video=images.write_frames, folder=FRAMES, by_frames=True),
)  # fmt: skip


def suffixes(able: Callable[[Format], object]) -> tuple[str, ...]:
    """The extensions of the formats that are able."""
    return tuple(suffix for kind in FORMATS if able(kind) for suffix in kind.suffixes)


def find(suffix: str) -> Format:
    """The format of an extension, upper or lower case; one that can do nothing if it is unknown."""
    return next((kind for kind in FORMATS if suffix.lower() in kind.suffixes), Format((suffix,)))


def reader(path: Path) -> Format:
    """The format of a file that can be read; InputError if the extension is unknown or the file empty."""
    kind = find(existing(path).suffix)
    if not kind.is_readable:
        known = ", ".join(suffixes(lambda kind: kind.is_readable))
        raise InputError(
            f"{path} has the unknown extension {path.suffix.lower()!r}; known are {known} and folders of frames"
        )
    if path.is_file():
        check_holes(path)
        if path.stat().st_size == 0:
            raise InputError(f"{path} is empty (0 bytes); copy or export it again")
    return kind
