"""unsnap methods: what there is to choose from."""

from __future__ import annotations

from rich.table import Table

from unsnap.cli import common
from unsnap.cli.common import out, print_json
from unsnap.methods import DEFAULT, METHODS


def command(json: common.Json = False) -> None:
    """List the methods that `--method` and `--methods` accept.

    Example:

      unsnap methods --json
    """
    if json:
        rows = [{k: v for k, v in vars(method).items() if k != "solve"} for method in METHODS.values()]
        print_json([{**row, "default": row["name"] == DEFAULT} for row in rows])
        return
    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in ("method", "family", "what it does", "source"):
        table.add_column(heading)
    for method in METHODS.values():
        name = f"[bold]{method.name}[/]" + (" (default)" if method.name == DEFAULT else "")
        table.add_row(name, method.family, method.summary, method.reference)
    out.print(table)
