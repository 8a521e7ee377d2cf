"""The command line as a whole."""

from __future__ import annotations

from typing import Annotated

import typer

from unsnap import __version__
from unsnap.cli.usage import Commands

app = typer.Typer(
    name="unsnap",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Turn one coded snapshot back into the video it contains.\n\n"
    "Start with [bold]unsnap demo[/], then [bold]unsnap reconstruct capture.mat[/].\n\n"
    "Exit codes: 0 done, 2 bad input, 3 did not converge or diverged, 70 unforeseen, 74 stdout "
    "cannot be written to, 130 interrupted (Ctrl-C), 143 by SIGTERM, 129 by a closed terminal. "
    "An existing output is replaced only with --force.",
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print version.")
    ] = False,
) -> None: ...
