"""The last things that can go wrong: stdout that is gone, and exceptions that nobody foresaw."""

from __future__ import annotations

import io
import os
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from unsnap import __version__
from unsnap.errors import printable

UNFORESEEN, NO_STDOUT = 70, 74  # as sysexits.h numbers them


class StdoutLostError(Exception):
    """What was to be printed could not be: stdout is closed, its reader has left, or its disk is full."""


class _Stdout(io.TextIOWrapper):
    """Says what became of it in an exception of its own, so that nobody takes it for the failure of a file."""

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except OSError as error:
            raise StdoutLostError(error.strerror or str(error)) from error

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            raise StdoutLostError(error.strerror or str(error)) from error


class _Stderr(io.TextIOWrapper):
    """Where complaints go; when that fails there is nobody left to tell, and the exit code says enough."""

    def write(self, text: str) -> int:
        with suppress(OSError):
            super().write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            super().flush()


@contextmanager
def last_resort() -> Iterator[None]:
    """Exit code 74 where stdout cannot be written to, 70 after an unforeseen exception; one sentence each."""
    try:
        _guard_streams()
        yield
    except StdoutLostError as error:
        _complain(f"stdout cannot be written to ({error}); redirect it to a file, or to {os.devnull}")
        _drop_stdout()
        sys.exit(NO_STDOUT)
    except Exception as error:  # noqa: BLE001
        what = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        _complain(f"something unforeseen happened ({what}); please report it, together with {_log(error)}")
        sys.exit(UNFORESEEN)


def _guard_streams() -> None:
    if sys.stderr is None:  # its number must not become that of the next file that is opened
        descriptor = os.open(os.devnull, os.O_WRONLY)
        sys.stderr = open(descriptor, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    if sys.stdout is None:
        raise StdoutLostError("it is closed")
    for name, kind in (("stdout", _Stdout), ("stderr", _Stderr)):
        stream = getattr(sys, name)
        if type(stream) is io.TextIOWrapper:
            encoding, lines = stream.encoding, stream.line_buffering
            setattr(sys, name, kind(stream.detach(), encoding, "backslashreplace", line_buffering=lines))


def _complain(sentence: str) -> None:
    sys.stderr.write(f"Error: {printable(sentence)}\n")
    sys.stderr.flush()


def _drop_stdout() -> None:
    """Python flushes stdout once more at the end, and would complain."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _log(error: Exception) -> str:
    """Where the traceback was written."""
    try:
        descriptor, name = tempfile.mkstemp(prefix="unsnap-", suffix=".log")
        with open(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:  # noqa: PTH123
            file.write(f"unsnap {__version__}, Python {sys.version}\n{sys.argv!r}\n")
            file.write("".join(traceback.format_exception(error)))
    except OSError as problem:
        return f"its circumstances (no log could be written: {problem.strerror})"
    return f"the log {name}"
