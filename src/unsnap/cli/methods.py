"""unsnap methods: what there is to choose from."""

from __future__ import annotations

from typing import Any

from rich.padding import Padding
from rich.table import Table

from unsnap.cli import common
from unsnap.cli.common import named, out, print_json, remark
from unsnap.methods import DEFAULT, METHODS, Method, everything

_UNKNOWN = "–"
_WIDE = 110  # columns of a terminal that has room for the table


def command(json: common.Json = False) -> None:
    """List the methods that `--method` and `--methods` accept.

    CPU s: processor seconds for one snapshot of 8 frames of 256×256 on the developers' machine.

    Example:

      unsnap methods --json
    """
    for sentence in METHODS.discover().broken.values():
        remark(f"Warning: {sentence}", quiet=False)
    if json:
        print_json([_facts(method) for method in everything()])
        return
    if out.width < _WIDE:
        for method in everything():
            name, family, needs, frames, seconds, text = _cells(method)
            out.print(f"{name}  {family}, needs {needs}, T {frames}, CPU s {seconds}", highlight=False)
            out.print(Padding(text, (0, 0, 0, 4)), highlight=False)
    else:
        out.print(_table())
    out.print("\n[bold]*[/] the default; `unsnap compare FILE --methods a,b,c` shows several side by side")


def _table() -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("method", no_wrap=True)
    table.add_column("family")
    table.add_column("needs", max_width=20)
    table.add_column("T")
    table.add_column("CPU s", justify="right")
    table.add_column("what it does, and where it was published", ratio=1)
    for method in everything():
        table.add_row(*_cells(method))
    return table


def _facts(method: Method) -> dict[str, Any]:
    """For scripts."""
    return {
        "name": method.name,
        "default": method.name == DEFAULT,
        "family": method.family,
        "summary": method.summary,
        "reference": method.reference,
        "year": method.year,
        "needs": method.needs or None,
        "missing": method.missing(),
        "frames": method.frames,
        "cpu_seconds": method.cpu_seconds,
        "iterations": method.iterations,
        "tol": method.tol,
        "early": method.early,
    }


def _cells(method: Method) -> list[str]:
    """For people."""
    seconds = _UNKNOWN if method.cpu_seconds is None else f"{method.cpu_seconds:.3g}"
    needs = named(method.needs or _UNKNOWN) + (" [red](not here)[/]" if method.missing() else "")
    return [
        f"[bold]{named(method.name)}[/]" + (" *" if method.name == DEFAULT else ""),
        named(method.family),
        needs,
        named(method.frames),
        seconds,
        f"{named(method.summary)}\n[dim]{named(method.reference)}[/]",
    ]
