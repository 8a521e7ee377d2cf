"""unsnap methods: what there is to choose from."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.padding import Padding
from rich.table import Table

from unsnap.cli import common
from unsnap.cli.common import named, out, print_json, remark
from unsnap.methods import DEFAULT, METHODS, Method, everything

_UNKNOWN = "–"
_WIDE = 110  # columns of a terminal that has room for the table


def command(
    weights: Annotated[
        bool, typer.Option("--weights", help="List the models that `unsnap train` makes: weights and operations.")
    ] = False,
    json: common.Json = False,
) -> None:
    """List the methods that `--method` and `--methods` accept.

    CPU s: processor seconds for one snapshot of 8 frames of 256×256 on the developers' machine.

    Examples:

      unsnap methods --json

      unsnap methods --weights
    """
    if weights:
        _weights(json)
        return
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


def _weights(json: bool) -> None:
    """Parameters and operations of every model that can be trained, at the size of its preset."""
    from unsnap.models.cost import cost
    from unsnap.training import PRESETS, preset

    costs = {name: (config, cost(config.model())) for name in PRESETS for config in [preset(name, steps=1)]}
    if json:
        print_json([{"model": name, "network": config.network, **c._asdict()} for name, (config, c) in costs.items()])
        return
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for column in ("model", "network", "parameters", "GMAC"):
        table.add_column(column, justify="right" if column in ("parameters", "GMAC") else "left")
    for name, (config, counted) in costs.items():
        table.add_row(name, config.network, f"{counted.parameters / 1e6:.3f} M", f"{counted.gmac:.1f}")
    out.print(table)
    out.print(
        "\nGMAC: 10⁹ multiplications with addition for 8 frames of 256×256, all stages of an unfolded model, one "
        "evaluation of an equilibrium; the start is not counted"
    )


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
