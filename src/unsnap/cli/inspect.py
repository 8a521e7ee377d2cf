"""unsnap inspect: the doctor."""

from __future__ import annotations

import typer
from rich.table import Table

from unsnap.cli import common
from unsnap.cli.common import Reading, named, out, print_json
from unsnap.doctor import Report, examine
from unsnap.errors import printable

_STYLE = {"ok": ("✓", "green"), "note": ("·", "cyan"), "warning": ("!", "yellow"), "fatal": ("✗", "bold red")}


def command(
    file: common.File,
    reading: Reading = Reading(),
    json: common.Json = False,
) -> None:
    """Say what is in FILE, what is wrong with it, and what to do about it.

    Whether masks and capture belong together, and frames are in order, is told without the true video. Leaves with exit
    code 2 if something is found that no reconstruction can work with.

    Examples:

      unsnap inspect capture.mat

      unsnap inspect meas.mat --masks mask.mat --json
    """
    report = examine(file, deep=True, **reading.options())
    if json:
        print_json(report.to_dict())
    else:
        _show(report)
    if report.fatal:
        raise typer.Exit(common.BAD_INPUT)


def _show(report: Report) -> None:
    out.print(printable(report.path), style="bold", markup=False, highlight=False, soft_wrap=True)
    if report.arrays:
        arrays = Table(box=None, padding=(0, 2, 0, 0))
        for heading in ("array", "shape", "type"):
            arrays.add_column(heading)
        for name, entry in report.arrays.items():
            arrays.add_row(named(name), "×".join(map(str, entry["shape"])), named(entry["dtype"]))
        out.print(arrays, "")
    findings = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for finding in report.findings:
        mark, style = _STYLE[finding.level]
        remedy = f"\n→ {named(finding.remedy)}" if finding.remedy else ""
        findings.add_row(f"[{style}]{mark}[/]", f"[{style}]{finding.subject}[/]", named(finding.text) + remedy)
    out.print(findings)
