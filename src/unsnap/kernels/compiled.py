"""`numba.njit` with our options, whose cache on disk is a convenience: it never makes a run fail or changes its result.

numba's own raises where it cannot be written (a full disk stops a reconstruction that needs none, and an installation
without any writable folder cannot even be imported) and where one of its files is damaged. It goes on with old machine
code where a kernel of *another* file was changed that this one calls, as by an upgrade. And of processes compiling at
the same time each does all of the work, and may undo what another has written.

Kernels copy arrays number by number: of `a[:] = b` numba also compiles the sentence that would name unequal shapes,
which takes longer than the rest of the kernel (of 7 seconds for the first total variation, 4.5).
"""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import numba
from numba.core.caching import FunctionCache

# Not full fastmath: NaN and Inf must survive, or a diverging run would go unseen.
CAREFUL = ("contract", "reassoc", "nsz")
PATIENCE = 60.0  # seconds to wait for another process that compiles the same; the longest kernel takes 10 to 25


def compiled(
    function: Callable[..., Any] | None = None, *, fastmath: Iterable[str] = CAREFUL, forceinline: bool = False
) -> Any:
    """Compile a kernel at its first call: without the GIL, division as in numpy, kept on disk if that is possible."""
    if function is None:
        return partial(compiled, fastmath=fastmath, forceinline=forceinline)
    options = {"nogil": True, "error_model": "numpy", "fastmath": set(fastmath), "forceinline": forceinline}
    kernel = numba.njit(**options)(function)
    with suppress(RuntimeError):  # no folder that could hold the cache
        kernel._cache = _Cache(function)
        kernel.compile = partial(_compile, kernel._cache, kernel.compile)
    return kernel


def _compile(kept: _Cache, compile_: Callable[[Any], Any], signature: Any) -> Any:
    with kept.turn:  # left when all is done, or has failed
        return compile_(signature)


class _Cache(FunctionCache):  # type: ignore[misc]
    """numba's, for several processes, damaged files and kernels that call those of other files."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._cache_file._source_stamp = (self._cache_file._source_stamp, _sources())
        self.turn = ExitStack()

    def load_overload(self, signature: Any, context: Any) -> Any:
        """What is on the disk; else it is this process's turn to compile it, unless another one was about to."""
        kept = self._load(signature, context)
        if kept is None and self.turn.enter_context(_alone(self.cache_path, f"{self._impl.filename_base} {signature}")):
            kept = self._load(signature, context)
        return kept

    def save_overload(self, signature: Any, data: Any) -> None:
        # Full disk, quota, read-only.
        with suppress(OSError), _alone(self.cache_path, self._impl.filename_base):
            super().save_overload(signature, data)

    def _load(self, signature: Any, context: Any) -> Any:
        try:
            return super().load_overload(signature, context)
        except Exception:  # noqa: BLE001 - a damaged file can raise anything: forget what was kept of this kernel
            with suppress(OSError):
                self.flush()
            return None


@cache
def _sources() -> str:
    """One kernel calls another of another file: all of them are the source of each."""
    room = sorted(Path(__file__).parent.glob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in room)).hexdigest()


@contextmanager
def _alone(folder: str, name: str) -> Iterator[bool]:
    """No other process is in here with this folder and name; True: one was, and has left.

    Without locks, or when the other takes longer than anyone could, two are in here: that costs time, and no more.
    """
    place = zlib.crc32(name.encode())
    until = monotonic() + PATIENCE
    waited = False
    while not (mine := _lock(folder, place)) and mine is not None and monotonic() < until:
        waited = True
        sleep(0.05)
    try:
        yield waited
    finally:
        if mine:
            _lock(folder, place, free=True)


def _lock(folder: str, place: int, *, free: bool = False) -> bool | None:
    """Lock one byte of a file in this folder for this process, or free it; False: another has it, None: no locks."""
    try:
        import fcntl

        file = _open(folder)
    except (ImportError, OSError):
        return None
    try:
        fcntl.lockf(file, fcntl.LOCK_UN if free else fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
    except (BlockingIOError, PermissionError):  # POSIX allows both for "another has it"
        return False
    except OSError:
        return None
    return True


@cache
def _open(folder: str) -> int:
    """Open for as long as the process lives: the system forgets all of its locks when it closes the file once."""
    return os.open(Path(folder, "compiling.lock"), os.O_RDWR | os.O_CREAT, 0o666)
