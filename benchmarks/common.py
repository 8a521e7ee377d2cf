"""What the scripts share: the test snapshot, the stopwatch, the table and the optional JSON file."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from unsnap.bench.report import environment
from unsnap.io import read_video, write_json
from unsnap.masks import bernoulli
from unsnap.simulate import render

console = Console(width=None if sys.stdout.isatty() else 120)


def snapshot(frames: int = 8, height: int = 256, width: int = 256) -> tuple[Tensor, Tensor, Tensor]:
    """(measurement, masks, truth) of the built-in scene."""
    truth = render(frames, height, width)
    masks = bernoulli(frames, height, width, generator=torch.Generator().manual_seed(0))
    return (masks * truth).sum(0), masks, truth


def clips(folder: Path, size: int, frames: int = 8, count: int = 2) -> tuple[Tensor, Tensor]:
    """Masks and videos (N, T, size, size): from the middle of every clip `count` times `frames` frames, in sequence."""
    videos = []
    for path in sorted(folder.glob("*.npz")):
        clip = read_video(path)
        top, left = (clip.shape[1] - size) // 2, (clip.shape[2] - size) // 2
        clip = clip[:, top : top + size, left : left + size]
        if len(clip) < count * frames:
            raise SystemExit(f"{path} has {len(clip)} frames, {count} snapshots of {frames} need {count * frames}")
        videos += list(clip[: count * frames].split(frames))
    if not videos:
        raise SystemExit(f"{folder} holds no clips (.npz)")
    generator = torch.Generator().manual_seed(0)
    masks = [bernoulli(frames, size, size, generator=generator) for _ in videos]
    return torch.stack(masks), torch.stack(videos)


def cpu_seconds(work: Callable[[], Any], repeats: int) -> float:
    """The least processor time of several runs, after one that compiles: other users only ever add to it."""
    work()
    times = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def show(title: str, rows: list[dict[str, Any]], best: str | None = None) -> None:
    """Print dictionaries with the same keys as a table; the row with the largest `best` is bold."""
    table = Table(title=title, title_justify="left")
    for key, value in rows[0].items():
        table.add_column(key, justify="left" if isinstance(value, str) else "right")
    for row in rows:
        winner = best is not None and row[best] == max(other[best] for other in rows)
        table.add_row(*map(_cell, row.values()), style="bold" if winner else None)
    console.print(table)


def finish(path: Path | None, results: Any) -> None:
    """Write the results with the environment, if a path was given."""
    if path is not None:
        write_json(path, {"environment": environment(), "results": results})


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
