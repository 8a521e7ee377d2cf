"""A small Dask cluster of real processes on 127.0.0.1, whose workers and scheduler can be killed and come back."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# What Dask does every few milliseconds whether there is work or not, less often (docs/scale.md).
CALM = {
    "DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL": "1s",
    "DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__INTERVAL": "5s",
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",
    "DASK_DISTRIBUTED__WORKER__MEMORY__MONITOR_INTERVAL": "1s",
}
ENVIRONMENT = {**os.environ, **CALM, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Machines:
    """One scheduler and some workers; whoever dies is started again, as SLURM or Kubernetes would."""

    def __init__(self, workers: int, log: Path) -> None:
        self.port, self.log = free_port(), log
        self.address = f"tcp://127.0.0.1:{self.port}"
        self.kills = 0
        self._ending = False
        self._lock = threading.Lock()
        self.scheduler = self._start("scheduler")
        self.workers = [self._start("worker") for _ in range(workers)]
        self._keeper = threading.Thread(target=self._keep, daemon=True)
        self._keeper.start()

    def _start(self, what: str) -> subprocess.Popen[bytes]:
        options = {
            "scheduler": ["--port", str(self.port), "--no-dashboard"],
            "worker": [self.address, "--nthreads", "1", "--no-nanny", "--no-dashboard", "--death-timeout", "60",
                       "--local-directory", str(self.log.parent / "dask")],
        }[what]  # fmt: skip
        command = [sys.executable, "-m", f"distributed.cli.dask_{what}", "--host", "127.0.0.1", *options]
        with self.log.open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, env=ENVIRONMENT)

    def _keep(self) -> None:
        while not self._ending:
            with self._lock:
                if self.scheduler.poll() is not None:
                    self.scheduler = self._start("scheduler")
                for k, worker in enumerate(self.workers):
                    if worker.poll() is not None:
                        self.workers[k] = self._start("worker")
            time.sleep(0.05)

    def kill_worker(self, chance: random.Random) -> None:
        with self._lock:
            worker = chance.choice(self.workers)
            worker.send_signal(signal.SIGKILL)
            worker.wait()
        self.kills += 1

    def kill_scheduler(self) -> None:
        with self._lock:
            self.scheduler.send_signal(signal.SIGKILL)
            self.scheduler.wait()

    def close(self) -> None:
        self._ending = True
        self._keeper.join()
        for process in (self.scheduler, *self.workers):
            process.kill()
            process.wait()


@contextmanager
def machines(workers: int, log: Path) -> Iterator[Machines]:
    found = Machines(workers, log)
    try:
        yield found
    finally:
        found.close()


def unsnap(*words: object, **options: object) -> subprocess.Popen[str]:
    """The command in a process of its own."""
    command = [sys.executable, "-m", "unsnap", *map(str, words)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, env=ENVIRONMENT, text=True, **{**pipes, **options})  # type: ignore[call-overload,no-any-return]
