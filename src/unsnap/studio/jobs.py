"""Computations in processes of their own: what they tell on the way arrives as messages, and stopping them is real."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from unsnap.errors import InputError, sentence, short
from unsnap.io import budget

Message = dict[str, Any]
Tell = Callable[[Message], None]
Work = Callable[..., None]
"""work(tell, *args) runs in the process; what it tells is sent."""

_KIND = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
_CONTEXT: Any = multiprocessing.get_context(_KIND)
_DIED = (
    "the computation ended before it was done ({}); most likely there was not enough memory for it: use fewer "
    "snapshots, a smaller size or a cheaper method"
)
_PATIENCE = 0.25  # seconds


def warm_up() -> None:
    """Start the process that has everything imported, of which every job is a copy."""
    if _KIND == "forkserver":
        from multiprocessing.forkserver import ensure_running

        _CONTEXT.set_forkserver_preload(["unsnap.studio.work"])
        try:
            ensure_running()
        except OSError as error:
            raise InputError(
                f"no process can be started from {short(tempfile.gettempdir())} ({error}); name another folder for "
                "temporary files, with a short name, in TMPDIR"
            ) from error


class Job:
    """A running computation; `limit` bytes may be used to read files (None: what there is)."""

    def __init__(self, work: Work, *args: Any, limit: int | None = None) -> None:
        self._ours, theirs = _CONTEXT.Pipe(duplex=False)
        self.process = _CONTEXT.Process(target=_run, args=(theirs, work, args, limit), daemon=True)
        self.process.start()
        theirs.close()
        self.stopped = False

    def messages(self) -> Iterator[Message | None]:
        """What it tells, to the end; None whenever nothing came for a while. Its failure is an InputError."""
        try:
            while True:
                if not self._ours.poll(_PATIENCE):
                    yield None
                    continue
                message: Message = self._ours.recv()
                if "error" in message:
                    raise InputError(message["error"])
                if "done" in message:
                    return
                yield message
        except (EOFError, OSError):
            if not self.stopped:
                self.process.join(5)
                code = self.process.exitcode
                how = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
                raise InputError(_DIED.format(how)) from None
        finally:
            self.stop()
            self._ours.close()  # here and not in `stop`, which another thread may call: the number could be used again

    def stop(self) -> None:
        """End it now, wherever it is."""
        self.stopped = True
        if self.process.is_alive():
            self.process.terminate()
            self.process.join(1)
        if self.process.is_alive():
            self.process.kill()
            self.process.join(5)


def _run(connection: Connection, work: Work, args: tuple[Any, ...], limit: int | None) -> None:
    """The job's process. Ctrl-C is for the studio, which ends its jobs itself."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with budget.memory(limit):
            work(connection.send, *args)
        connection.send({"done": True})
    except (BrokenPipeError, ConnectionResetError):  # the studio has gone
        os._exit(1)
    except Exception as error:  # noqa: BLE001
        said = sentence(error)
        if said is None:
            traceback.print_exception(error, file=sys.stderr)
            said = f"something unforeseen happened ({type(error).__name__}); the studio's terminal shows more"
        with suppress(OSError):
            connection.send({"error": said})
