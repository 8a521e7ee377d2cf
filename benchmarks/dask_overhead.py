"""What Dask costs: per task that does nothing, and per second in which nothing is asked of it; processor time.

python benchmarks/dask_overhead.py --tasks 500 --idle 20

A scheduler and two workers in processes of their own; once as Dask comes, once with the settings of docs/scale.md,
which make it look after itself less often.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "campaign"))
from machines import Machines, machines


def nothing(number: int) -> int:
    return number


def spent(pid: int | None) -> float:
    """Processor seconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def now(cluster: Machines) -> tuple[float, float, float, float]:
    """Wall-clock, and processor seconds of the client, the scheduler and both workers."""
    workers = sum(spent(worker.pid) for worker in cluster.workers)
    return time.monotonic(), spent(os.getpid()), spent(cluster.scheduler.pid), workers


def measure(name: str, calm: bool, tasks: int, idle: float) -> None:
    from distributed import Client

    with tempfile.TemporaryDirectory() as folder, machines(2, Path(folder) / "log", calm) as cluster:
        client = Client(cluster.address, timeout=60, set_as_default=False)
        client.wait_for_workers(2)
        client.gather([client.submit(nothing, k, pure=False) for k in range(20)])
        before = now(cluster)
        time.sleep(idle)
        between = now(cluster)
        window: deque[Any] = deque()
        for k in range(tasks):  # as a campaign does: a few at a time
            window.append(client.submit(nothing, -k, pure=False))
            if len(window) >= 4:
                window.popleft().result()
        for future in window:
            future.result()
        after = now(cluster)
        client.close()
    wall = between[0] - before[0]
    rest, busy = ([b - a for a, b in zip(*pair, strict=True)] for pair in ((before, between), (between, after)))
    print(f"{name}: a second without tasks takes {1e3 * rest[1] / wall:.1f} ms of the client, "
          f"{1e3 * rest[2] / wall:.1f} ms of the scheduler, {500 * rest[3] / wall:.1f} ms of each worker")  # fmt: skip
    print(f"{name}: a task takes {1e3 * busy[1] / tasks:.2f} ms of the client, {1e3 * busy[2] / tasks:.2f} ms of the "
          f"scheduler, {1e3 * busy[3] / tasks:.2f} ms of the workers; {1e3 * busy[0] / tasks:.1f} ms wall-clock, four "
          "at a time", flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, default=500)
    parser.add_argument("--idle", type=float, default=20)
    given = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f}")
    measure("as it comes  ", False, given.tasks, given.idle)
    measure("with settings", True, given.tasks, given.idle)


if __name__ == "__main__":
    main()
