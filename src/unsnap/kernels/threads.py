"""Run independent pieces of a kernel on as many threads as torch was told to use."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from itertools import pairwise

import torch

SMALL = 1 << 19  # elements below which a second thread costs more than it saves


def worker_count(elements: int) -> int:
    """Threads worth using for this much work; one inside a worker thread, so that pools never nest."""
    nested = threading.current_thread().name.startswith("unsnap-kernel")
    return 1 if nested else max(1, min(torch.get_num_threads(), elements // SMALL))


def bands(length: int, count: int) -> list[tuple[int, int]]:
    """Cut range(length) into at most `count` consecutive, nearly equal, non-empty pieces."""
    count = max(1, min(count, length))
    edges = [length * i // count for i in range(count + 1)]
    return list(pairwise(edges))


def run(tasks: Sequence[Callable[[], None]], workers: int) -> None:
    """Run every task; the first exception is raised after all have ended."""
    if workers <= 1 or len(tasks) <= 1:
        for task in tasks:
            task()
        return
    futures = [_pool(workers, os.getpid()).submit(task) for task in tasks]
    wait(futures)  # also for what a failed one leaves running: it writes into arrays of the caller
    for future in futures:
        future.result()


@cache
def _pool(workers: int, process: int) -> ThreadPoolExecutor:
    # Keyed by process: threads do not survive a fork, so a forked child makes its own pool.
    return ThreadPoolExecutor(workers, thread_name_prefix="unsnap-kernel")
