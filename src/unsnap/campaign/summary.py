"""What became of a campaign, for people (summary.html) and for spreadsheets (summary.csv)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from unsnap.bench.html import write_page
from unsnap.bench.report import write_rows
from unsnap.campaign.run import Entry
from unsnap.errors import printable

SUMMARIES = ("summary.csv", "summary.html")
_SHOWN = 1000
"""Files that did well in the page; all are in the table beside it."""


def write_summary(folder: Path, entries: Sequence[Entry], command: str, seconds: float) -> None:
    """Both files. command: what repeats the failures, and only these."""
    rows = [_row(entry) for entry in entries]
    write_rows(folder / SUMMARIES[0], rows)
    failures = [row for row in rows if row["state"] == "failed"]
    others = [row for row in rows if row["state"] != "failed"]
    counts = ", ".join(f"{count} {state}" for state, count in Counter(row["state"] for row in rows).most_common())
    body = [f"<h1>{len(rows)} files</h1>", f"<p>{escape(counts)}; {seconds:.1f} s</p>"]
    if failures:
        again = f"<p>Repeat these, and only these, with</p><p><code>{_text(command)}</code></p>"
        body += ["<h2>Failed</h2>", _table(failures, ("file", "message", "worker")), again]
    body += ["<h2>Done</h2>", _table(others[:_SHOWN], ("file", "state", "output", "psnr", "seconds", "worker"))]
    if len(others) > _SHOWN:
        body.append(f"<p>… and {len(others) - _SHOWN} more in {SUMMARIES[0]}</p>")
    write_page(folder / SUMMARIES[1], f"{len(rows)} files, {len(failures)} failed", body)


def state(entry: Entry) -> str:
    """One word."""
    if entry.result is None:
        return "failed"
    if entry.result.diverged:
        return "diverged"
    if not entry.result.converged:
        return "unconverged"
    return "earlier" if entry.earlier else "done"


def _row(entry: Entry) -> dict[str, Any]:
    found = entry.result
    return {
        "file": str(entry.file),
        "state": state(entry),
        "output": None if found is None else found.output,
        "snapshots": None if found is None else found.snapshots,
        "psnr": None if found is None or found.psnr is None else round(found.psnr, 3),
        "seconds": None if found is None else round(found.seconds, 3),
        "cpu_seconds": None if found is None else round(found.cpu_seconds, 3),
        "worker": entry.worker,
        "message": entry.error if found is None else " ".join(found.warnings) or None,
    }


def _table(rows: Sequence[dict[str, Any]], keys: Sequence[str]) -> str:
    lines = ["".join(f"<th>{key}</th>" for key in keys)]
    lines += ["".join(f"<td>{_text('–' if row[key] is None else row[key])}</td>" for key in keys) for row in rows]
    return '<div class="wide"><table>' + "".join(f"<tr>{line}</tr>" for line in lines) + "</table></div>"


def _text(value: object) -> str:
    return escape(printable(value))
