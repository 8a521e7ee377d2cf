"""Workers that are processes of this machine, one thread each; one that dies is replaced."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from types import FrameType

from unsnap.campaign.task import VERSIONS, Outcome, Task, Work, perform
from unsnap.errors import InputError

_STILLBORN = 5
"""Workers in a row that end before their first task: something is wrong with the machine, not with a file."""


@dataclass
class _Worker:
    process: BaseProcess
    pipe: connection.Connection
    ready: bool = False
    task: Task | None = None


class Processes:
    """A pool of processes; `with processes(work, 4) as pool`."""

    def __init__(self, work: Work, count: int) -> None:
        self.work, self.workers = work, [_start(work) for _ in range(count)]
        self.stillborn = 0

    def room(self) -> int:
        return sum(worker.ready and worker.task is None for worker in self.workers)

    def submit(self, task: Task) -> None:
        worker = next(worker for worker in self.workers if worker.ready and worker.task is None)
        worker.task = task
        with suppress(OSError):  # it has died: `wait` will see
            worker.pipe.send(task)

    def wait(self, seconds: float) -> list[tuple[Task, Outcome]]:
        spoke = connection.wait([worker.pipe for worker in self.workers], seconds)
        heard = [self._heard(worker) for worker in list(self.workers) if worker.pipe in spoke]
        return [answer for answer in heard if answer is not None]

    def avoid(self, worker: str) -> bool:
        return False  # they share their disks

    def _heard(self, worker: _Worker) -> tuple[Task, Outcome] | None:
        try:
            answer = worker.pipe.recv()
        except (EOFError, OSError):
            self._replace(worker)
            return None if worker.task is None else (worker.task, Outcome(died=True))
        if worker.task is None:
            worker.ready, self.stillborn = True, 0
            return None
        task, worker.task = worker.task, None
        return task, answer

    def _replace(self, worker: _Worker) -> None:
        worker.process.join()
        worker.pipe.close()
        self.stillborn += not worker.ready
        if self.stillborn >= _STILLBORN:
            raise InputError(
                f"{self.stillborn} processes ended before they could begin (the last with exit code "
                f"{worker.process.exitcode}); free some memory or take fewer --workers"
            )
        self.workers[self.workers.index(worker)] = _start(self.work)

    def close(self) -> None:
        """End them all; what they were writing disappears."""
        for worker in self.workers:
            worker.pipe.close()
            if worker.task is not None and worker.process.is_alive():
                worker.process.terminate()
        for worker in self.workers:
            worker.process.join()


@contextmanager
def processes(work: Work, count: int) -> Iterator[Processes]:
    pool = Processes(work, count)
    try:
        yield pool
    finally:
        pool.close()


def _start(work: Work) -> _Worker:
    # Not forked: threads of torch and numba do not survive that.
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, work), daemon=True)
    process.start()
    theirs.close()
    return _Worker(process, ours)


def _serve(pipe: connection.Connection, work: Work) -> None:
    """What a worker does all its life; it ends when nobody is at the other end of the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all: the first process decides
    signal.signal(signal.SIGTERM, _stop)
    with suppress(EOFError, OSError):
        pipe.send("ready")
        while True:
            pipe.send(perform(work, pipe.recv(), VERSIONS, f"process {os.getpid()}"))


def _stop(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)
