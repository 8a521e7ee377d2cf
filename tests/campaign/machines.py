"""A small Dask cluster of real processes on 127.0.0.1, whose workers and scheduler can be killed and come back."""

from __future__ import annotations

import os
import random
import resource
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.process import BaseProcess
from pathlib import Path

from campaign import nursery
from ports import free_port

# What Dask does every few milliseconds whether there is work or not, less often (docs/scale.md).
CALM = {
    "DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL": "1s",
    "DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__INTERVAL": "5s",
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",
    "DASK_DISTRIBUTED__WORKER__MEMORY__MONITOR_INTERVAL": "1s",
}
ENVIRONMENT = {**os.environ, **CALM, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}


def worker_options(address: str, folder: Path) -> list[str]:
    return [address, "--host", "127.0.0.1", "--nthreads", "1", "--no-nanny", "--no-dashboard", "--death-timeout", "60",
            "--local-directory", str(folder)]  # fmt: skip


class Machines:
    """One scheduler and some workers; whoever dies is started again, as SLURM or Kubernetes would."""

    def __init__(self, workers: int, log: Path, calm: bool = True) -> None:
        self.port, self.log, self.calm = free_port(), log, calm
        self.address = f"tcp://127.0.0.1:{self.port}"
        self.kills = 0
        self.spent: Counter[str] = Counter()
        """Processor seconds of those that have ended."""
        self._ending = False
        self._lock = threading.Lock()
        self.scheduler = self._start("scheduler")
        self._await_scheduler()
        self.workers = [self._start("worker") for _ in range(workers)]
        self._keeper = threading.Thread(target=self._keep, daemon=True)
        self._keeper.start()

    def _start(self, what: str, largest_file: int | None = None) -> BaseProcess:
        options = worker_options(self.address, self.log.parent / "dask")
        if what == "scheduler":
            options = ["--host", "127.0.0.1", "--port", str(self.port), "--no-dashboard"]
        # One that is killed is back in a tenth of a second.
        return nursery.born(serve, what, options, self.calm, largest_file, said=self.log, daemon=True).process

    def add_worker(self, largest_file: int) -> BaseProcess:
        """One more, which may write no files of more bytes, as if its disk were full; nobody starts it again."""
        return self._start("worker", largest_file)

    def _await_scheduler(self) -> None:
        """However slow the machine is today, whoever connects next finds somebody."""
        while self.scheduler.is_alive():
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return
            time.sleep(0.05)
        raise RuntimeError(f"the scheduler ended at once; see {self.log}.err")

    def _keep(self) -> None:
        while not self._ending:
            with self._lock:
                if not self.scheduler.is_alive():
                    self.scheduler = self._start("scheduler")
                for k, worker in enumerate(self.workers):
                    if not worker.is_alive():
                        self.workers[k] = self._start("worker")
            time.sleep(0.05)

    def _end(self, what: str, process: BaseProcess) -> None:
        with suppress(OSError):
            fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            self.spent[what] += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        process.kill()
        process.join()

    def kill_worker(self, chance: random.Random) -> None:
        with self._lock:
            self._end("worker", chance.choice(self.workers))
        self.kills += 1

    def kill_scheduler(self) -> None:
        with self._lock:
            self._end("scheduler", self.scheduler)

    def close(self) -> None:
        self._ending = True
        self._keeper.join()
        self._end("scheduler", self.scheduler)
        for worker in self.workers:
            self._end("worker", worker)


def serve(what: str, options: list[str], calm: bool = True, largest_file: int | None = None) -> None:
    """What a process of the cluster does: the command `dask scheduler` or `dask worker`."""
    if largest_file is not None:
        with Path(os.devnull).open("ab") as nowhere:  # what it says may be more
            for stream in (1, 2):
                os.dup2(nowhere.fileno(), stream)
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))
    from distributed.cli import dask_scheduler, dask_worker

    if calm:
        _calm_down()
    command = dask_scheduler.main if what == "scheduler" else dask_worker.main
    command(options)


def stranger(old: str, options: list[str]) -> None:
    """What a worker does that finds unsnap in another folder."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "unsnap"]:
        del sys.modules[name]
    sys.path.insert(0, old)
    serve("worker", options)


def client(*words: str) -> None:
    """What the command does that asks the cluster."""
    _calm_down()
    nursery.unsnap(*words)


def _calm_down() -> None:
    import dask

    dask.config.update(dask.config.config, dask.config.collect_env(CALM), priority="new")


@contextmanager
def machines(workers: int, log: Path, calm: bool = True) -> Iterator[Machines]:
    found = Machines(workers, log, calm)
    try:
        yield found
    finally:
        found.close()


def unsnap(*words: object, **options: object) -> subprocess.Popen[str]:
    """The command in a process of its own."""
    command = [sys.executable, "-m", "unsnap", *map(str, words)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, env=ENVIRONMENT, text=True, **{**pipes, **options})  # type: ignore[call-overload,no-any-return]
