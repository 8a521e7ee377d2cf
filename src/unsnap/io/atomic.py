"""Writes that either happen completely or not at all."""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from unsnap.errors import InputError

FRAME_NAME = "frame_{:04d}.png"
_FRAME = re.compile(r"frame_\d{4,}\.png")

_REMEDIES = {
    errno.ENOSPC: "the disk is full: free some space or choose another folder",
    errno.EDQUOT: "the disk quota is used up: free some space or choose another folder",
    errno.EFBIG: "the file would be larger than allowed: choose another folder, another format or a smaller output",
    errno.EACCES: "permission denied: choose another folder or change its permissions",
    errno.EPERM: "permission denied: choose another folder or change its permissions",
    errno.EROFS: "the disk is read-only: choose another folder",
    errno.ENOTDIR: "a part of its path is a file, not a folder: choose another path",
    errno.EEXIST: "a part of its path is a file, not a folder: choose another path",
    errno.EISDIR: "a folder of that name is in the way: choose another name",
    errno.ENAMETOOLONG: "the name is too long: choose a shorter one",
}


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Turn a failed write into one sentence with the remedy."""
    try:
        yield
    except OSError as error:
        # numpy and HDF5 report a short write without an error number.
        code = error.errno if error.errno or not _is_full(path) else errno.ENOSPC
        remedy = _REMEDIES.get(
            code or 0, f"{error.strerror or error}: check the free space and the folder's permissions"
        )
        raise InputError(f"{path} cannot be written, {remedy}") from error


def _is_full(path: Path) -> bool:
    try:
        return shutil.disk_usage(path.parent).free < 2**16
    except OSError:
        return False


@contextmanager
def atomic_file(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path beside `path` (same suffix) that takes its place when the block succeeds.

    >>> with atomic_file("result.txt") as temporary:  # doctest: +SKIP
    ...     temporary.write_text("all or nothing")
    """
    target = Path(os.path.realpath(path))  # write through a symbolic link instead of replacing it
    temporary = target.with_name(f".unsnap-{secrets.token_hex(6)}{target.suffix}")
    if target.is_dir():
        raise InputError(f"{path} is a folder where a file is to be written; choose another name")
    try:
        with _writing(Path(path)):
            target.parent.mkdir(parents=True, exist_ok=True)
            temporary.touch(mode=0o666, exist_ok=False)  # the umask applies, unlike with tempfile
            yield temporary
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            os.replace(temporary, target)  # noqa: PTH105
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: str | Path) -> Iterator[Path]:
    """Yield a temporary folder beside `path` that takes its place when the block succeeds.

    An existing folder is replaced only if everything in it is a frame that we could have written.
    """
    target = Path(os.path.realpath(path))
    token = secrets.token_hex(6)
    temporary, old = (target.with_name(f".unsnap-{token}{end}") for end in ("", "-old"))
    try:
        with _writing(Path(path)):
            check_replaceable(Path(path))
            target.parent.mkdir(parents=True, exist_ok=True)
            temporary.mkdir()
            yield temporary
            check_replaceable(Path(path))
            _swap(temporary, target, old)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _swap(new: Path, target: Path, old: Path) -> None:
    if not target.exists():
        os.replace(new, target)  # noqa: PTH105
        return
    os.replace(target, old)  # noqa: PTH105
    try:
        os.replace(new, target)  # noqa: PTH105
    except BaseException:
        old.rename(target)
        raise
    shutil.rmtree(old, ignore_errors=True)


def check_replaceable(folder: Path) -> None:
    """Refuse to replace anything but a folder of our own frames."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise InputError(f"{folder} is a file where a folder of frames is to be written; choose another name")
    foreign = sorted(entry.name for entry in folder.iterdir() if not _FRAME.fullmatch(entry.name))
    if foreign:
        raise InputError(
            f"{folder} holds {foreign[0]}, which is not a frame written by unsnap; choose a new or empty folder"
        )


def write_text(path: str | Path, text: str) -> Path:
    """Write UTF-8 text atomically."""
    with atomic_file(path) as temporary:
        # A name that is no UTF-8 becomes the escape that JSON has for it.
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")
    return Path(path)


def write_json(path: str | Path, obj: Any) -> Path:
    """Write indented, standard JSON atomically; NaN, which JSON lacks, is a ValueError (use None)."""
    return write_text(path, json.dumps(obj, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
