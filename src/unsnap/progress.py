"""A bar for long work, wherever it runs: in a terminal, in a notebook, and none where nobody looks."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from typing import Any

from torch import Tensor

from unsnap.errors import printable

Tell = Callable[[int, int, str], None]
"""tell(done, of, what else is known)"""
_EVERY = 0.2  # seconds


@contextmanager
def bar(title: str, console: Any = None) -> Iterator[Tell | None]:
    """What draws the bar, or None where nobody would see it. It redraws itself only when told.

    console: of rich; default: stderr.
    """
    if console is None and in_notebook():
        yield _in_notebook(printable(title))
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = console or Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    text = (TextColumn("{task.description}", markup=False), TextColumn("{task.fields[known]}", markup=False))
    columns = (text[0], BarColumn(), MofNCompleteColumn(), text[1], TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, auto_refresh=False) as progress:
        task = progress.add_task(printable(title), total=None, known="starting")

        def tell(done: int, total: int, known: str) -> None:
            progress.update(task, completed=done, total=total, known=known, refresh=True)

        yield tell


def in_notebook() -> bool:
    """Is this process the kernel of a notebook? A question to what is loaded: it loads nothing."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return hasattr(shell, "kernel")


def _in_notebook(title: str) -> Tell:
    """A line of the cell's output that is replaced in place. Plain HTML: needs no widgets, and works everywhere."""
    from IPython.display import HTML, display

    began, handle = time.monotonic(), display(HTML(escape(title)), display_id=True)

    def tell(done: int, total: int, known: str) -> None:
        words = f"{done}/{total} {known} {time.monotonic() - began:.1f} s"
        handle.update(HTML(f'{escape(title)} <progress value="{done}" max="{total}"></progress> {escape(words)}'))

    return tell


def watcher(
    tell: Tell, total: int, quality: Callable[[Tensor], str] | None = None, ends: float | None = None
) -> Callable[..., None]:
    """A callback of `reconstruct` that tells a bar, a few times a second, the change and what `quality(x)` says.

    ends: the change at which the method stops, be all `total` iterations done or not.
    """
    last, first, end = 0.0, 0, "" if ends is None else f" (ends at {ends:.0e})"

    def watch(iteration: int, x: Tensor, residual: Tensor) -> None:
        nonlocal last, first
        first = min(first, iteration - 1)  # a start counts up to 0 first
        if time.monotonic() - last < _EVERY and iteration < total:
            return
        known = f"change {float(residual.max()):.1e}{end if iteration > 0 else ''}" if residual.numel() else ""
        tell(iteration - first, total - first, f"{known} {quality(x) if quality else ''}".strip())
        last = time.monotonic()

    return watch
