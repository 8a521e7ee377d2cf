"""Writes that either happen completely or not at all, also when the power fails.

What was written is brought to the disk before it gets its name, and its name before anybody is told.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from unsnap.errors import InputError
from unsnap.io.leftovers import OLD, beside, sweep

FRAME_NAME = "frame_{:04d}.png"
FRAMES = re.compile(r"frame_\d{4,}\.png")

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
def writing(path: Path) -> Iterator[None]:
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
def atomic_file(path: str | Path, *, overwrite: bool = True) -> Iterator[Path]:
    """Yield a temporary path beside `path` (same suffix) that takes its place when the block succeeds.

    Without `overwrite` a file of that name, even one that appeared meanwhile, is an InputError.

    >>> with atomic_file("result.txt") as temporary:  # doctest: +SKIP
    ...     temporary.write_text("all or nothing")
    """
    path, target = Path(path), Path(os.path.realpath(path))  # through a symbolic link instead of replacing it
    temporary = beside(target, target.suffix)
    with writing(path), folder_for(target):
        check_file(path)
        try:
            sweep(target.parent)
            temporary.touch(mode=0o666, exist_ok=False)  # the umask applies, unlike with tempfile
            yield temporary
            sync(temporary)
            check_file(path)
            if overwrite:
                os.replace(temporary, target)  # noqa: PTH105
            else:
                _put(temporary, target, path)
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
        sync(target.parent)


def _put(temporary: Path, target: Path, path: Path) -> None:
    """Give the file its name, if nobody has it."""
    try:
        try:
            os.link(temporary, target)
        except FileExistsError:
            raise
        except OSError:  # a file system without hard links (FAT, some network drives): take the name, then the place
            target.touch(exist_ok=False)
            try:
                os.replace(temporary, target)  # noqa: PTH105
            except BaseException:
                target.unlink()
                raise
    except FileExistsError:
        raise exists(path) from None


def exists(path: Path) -> InputError:
    return InputError(f"{path} exists; choose another name or add --force")


@contextmanager
def atomic_folder(path: str | Path, ours: re.Pattern[str] = FRAMES, *, overwrite: bool = True) -> Iterator[Path]:
    """Yield a temporary folder beside `path` that takes its place when the block succeeds.

    ours: the names that are written there. A folder with any other file in it is never replaced, one with files of
    these names only with `overwrite`.
    """
    path, target = Path(path), Path(os.path.realpath(path))
    temporary = beside(target, "")
    with writing(path), folder_for(target):
        try:
            sweep(target.parent)
            check_folder(path, ours, overwrite=overwrite)
            temporary.mkdir()
            yield temporary
            for entry in sorted(temporary.iterdir()):
                sync(entry)
            sync(temporary)
            _swap(temporary, target, path, ours, overwrite)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        sync(target.parent)


def _swap(new: Path, target: Path, path: Path, ours: re.Pattern[str], overwrite: bool) -> None:
    hidden = beside(target, OLD)
    old = hidden / target.name  # keeps its name, so that the next write can bring it back if we are killed here
    try:
        if overwrite and target.is_dir():
            hidden.mkdir()
            os.replace(target, old)  # noqa: PTH105
            _check_names(path, old, ours)  # nobody put anything in since we looked
        os.rename(new, target)  # noqa: PTH104 (refuses a folder with something in it, replaces an empty one)
    except BaseException as error:
        if old.exists() and not target.exists():
            os.replace(old, target)  # noqa: PTH105
        if isinstance(error, OSError) and error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            raise InputError(
                f"{path} was written by another process in the meantime and is left as it is; choose another name"
            ) from error
        raise
    finally:
        if target.exists() or not old.exists():
            shutil.rmtree(hidden, ignore_errors=True)


def check_file(path: Path) -> None:
    """Refuse a path at which no file can stand: a folder, a device, a FIFO or a socket is there."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return
    if stat.S_ISDIR(mode):
        raise InputError(f"{path} is a folder where a file is to be written; choose another name")
    if not stat.S_ISREG(mode):
        raise InputError(f"{path} is a device, FIFO or socket, which is never replaced; choose another name")


def check_folder(folder: Path, ours: re.Pattern[str], *, overwrite: bool = True) -> None:
    """Refuse to replace anything but a folder that holds only files of the names `ours`."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise InputError(f"{folder} is a file where a folder is to be written; choose another name")
    if _check_names(folder, folder, ours) and not overwrite:
        raise exists(folder)


def _check_names(path: Path, folder: Path, ours: re.Pattern[str]) -> bool:
    """Whether a folder, known as `path`, holds anything; InputError if it holds anything that is not ours."""
    inside = sorted(folder.iterdir())
    foreign = [entry.name for entry in inside if not ours.fullmatch(entry.name) or entry.is_dir()]
    if foreign:
        raise InputError(
            f"{path} holds {foreign[0]}, which is not written there by unsnap; choose a new or empty folder"
        )
    return bool(inside)


@contextmanager
def folder_for(target: Path) -> Iterator[None]:
    """Make the folders above `target`; if the block fails, those that are still empty go again."""
    missing = [folder for folder in target.parents if not folder.is_dir()]
    try:
        for folder in reversed(missing):
            folder.mkdir(exist_ok=True)
            sync(folder.parent)
        yield
    except BaseException:
        for folder in missing:
            with suppress(OSError):
                folder.rmdir()
        raise


def sync(path: Path) -> None:
    """Bring a file, or the names in a folder, to the disk."""
    folder = path.is_dir()
    try:
        file = os.open(path, os.O_RDONLY if folder else os.O_RDWR)
        try:
            os.fsync(file)
        finally:
            os.close(file)
    except OSError:
        if not folder:  # some file systems know no syncing of folders; what was written is whole all the same
            raise


def write_text(path: str | Path, text: str) -> Path:
    """Write UTF-8 text atomically."""
    with atomic_file(path) as temporary:
        # A name that is no UTF-8 becomes the escape that JSON has for it.
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")
    return Path(path)


def write_json(path: str | Path, obj: Any) -> Path:
    """Write indented, standard JSON atomically; NaN, which JSON lacks, is a ValueError (use None)."""
    return write_text(path, json.dumps(obj, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
