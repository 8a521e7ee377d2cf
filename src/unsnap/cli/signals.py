"""Signals end a command in order: nothing half-written stays behind, and the exit code says which it was."""

from __future__ import annotations

import os
import signal
import stat
import time
from contextlib import suppress
from types import FrameType

SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
spoken: list[int] = []
"""Exit codes of commands that have said themselves that they were interrupted."""
_PATIENCE = 2.0
"""Seconds in which a second signal changes nothing: a closing terminal sends two, and the first must clean up."""


class Stopped(KeyboardInterrupt):
    """A signal asked us to end; it is raised where the program is, so that nothing half-written stays behind."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def exit_code(interrupt: KeyboardInterrupt) -> int:
    """As shells have it: 130 after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP."""
    return 128 + (interrupt.number if isinstance(interrupt, Stopped) else signal.SIGINT)


def heed() -> list[int]:
    """Raise what ends us; what was ignored when we were started (nohup, a background job) stays ignored.

    Returns the list in which the signals will be that came.
    """
    seen: list[int] = []
    last = -_PATIENCE

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal last
        if time.monotonic() - last < _PATIENCE:
            return
        last = time.monotonic()
        seen.append(number)
        leave_terminal()
        raise Stopped(number)

    for number in SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, stop)
    return seen


def leave_terminal() -> None:
    """A terminal that was closed refuses our last words, which would be one more error: say them to nobody."""
    with suppress(OSError):
        for file in (1, 2):
            if stat.S_ISCHR(os.fstat(file).st_mode) and not os.isatty(file):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, file)
                os.close(nowhere)
