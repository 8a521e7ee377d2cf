"""A plug-in that stops a command at one place inside a write and says so, for somebody else to kill it there.

PAUSE = "PLACE END NTH MARK": at the NTH time that a file or folder whose name ends in END comes to PLACE (write: half
of its bytes are written; sync: all are, not yet synced; place: synced, without its name; placed: with its name),
the file MARK appears and the process waits.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PLACES = ("write", "sync", "place", "placed")
_place, _end, _nth, _mark = os.environ["PAUSE"].split(" ")
_count = 0


def _reached(place: str, path: object) -> None:
    global _count
    name = str(path)
    if place == _place and name.endswith(_end) and ".unsnap-" in name:
        _count += 1
        if _count == int(_nth):
            Path(_mark).touch()
            time.sleep(600)


def _write_bytes(path: Path, data: Any, real: Callable[..., int] = Path.write_bytes) -> int:
    data = memoryview(data)
    real(path, data[: len(data) // 2])
    _reached("write", path)
    return real(path, data)


def _fsync(file: int, real: Callable[[int], None] = os.fsync) -> None:
    _reached("sync", Path(f"/proc/self/fd/{file}").readlink())
    real(file)


def _moving(real: Callable[..., None]) -> Callable[..., None]:
    def move(source: Any, target: Any) -> None:
        _reached("place", source)
        real(source, target)
        _reached("placed", source)

    return move


Path.write_bytes = _write_bytes  # type: ignore[assignment, method-assign]
os.fsync = _fsync  # type: ignore[assignment]
for _name in ("replace", "rename", "link"):
    setattr(os, _name, _moving(getattr(os, _name)))
