"""One process at a time: a lock file that says who holds it."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from unsnap.errors import InputError
from unsnap.io.atomic import folder_for, writing
from unsnap.io.leftovers import LOCK, alive, began, try_lock

_HELD: set[Path] = set()


def folder_lock(folder: Path) -> Path:
    """The lock of a folder in which something runs."""
    return Path(os.path.realpath(folder)) / LOCK


def file_lock(file: Path) -> Path:
    """The lock of a file that is going to be written; others in its folder are nobody's business."""
    target = Path(os.path.realpath(file))
    return target.with_name(f"{LOCK}-{hashlib.sha256(os.fsencode(target.name)).hexdigest()[:12]}")


@contextmanager
def locked(path: Path, name: Path) -> Iterator[str | None]:
    """Hold a lock file; an InputError that calls it `name` while another process has it. Ours may be taken again.

    Yields a remark if its last owner died with it. What holds on network drives is said at `try_lock`.
    """
    if path in _HELD:
        yield None
        return
    with ExitStack() as stack:
        with writing(name):
            stack.enter_context(folder_for(path))
            file, last = _take(path, name)
        _HELD.add(path)
        try:
            with writing(name):
                _sign(file)
            yield None if last is None else f"{name} was left by {last}, which has ended; its lock is taken over"
        finally:
            _HELD.discard(path)
            with suppress(OSError):
                path.unlink()
            os.close(file)


def _take(path: Path, name: Path) -> tuple[int, str | None]:
    """The lock file, open and ours, and who died with it."""
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            got, words = try_lock(file), _read(file)
            if got is None:  # no locks on this file system: what its owner wrote must do
                dead = words.get("host") == platform.node() and not alive(words["pid"], words["began"])
                got = dead or not words
            if not got:
                raise InputError(f"{name} is in use by {_owner(words)}; wait for it to end or choose another name")
            with suppress(FileNotFoundError):  # its owner has just given it back and removed the file: once more
                if os.path.samestat(os.fstat(file), path.stat()):
                    return file, _owner(words) if words else None
        except BaseException:
            os.close(file)
            raise
        os.close(file)


def _sign(file: int) -> None:
    since = time.strftime("%Y-%m-%d %H:%M:%S")
    words = {"pid": os.getpid(), "began": began(os.getpid()), "host": platform.node(), "since": since}
    os.ftruncate(file, 0)
    os.pwrite(file, json.dumps(words).encode(), 0)


def _read(file: int) -> dict[str, Any]:
    try:
        words = json.loads(os.pread(file, 1000, 0))
        return {"pid": int(words["pid"]), **{key: str(words[key]) for key in ("began", "host", "since")}}
    except (ValueError, KeyError, TypeError):  # not signed yet, or damaged
        return {}


def _owner(words: dict[str, Any]) -> str:
    if not words:
        return "another process"
    return f"process {words['pid']} on {words['host']} (since {words['since']})"
