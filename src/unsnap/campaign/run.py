"""The campaign: every file once, on any pool of workers; what one file or one worker does, stops nobody else."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from unsnap.campaign.folder import Folder, digest
from unsnap.campaign.task import Outcome, Task, Work
from unsnap.run import Result

_STRAGGLER = 4.0
"""A task that takes so many times as long as the longest that has ended is started again where a worker idles."""
_PATIENCE = 60.0
"""… but not before so many seconds."""


class Pool(Protocol):
    """Workers, wherever they are."""

    def room(self) -> int:
        """How many more tasks it takes now."""

    def submit(self, task: Task) -> None: ...

    def wait(self, seconds: float) -> list[tuple[Task, Outcome]]:
        """What ended meanwhile; at once if something did."""

    def avoid(self, worker: str) -> bool:
        """Give this worker nothing more; False if nobody else is left."""


@dataclass(frozen=True)
class Entry:
    """One file of a campaign: what became of it, now or in an earlier run."""

    file: Path
    result: Result | None = None
    error: str | None = None
    earlier: bool = False
    worker: str = ""


def prepare(
    work: Work,
    jobs: Sequence[tuple[Path, Path]],
    claim: Callable[[Path], None],
    *,
    force: bool = False,
    memory: int | None = None,
    inputs: Iterable[str | Path | None] = (),
) -> tuple[list[Task], list[Entry]]:
    """The tasks that are left of (file, video) jobs in one folder, and what earlier runs did.

    claim: refuses a video's name that is taken. It is not asked for names that belong to this campaign already.
    """
    folder, settings = Folder(jobs[0][1].parent.absolute()), work.settings()
    folder.check_free(settings, force)
    taken = set(_identities(Path(path) for path in (*(file for file, _ in jobs), *inputs) if path is not None))
    for _, target in jobs:
        if folder.record(target) is None or taken.intersection(_identities([target])):
            claim(target)
    folder.begin(settings)
    tasks, entries, name = [], [], digest(folder.settings())
    for file, target in jobs:
        done = folder.done(target, file, name)
        if done is not None:
            entries.append(Entry(file, done, earlier=True))
        else:
            tasks.append(Task(file.absolute(), target.absolute(), None, name, memory, force))
    return tasks, entries


def _identities(paths: Iterable[Path]) -> Iterator[tuple[int, int]]:
    for path in paths:
        with suppress(OSError, ValueError):
            facts = path.stat()
            yield facts.st_dev, facts.st_ino


class Campaign:
    """Tasks on a pool of workers; every file ends in one entry."""

    def __init__(self, tasks: Iterable[Task], pool: Pool) -> None:
        self.pool = pool
        self.waiting = deque(tasks)
        self.out: dict[Task, float] = {}
        """When each task that is out was submitted."""
        self.parts: dict[Path, set[Task]] = {}
        """The parts of a file that are not done."""
        self.twice: set[Task] = set()
        self.longest = 0.0

    def run(self) -> Iterator[Entry]:
        """Every file with what became of it, as they end."""
        while self.waiting or self.out:
            for _ in range(min(self.pool.room(), len(self.waiting))):
                self._submit(self.waiting.popleft())
            for task, outcome in self.pool.wait(0.2):
                yield from self._ended(task, outcome)
            self._hurry()

    def _submit(self, task: Task) -> None:
        self.out[task] = time.monotonic()
        self.pool.submit(task)

    def _ended(self, task: Task, outcome: Outcome) -> Iterator[Entry]:
        if task not in self.out:  # a second attempt that came too late
            return
        if outcome.died:  # last in the queue, so that the rest comes first if it dies again
            del self.out[task]
            self.waiting.append(task)
            return
        if (outcome.refused or outcome.full) and self.pool.avoid(outcome.worker):
            del self.out[task]
            self.waiting.appendleft(task)
            return
        del self.out[task]
        self.twice.discard(task)
        self.longest = max(self.longest, outcome.seconds)
        if outcome.error is not None:
            yield from self._failed(task, outcome)
        elif outcome.missing:
            pieces = [replace(task, part=part) for part in outcome.missing]
            self.parts[task.file] = set(pieces)
            self.waiting.extendleft(reversed(pieces))
        elif task.part is not None:
            self._part_done(task)
        else:
            yield Entry(task.file, outcome.result, worker=outcome.worker)

    def _part_done(self, task: Task) -> None:
        left = self.parts.get(task.file)
        if left is None:  # another part of it failed
            return
        left.discard(task)
        if not left:
            del self.parts[task.file]
            self.waiting.appendleft(replace(task, part=None))

    def _failed(self, task: Task, outcome: Outcome) -> Iterator[Entry]:
        """Once for a file, though several of its parts may fail."""
        left = self.parts.pop(task.file, None)
        if task.part is None or left is not None:
            self.waiting = deque(other for other in self.waiting if other.file != task.file)
            where = f" (on {outcome.worker})" if outcome.full else ""
            yield Entry(task.file, error=f"{outcome.error}{where}", worker=outcome.worker)

    def _hurry(self) -> None:
        """Where somebody idles at the end, begin once more with what takes suspiciously long: nodes hang, too."""
        if self.waiting or not self.out or self.pool.room() < 1:
            return
        task = min(self.out, key=lambda task: self.out[task])
        limit = max(_PATIENCE, _STRAGGLER * self.longest)
        if task not in self.twice and time.monotonic() - self.out[task] > limit:
            self.twice.add(task)
            self.pool.submit(task)
