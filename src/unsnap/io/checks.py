"""The rules every reader shares: the path exists, the bytes make sense and are no more than they say."""

from __future__ import annotations

import difflib
import os
import stat
import struct
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unsnap.errors import InputError
from unsnap.io.budget import ARRAYS, FLOOR, claim, in_words, stored

Array = NDArray[Any]

# What scipy, h5py, numpy, Pillow, tifffile and zipfile raise on damaged bytes (SyntaxError: Pillow, broken PNG).
DAMAGE: tuple[type[Exception], ...] = (
    OSError,
    ValueError,
    LookupError,
    ArithmeticError,
    TypeError,
    AttributeError,
    RuntimeError,
    SyntaxError,
    AssertionError,
    EOFError,
    struct.error,
    zlib.error,
    zipfile.BadZipFile,
    tokenize.TokenError,
)

MAX_ARRAYS = 10_000
"""In one file."""
_TEXT = 2**20
MAX_SIDE = 65_535
"""Pixels of an image or a frame."""
HARMLESS = 2**18
"""Fewer compressed bytes need no `check_inflated`, which takes time: zlib makes no more than about 1000 of one."""


def existing(path: str | Path) -> Path:
    """The path, if there is a readable regular file or folder behind it."""
    path = Path(path)
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise InputError(f"{path} does not exist; {_suggestion(path)}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path!s} cannot be opened ({reason}); check the path and its permissions") from error
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise InputError(f"{path} is neither a file nor a folder; name a regular file")
    if not os.access(path, os.R_OK | (os.X_OK if stat.S_ISDIR(mode) else 0)):
        raise InputError(f"{path} may not be read (permission denied); ask its owner or run chmod +r on it")
    return path


def is_there(source: object) -> bool:
    """Is it the path of something? An option may hold a list instead, which can be longer than any path."""
    try:
        return isinstance(source, (str, Path)) and Path(source).exists()
    except (OSError, ValueError):
        return False


def _suggestion(path: Path) -> str:
    try:
        names = sorted(entry.name for entry in path.parent.iterdir())
    except OSError:
        return f"the folder {path.parent} cannot be listed either: check the path"
    close = difflib.get_close_matches(path.name, names, n=3, cutoff=0.6)
    return f"did you mean {' or '.join(close)}?" if close else "check the spelling"


@contextmanager
def reading(path: Path, kind: str, *also: type[Exception]) -> Iterator[None]:
    """Turn whatever a library raises on damaged content into one sentence; `also` names that library's own errors."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except InputError:
        raise
    except MemoryError as error:
        raise InputError(f"{path} does not fit into memory; crop it or keep fewer frames") from error
    except (*DAMAGE, *also) as error:
        text = getattr(error, "strerror", None) or str(error) or type(error).__name__
        reason = " ".join(text.split())[:160]
        raise InputError(
            f"{path} cannot be read as {kind} ({reason}); it is damaged, cut short or of another kind: "
            "copy or export it again"
        ) from error


def check_holes(path: Path) -> None:
    """Refuse a file that is almost only holes: it costs its owner nothing and its reader hours."""
    facts = path.stat()
    if facts.st_size > max(FLOOR, ARRAYS * stored(facts)):
        raise InputError(
            f"{path} of {in_words(facts.st_size)} is almost only holes ({in_words(stored(facts))} are stored); "
            "copy or export it again"
        )


def read_text(path: str | Path, kind: str) -> str:
    """A small text file."""
    path = existing(path)
    with reading(path, kind), path.open("rb") as file:
        content = file.read(_TEXT + 1)
        if len(content) > _TEXT:
            raise InputError(f"{path} is larger than {in_words(_TEXT)}, too large for {kind}; name another file")
        return content.decode("utf-8-sig")


def claim_archive(path: Path) -> None:
    """Claim what torch.load makes of a checkpoint: the file itself, and its parts, which a zip archive may inflate."""
    parts = path.stat().st_size
    with reading(path, "a checkpoint"):
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                parts = sum(info.file_size for info in archive.infolist())
    claim(path, path.stat().st_size + 2 * parts)


def check_inflated(path: Path, data: bytes, most: int) -> None:
    """Refuse compressed bytes that hold more than they should, before a library inflates them without a bound."""
    stream, total = zlib.decompressobj(), 0
    while data and not stream.eof and total <= most:
        total += len(stream.decompress(data, 2**20))
        data = stream.unconsumed_tail
    if total > most:
        raise InputError(f"{path} holds compressed data of more than the {most} bytes announced; export it again")


def is_numeric(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "biufc"


def native(array: Array) -> Array:
    """The same values in this machine's byte order, which torch insists on."""
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def real_array(a: Array, name: str, where: str, notes: list[str]) -> Array:
    """The array of finite real numbers, or InputError naming what is wrong with it."""
    if a.dtype.kind not in "biufc":
        raise InputError(f"{where}: {name!r} must hold numbers, found dtype {a.dtype}; save it as a numeric array")
    if a.size == 0:
        raise InputError(f"{where}: {name!r} is empty, shape {a.shape}; save the array again")
    if a.dtype.kind == "c":
        if np.any(a.imag != 0):
            raise InputError(f"{where}: {name!r} must be real, found complex values; save its real part or modulus")
        notes.append(f"took the real part of {name!r}, whose imaginary part is zero")
        a = a.real
    bad = a.size - int(np.isfinite(a).sum())
    if bad:
        raise InputError(
            f"{where}: {name!r} must be finite, found {bad} NaN or infinite values of {a.size}; "
            "replace them, for example by 0 together with their masks"
        )
    return a


def luma(colour: Array) -> Array:
    """(..., 3 or 4) colour to (...) grey by the Rec. 601 weights; dtype kept, alpha ignored; of fewer the first."""
    if colour.shape[-1] < 3:
        return colour[..., 0]
    grey = sum(share * colour[..., k].astype(np.float64) for k, share in enumerate((0.299, 0.587, 0.114)))
    rounded: Array = np.asarray(np.rint(grey) if colour.dtype.kind in "iu" else grey)
    return rounded.astype(colour.dtype)


def as_bytes(video: Array) -> Array:
    """Intensities as 8 bits, cut to [0, 1]."""
    levels: Array = np.rint(video.clip(0, 1) * 255).astype(np.uint8)
    return levels
