"""The display of long learning: a bar with what is known now, and a line for every validation."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from unsnap.cli.common import err, remark
from unsnap.io.lock import locked

Facts = dict[str, Any]


@contextmanager
def alone(lock: Path, name: Path, quiet: bool) -> Iterator[None]:
    """Hold the lock; a word to people if its last owner died with it."""
    with locked(lock, name) as found:
        if found is not None:
            remark(found, quiet)
        yield


@contextmanager
def display(begin: str, told: Callable[[Facts], str | Facts], quiet: bool) -> Iterator[Callable[[Facts], None]]:
    """Yields a report: `told` makes a line of its facts, or what to change in the bar. Only lines go to a file."""
    columns = (
        TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[text]}"),
        TimeRemainingColumn(),
    )  # fmt: skip
    visible = not quiet and err.is_terminal
    with Progress(*columns, console=err, transient=True, auto_refresh=False, disable=not visible) as bar:
        task = bar.add_task(begin, total=None, text="")
        bar.refresh()
        last = 0.0

        def report(facts: Facts) -> None:
            nonlocal last
            saying = told(facts)
            if isinstance(saying, str):
                remark(saying, quiet)
            elif visible and time.monotonic() - last > 0.2:
                bar.update(task, refresh=True, **saying)
                last = time.monotonic()

        yield report
