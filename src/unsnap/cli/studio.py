"""unsnap studio: the page in the browser."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated

import typer

from unsnap.cli.common import remark
from unsnap.errors import InputError


def command(
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="Port. Default: the first free one from 7860.", show_default=False),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0 lets other machines in, without a password.")
    ] = "127.0.0.1",
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")] = True,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Computations at a time; others wait in turn.")] = 1,
) -> None:
    """Open the studio: a page to drop captures on, see what is wrong with them, and watch them become videos.

    It listens on this machine alone unless --host says otherwise, asks nothing of any other, and keeps nothing: what is
    uploaded is deleted when its page closes or the studio ends.

    Examples:

      unsnap studio

      unsnap studio --port 8000 --no-browser --workers 2
    """
    if find_spec("gradio") is None:
        raise InputError(
            "the studio needs the package gradio, which is not installed; run `pip install 'unsnap[studio]'`"
        )
    from unsnap.studio.server import serve

    serve(host, port, browser=browser, workers=workers, told=lambda text: remark(text, quiet=False))
