"""Benchmark results as a table on the terminal, CSV, JSON and Markdown."""

from __future__ import annotations

import csv
import importlib.metadata
import io
import math
import os
import platform
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from unsnap import __version__
from unsnap import io as files
from unsnap.errors import printable
from unsnap.run import Result

UNKNOWN = "–"
HEADINGS = (
    "scene", "method", "PSNR dB", "SSIM", "CPU s per snap", "wall s", "peak MB", "iter.", "residual", "conv."
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One line of the table: what one method did on one scene, or on average."""

    scene: str
    method: str
    psnr: float | None
    ssim: float | None
    cpu_per_snapshot: float
    seconds: float
    peak_rss_mb: float | None
    iterations: float
    residual: float
    converged: bool
    best: bool = False

    def cells(self) -> list[str]:
        return [
            printable(self.scene),
            printable(self.method),
            _number(self.psnr, ".2f"),
            _number(self.ssim, ".4f"),
            _number(self.cpu_per_snapshot, ".3g"),
            _number(self.seconds, ".3g"),
            _number(self.peak_rss_mb, ".0f"),
            _number(self.iterations, ".0f"),
            _number(self.residual, ".1e"),
            "✓" if self.converged else "✗",
        ]


def table(results: Sequence[Result]) -> Table:
    """One row per scene and method, then the mean over scenes; the best PSNR of every group is bold.

    A mean row holds means, except for the largest peak and residual; it has converged if every run has. Where the truth
    of some scenes only is known, it says of how many its PSNR and SSIM are means.
    """
    drawn = Table(header_style="bold", box=SIMPLE_HEAD, padding=0, pad_edge=False, collapse_padding=True)
    for heading in HEADINGS:
        text = heading in ("scene", "method")
        drawn.add_column(heading, justify="left" if text else "right", no_wrap=heading == "method")
    for group in groups(results):
        for row in group:
            cells = [escape(cell) for cell in row.cells()]
            cells[2] = f"[bold]{cells[2]}[/bold]" if row.best else cells[2]
            cells[-1] = f"[{'green' if row.converged else 'red'}]{cells[-1]}[/]"
            drawn.add_row(*cells)
        drawn.add_section()
    return drawn


def write_markdown(path: str | Path, results: Sequence[Result]) -> Path:
    """The same table in Markdown."""
    lines = ["| " + " | ".join(HEADINGS) + " |", "|---|---|" + "---:|" * (len(HEADINGS) - 3) + ":---:|"]
    for row in (row for group in groups(results) for row in group):
        cells = [cell.replace("|", "\\|") for cell in row.cells()]
        cells[2] = f"**{cells[2]}**" if row.best else cells[2]
        lines.append("| " + " | ".join(cells) + " |")
    return files.write_text(path, "\n".join(lines) + "\n")


def write_csv(path: str | Path, results: Sequence[Result]) -> Path:
    """All fields of all results, one line each; lists are joined by ";", unknown values are empty."""
    return write_rows(path, [result.to_dict() for result in results])


def write_rows(path: str | Path, rows: Sequence[dict[str, Any]]) -> Path:
    """A line for each, under the keys of the first."""
    text = io.StringIO()
    writer = csv.DictWriter(text, rows[0] if rows else [], lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: _cell(value) for key, value in row.items()})
    return files.write_text(path, text.getvalue())


def _cell(value: Any) -> Any:
    """Text that a spreadsheet would take for a formula is marked as text by an apostrophe."""
    if isinstance(value, list):
        return ";".join(map(str, value))
    if not isinstance(value, str):
        return value
    return ("'" if value.lstrip()[:1] in ("=", "+", "-", "@") else "") + printable(value)


def write_json(path: str | Path, results: Sequence[Result], environment: dict[str, Any]) -> Path:
    """{"environment": ..., "scenes": {name: SHA-256}, "results": [...]}: what ran where, on which files."""
    rows = [result.to_dict() for result in results]
    scenes = {row["scene"]: row["input_sha256"] for row in rows}
    return files.write_json(path, {"environment": environment, "scenes": scenes, "results": rows})


def environment() -> dict[str, Any]:
    """Versions, machine, threads and command line: what a reader needs to repeat the run."""
    packages = ("torch", "numpy", "numba")
    return {
        "unsnap": __version__,
        **{name: importlib.metadata.version(name) for name in packages},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
    }


def _cpu_name() -> str:
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
        if names:
            return names[0]
    return platform.processor() or platform.machine()


def groups(results: Sequence[Result]) -> list[list[Row]]:
    """The rows of every scene in order of appearance, then the means if there are several scenes."""
    scenes = list(dict.fromkeys(result.scene for result in results))
    groups = [[_row(result) for result in results if result.scene == scene] for scene in scenes]
    if len(groups) > 1:
        groups.append(_means([row for group in groups for row in group]))
    return [_mark_best(group) for group in groups]


def _row(result: Result) -> Row:
    return Row(
        result.scene,
        result.method,
        result.psnr,
        result.ssim,
        result.cpu_seconds / result.snapshots,
        result.seconds,
        result.peak_rss_mb,
        result.iterations,
        result.residual,
        result.converged,
    )


def _means(rows: list[Row]) -> list[Row]:
    methods = list(dict.fromkeys(row.method for row in rows))
    return [_mean([row for row in rows if row.method == method]) for method in methods]


def _mean(rows: list[Row]) -> Row:
    peaks = [row.peak_rss_mb for row in rows if row.peak_rss_mb is not None]
    known = sum(row.psnr is not None for row in rows)
    return Row(
        f"mean of {len(rows)}" + (f", PSNR of {known}" if 0 < known < len(rows) else ""),
        rows[0].method,
        _average([row.psnr for row in rows]),
        _average([row.ssim for row in rows]),
        sum(row.cpu_per_snapshot for row in rows) / len(rows),
        sum(row.seconds for row in rows) / len(rows),
        max(peaks, default=None),
        sum(row.iterations for row in rows) / len(rows),
        max(row.residual for row in rows),
        all(row.converged for row in rows),
    )


def _average(values: Sequence[float | None]) -> float | None:
    """Mean of the known values."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _mark_best(rows: list[Row]) -> list[Row]:
    known = [row.psnr for row in rows if row.psnr is not None and not math.isnan(row.psnr)]
    if len(rows) < 2 or not known:
        return rows
    return [replace(row, best=row.psnr == max(known)) for row in rows]


def _number(value: float | None, form: str) -> str:
    if value is None or math.isnan(value):
        return UNKNOWN
    return format(value, form) if math.isfinite(value) else "∞"
