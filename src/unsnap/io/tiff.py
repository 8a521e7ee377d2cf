"""TIFF through tifffile: stacks of pages that are all alike."""

from __future__ import annotations

import logging
import math
import struct
from pathlib import Path
from typing import IO, Any

import numpy as np

from unsnap.errors import InputError
from unsnap.io.budget import claim
from unsnap.io.checks import HARMLESS, Array, check_inflated, luma, reading

_QUIET = logging.NullHandler()  # tifffile logs what it then raises; the one sentence is enough
MAX_PAGES = 65_536
_MAX_TAGS, _SUB_PAGES = 4096, 330
_PALETTE = 3
_DEFLATE, _LZMA = (8, 32946), (34925,)
# What tifffile would read in ways of their own, some of them from other files that the metadata name.
_DIALECTS = (
    "lsm", "mmstack", "ome", "ndtiff", "fluoview", "stk", "sis", "svs", "scn", "qpi", "ndpi", "bif", "avs", "eer",
    "philips", "scanimage", "nih", "mdgel",
)  # fmt: skip


def read(path: Path, colour: bool = False) -> Array:
    """All pages as one (pages, H, W) array, colour as luma; or in colour, if they are, (pages, H, W, 3)."""
    import tifffile

    logging.getLogger("tifffile").addHandler(_QUIET)
    with reading(path, "a TIFF stack", tifffile.TiffFileError):
        with path.open("rb") as file:
            _check_chain(path, file)
        plain: Any = {f"is_{name}": False for name in _DIALECTS}
        with tifffile.TiffFile(path, _multifile=False, **plain) as tiff:
            if len(tiff.series) > 1:
                raise InputError(
                    f"{path} holds images of different sizes or types ({tiff.series[0].shape} and "
                    f"{tiff.series[1].shape}); all pages must be alike: save the stack on its own"
                )
            series = tiff.series[0]
            _announce(path, tiff, series)
            array = _pixels(path, series)
            if series.keyframe.photometric == tifffile.PHOTOMETRIC.MINISWHITE and array.dtype.kind in "bu":
                claim(path, array.nbytes)
                array = ~array
            array, coloured = _colours_last(path, series, array)
            if coloured:
                claim(path, 40 * math.prod(array.shape[:-1]))
                if colour and array.shape[-1] >= 3:
                    return array[..., :3].reshape(-1, *array.shape[-3:-1], 3)
                array = luma(array)
    return array.reshape(-1, *array.shape[-2:])


def _colours_last(path: Path, series: Any, array: Array) -> tuple[Array, bool]:
    """The pixels with their samples, if they have any, on the last axis; those of a palette are looked up in it.

    Three channels of a hyperstack are colours; other numbers of them, and those of a plain stack, are pages.
    """
    page, axes = series.keyframe, series.axes
    if page.photometric == _PALETTE and page.colormap is not None and "S" not in axes:
        claim(path, 6 * array.size)
        wide = array.dtype.itemsize > 1 or page.colormap.max() < 256
        colours = page.colormap if wide else (page.colormap >> 8).astype(np.uint8)  # as Pillow has them
        return np.moveaxis(colours[:, array], 0, -1), True
    several = len(axes) > 3 and axes.endswith("CYX") and array.shape[-3] == 3
    samples = axes.find("C" if several else "S")
    return (array, False) if samples < 0 else (np.moveaxis(array, samples, -1), True)


def read_page(path: Path, colour: bool = False) -> Array:
    """The only page, grey (H, W), which may be floating point; or in colour, (H, W, 3)."""
    pages = read(path, colour)
    if len(pages) != 1:
        raise InputError(f"{path} must be one page to serve as a frame, got shape {pages.shape}; split the stack")
    page: Array = pages[0]
    return np.repeat(page[..., None], 3, -1) if colour and page.ndim == 2 else page


def _check_chain(path: Path, file: IO[bytes]) -> None:
    """Walk from page to page: tifffile goes in circles for ever, and returns fewer pages in silence if one is lost."""
    head = file.read(16)
    order = {b"II": "<", b"MM": ">"}.get(head[:2])
    version = struct.unpack(f"{order}H", head[2:4])[0] if order and len(head) == 16 else 0
    if version not in (42, 43):
        raise ValueError("no TIFF header")
    big = version == 43
    number, offset = (struct.Struct(f"{order}{code}") for code in (("Q", "Q") if big else ("H", "I")))
    width = 20 if big else 12  # of a tag: its name, its type, how many values, and where they are
    place = offset.unpack_from(head, 8 if big else 4)[0]
    pages: set[int] = set()
    inner = 0
    while place:
        file.seek(place)
        found = file.read(number.size)
        tags = number.unpack(found)[0] if len(found) == number.size else 0
        if not 0 < tags <= _MAX_TAGS:
            raise InputError(f"{path} is cut short after {len(pages)} pages; copy or export it again")
        entries, after = file.read(tags * width), file.read(offset.size)
        if len(after) < offset.size:
            raise InputError(f"{path} is cut short after {len(pages)} pages; copy or export it again")
        pages.add(place)
        for k in range(0, len(entries), width):
            if struct.unpack_from(f"{order}H", entries, k)[0] == _SUB_PAGES:
                inner += offset.unpack_from(entries, k + 4)[0]
        place = offset.unpack(after)[0]
        if place in pages:
            raise InputError(f"{path} is damaged: its pages follow one another in a circle; export it again")
        if len(pages) + inner > MAX_PAGES:
            raise InputError(f"{path} has more than {MAX_PAGES} pages; keep fewer of them")


def _announce(path: Path, tiff: Any, series: Any) -> None:
    """Claim the pixels and what decoding a page takes; refuse strips that overlap or hold more than their pixels."""
    page = series.keyframe
    part = math.prod(page.chunks) * series.dtype.itemsize if page.chunks else 0
    decoded = max(page.nbytes, part)
    claim(path, math.prod(series.shape) * series.dtype.itemsize)
    claim(path, 4 * decoded)
    if page.compression == 1:
        return
    if page.compression in _LZMA:
        raise InputError(f"{path} is compressed as LZMA, whose size nobody can tell beforehand; save it uncompressed")
    strips = [
        strip
        for one in series.pages
        if one is not None
        for strip in zip(one.dataoffsets, one.databytecounts, strict=False)
    ]
    if sum(length for _, length in strips) > tiff.filehandle.size:
        raise ValueError("its strips overlap")
    large = [strip for strip in strips if strip[1] >= HARMLESS and page.compression in _DEFLATE]
    for start, length in large:
        tiff.filehandle.seek(start)
        check_inflated(path, tiff.filehandle.read(length), decoded)


def _pixels(path: Path, series: Any) -> Array:
    try:
        array: Array = series.asarray(maxworkers=1)  # one page at a time, as was claimed
    except ValueError as error:
        if "imagecodecs" not in str(error):
            raise
        raise InputError(
            f"{path} is compressed as {series.keyframe.compression.name}, which needs the imagecodecs package; "
            "install it or save the stack uncompressed"
        ) from error
    return array


def write(path: Path, video: Array, fps: float) -> None:
    import tifffile

    tifffile.imwrite(path, video, photometric="rgb" if video.ndim == 4 else "minisblack")
