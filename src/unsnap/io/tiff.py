"""TIFF through tifffile: grey stacks of pages that are all alike."""

from __future__ import annotations

import logging
import math
import struct
from pathlib import Path
from typing import Any

from unsnap.errors import InputError
from unsnap.io.checks import Array, check_size, luma, reading

_QUIET = logging.NullHandler()  # tifffile logs what it then raises; the one sentence is enough


def read(path: Path) -> Array:
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
    return array[None] if array.ndim == 2 else array


def read_page(path: Path) -> Array:
    """The only page (H, W), which may be floating point."""
    pages = read(path)
    if pages.ndim != 3 or len(pages) != 1:
        raise InputError(f"{path} must be one grey page to serve as a frame, got shape {pages.shape}; split the stack")
    page: Array = pages[0]
    return page


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


def write(path: Path, video: Array, fps: float) -> None:
    import tifffile

    tifffile.imwrite(path, video, photometric="minisblack")
