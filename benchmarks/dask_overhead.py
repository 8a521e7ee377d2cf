"""What Dask costs per task that does nothing: processor time of scheduler and client together, and of the workers.

python benchmarks/dask_overhead.py --tasks 2000
"""

from __future__ import annotations

import argparse
import os
import time
from collections import deque


def nothing(number: int) -> int:
    return number


def processor() -> tuple[int, float]:
    return os.getpid(), time.process_time()


def main() -> None:
    from distributed import Client, LocalCluster

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, default=2000)
    tasks = parser.parse_args().tasks
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,  # the scheduler is in this process, too
    ):
        client.gather([client.submit(nothing, k, pure=False) for k in range(50)])
        before, own, wall = client.run(processor), time.process_time(), time.perf_counter()
        window: deque[object] = deque()
        for k in range(tasks):  # as a campaign does: a few at a time
            window.append(client.submit(nothing, -k, pure=False))
            if len(window) >= 4:
                window.popleft().result()  # type: ignore[attr-defined]
        for future in window:
            future.result()  # type: ignore[attr-defined]
        own, wall, after = time.process_time() - own, time.perf_counter() - wall, client.run(processor)
        workers = sum(after[name][1] - before[name][1] for name in before)
    print(f"scheduler and client {1e3 * own / tasks:.2f} ms of processor time per task")
    print(f"workers              {1e3 * workers / tasks:.2f} ms")
    print(f"wall-clock           {1e3 * wall / tasks:.2f} ms, four at a time")


if __name__ == "__main__":
    main()
