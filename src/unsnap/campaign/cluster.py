"""Workers of a Dask cluster that somebody else runs; its scheduler may restart, its workers may come and go.

Dask places the tasks and repeats those whose worker was lost. What it forgets when its scheduler ends we submit again:
tasks may be done twice, and their results are files.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from typing import Any

from unsnap.campaign.remote import packed, perform
from unsnap.campaign.task import VERSIONS, Outcome, Task, Work, told
from unsnap.errors import InputError, short

CONNECT = 10.0
"""Seconds in which a scheduler must answer at first."""
PATIENCE = 600.0
"""Seconds in which a scheduler, or a worker, that was there must come back."""
_AHEAD = 2
"""Tasks per thread that the scheduler is given: the next one is there when one ends."""
_ADDRESS = re.compile(r"([a-z]+://)?([\w.-]+|\[[0-9a-f:.]+\]):\d{1,5}(/\S*)?", re.IGNORECASE | re.ASCII)
"""SCHEME://HOST:PORT, or HOST:PORT."""
_LOST = (OSError, TimeoutError, asyncio.TimeoutError, CancelledError, RuntimeError)
"""What a connection that has ended raises."""


class Cluster:
    """A pool of Dask's workers; `with connected(work, address, say) as pool`."""

    def __init__(self, work: Work, address: str, say: Callable[[str], None]) -> None:
        self.work, self.address, self.say = work, address, say
        self.client = _connect(address, CONNECT)
        self.threads: dict[str, int] = {}
        """Of the workers that may work for us."""
        self.avoided: set[str] = set()
        self.out: dict[str, tuple[Task, Any, frozenset[str]]] = {}
        """Key of a future -> task, future, workers that it is bound to (none: any)."""
        self._ended: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._asked = self._heard = 0.0
        self._count = 0
        say(f"Dashboard: {self.client.dashboard_link}")
        self._look()

    # ------------------------------------------------------------------ who is there

    def _look(self) -> None:
        """Who is there? Newcomers are asked for their versions; at most twice a second."""
        if time.monotonic() - self._asked < 0.5 or not self._alive():
            return
        self._asked = time.monotonic()
        try:
            threads: dict[str, int] = self.client.nthreads()
            new = [name for name in threads if name not in self.threads and name not in self.avoided]
            facts = self._facts(new) if new else {}
        except _LOST:
            return
        for name, found in facts.items():
            if isinstance(found, _LOST):  # gone again
                threads.pop(name, None)
            elif found != VERSIONS:
                self._refuse(
                    name, told(VERSIONS, found) if isinstance(found, dict) else f"it has no such unsnap: {found}"
                )
        self.threads = {name: count for name, count in threads.items() if name not in self.avoided}
        self._heard = time.monotonic() if self.threads else self._heard or time.monotonic()
        if not self.threads and time.monotonic() - self._heard > PATIENCE:
            raise InputError(f"{self.address} has had no worker for {PATIENCE:.0f} s; start some and repeat this")
        for key, (task, future, bound) in list(self.out.items()):
            if bound and not bound & self.threads.keys():  # Dask would wait for those for ever
                del self.out[key]
                future.cancel()
                self.submit(task)

    def _facts(self, workers: list[str]) -> dict[str, Any]:
        found: dict[str, Any] = self.client.sync(
            self.client._run, _versions, workers=workers, on_error="return", callback_timeout=CONNECT
        )
        return found

    def _refuse(self, name: str, reason: str) -> None:
        self.avoided.add(name)
        self.say(f"The worker {name} is refused: {short(reason)[1:-1]}.")

    def _alive(self) -> bool:
        """Connected, or connected again after the scheduler was away."""
        if self.client.status == "running":
            return True
        if self.client.status == "closed":
            self.say(f"The scheduler at {self.address} has gone; waiting for it.")
            deadline = time.monotonic() + PATIENCE
            while self.client.status == "closed":
                try:
                    self.client = _connect(self.address, CONNECT)
                except InputError:
                    if time.monotonic() > deadline:
                        raise
            self.threads = {}
        return False

    # ------------------------------------------------------------------ tasks

    def room(self) -> int:
        self._look()
        return max(0, _AHEAD * sum(self.threads.values()) - len(self.out)) if self.client.status == "running" else 0

    def submit(self, task: Task) -> None:
        self._count += 1
        key = f"unsnap-{task.key}-{self._count}"
        bound = frozenset(self.threads) if self.avoided else frozenset[str]()
        with suppress(*_LOST):
            sent = packed(self.work, task, VERSIONS)
            future = self.client.submit(perform, sent, key=key, pure=False, workers=sorted(bound) or None)
            self.out[key] = (task, future, bound)
            future.add_done_callback(lambda done: self._ended.put(done.key))
            return
        self.out[key] = (task, None, bound)
        self._ended.put(key)

    def wait(self, seconds: float) -> list[tuple[Task, Outcome]]:
        self._look()
        found = []
        with suppress(queue.Empty):
            found.append(self._ended.get(timeout=seconds))
            while True:
                found.append(self._ended.get_nowait())
        return [self._outcome(key) for key in found if key in self.out]

    def _outcome(self, key: str) -> tuple[Task, Outcome]:
        """What a future says; lost ones are as if their worker had died."""
        task, future, _ = self.out.pop(key)
        if future is None or future.status in ("cancelled", "lost"):
            return task, Outcome(died=True)
        from distributed import KilledWorker

        try:
            outcome: Outcome = future.result(timeout=CONNECT)
        except (KilledWorker, *_LOST):  # it is started again; whoever begins finds how often that happened
            return task, Outcome(died=True)
        except Exception as error:  # noqa: BLE001 (a worker that cannot even begin, such as one without this module)
            self.threads = {}  # ask all of them again
            return task, Outcome(error=f"{task.file} could not be started by a worker: {type(error).__name__} {error}")
        return task, outcome

    def avoid(self, worker: str) -> bool:
        """Nothing more for a worker whose disk is full or whose version is another one, unless nobody else is left.

        A disk that all of them share is full for all of them: the last one says so, task by task.
        """
        if not self.threads.keys() - {worker}:
            return False
        if worker in self.threads and worker not in self.avoided:
            self.say(f"The worker {worker} gets no more tasks: its disk is full, or its unsnap another.")
        self.avoided.add(worker)
        self.threads.pop(worker, None)
        return True

    def close(self) -> None:
        with suppress(*_LOST):
            self.client.cancel([future for _, future, _ in self.out.values() if future is not None], force=True)
        with suppress(*_LOST):
            self.client.close(timeout=2)


@contextmanager
def connected(work: Work, address: str, say: Callable[[str], None] = lambda text: None) -> Iterator[Cluster]:
    pool = Cluster(work, address, say)
    try:
        yield pool
    finally:
        pool.close()


def _connect(address: str, seconds: float) -> Any:
    try:
        import distributed
    except ImportError as error:
        raise InputError(f"--cluster needs Dask ({error}); install it with: pip install 'unsnap[cluster]'") from error
    if not _ADDRESS.fullmatch(address):
        raise InputError(f"{short(address)} is no address of a Dask scheduler, such as tcp://scheduler:8786")
    for name in ("distributed.client", "distributed.core", "distributed.comm", "distributed.batched"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # what it has to complain of, we handle
    try:
        return distributed.Client(address, timeout=seconds, set_as_default=False, name="unsnap")
    # Dask asserts that its own thread has started within ten seconds, which a busy machine may not grant it.
    except (OSError, TimeoutError, ValueError, RuntimeError, ImportError, AssertionError) as error:
        raise InputError(
            f"no Dask scheduler answers at {short(address)}; start one with `dask scheduler`, or correct the address"
        ) from error


def _versions() -> dict[str, str]:
    """Asked of every worker."""
    return VERSIONS
