"""What a Dask cluster is sent: bytes, and a function of a module that imports nothing heavy.

Dask's scheduler unpickles the tasks that it passes on: with ours as objects it would import torch, and need the memory.
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unsnap.campaign.task import Outcome, Task, Work


def packed(work: Work, task: Task, versions: dict[str, str]) -> bytes:
    return pickle.dumps((work, task, versions))


def perform(sent: bytes) -> Outcome:
    """A task in a worker of Dask's, under the name that it has there."""
    from distributed import get_worker

    from unsnap.campaign import task

    work, asked, versions = pickle.loads(sent)
    return task.perform(work, asked, versions, get_worker().address)
