"""unsnap cookbook: the pages of the documentation, to play with."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from unsnap.cli import common
from unsnap.cli.common import out, remark
from unsnap.cookbook import page as page_named
from unsnap.cookbook import pages
from unsnap.cookbook.notebook import notebook
from unsnap.errors import InputError, printable
from unsnap.io import atomic_folder, claim_output

NAMES = re.compile(r"[a-z-]+\.ipynb")


def command(
    page: Annotated[str | None, typer.Argument(help="Page to open, e.g. gap; all of them otherwise.")] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the notebooks.")] = Path("cookbook"),
    browser: Annotated[bool, typer.Option(help="Open Jupyter, if it is installed.")] = True,
    force: common.Force = False,
    quiet: common.Quiet = False,
) -> None:
    """Write the cookbook as notebooks, one per page, and open them in Jupyter (extra `cookbook`).

    Every notebook begins with parameters to change. Notebooks that are there already are opened as they are, with what
    you changed in them; --force writes them anew.

    Examples:

      unsnap cookbook anderson

      unsnap cookbook -o notebooks --no-browser
    """
    known = pages()
    wanted = output / f"{page_named(page).name}.ipynb" if page is not None else output
    jupyter = browser and find_spec("jupyterlab") is not None
    if jupyter and wanted.exists() and not force:
        remark(f"{printable(wanted)} is opened as it is; --force writes it anew", quiet)
    else:
        claim_output(output, NAMES, force=force)
        with atomic_folder(output, NAMES, overwrite=force) as folder:
            for name, one in known.items():
                (folder / f"{name}.ipynb").write_text(notebook(one, known), encoding="utf-8")
        out.print(f"{printable(output)}: {len(known)} notebooks", markup=False)
    if jupyter:
        code = subprocess.run([sys.executable, "-m", "jupyterlab", str(wanted)], check=False).returncode
        if code:
            raise InputError(
                f"Jupyter ended with exit code {code}, for the reason above; the notebooks are in {output}"
            )
    elif browser:
        remark("Jupyter is not installed here (pip install 'unsnap[cookbook]'); open the notebooks where it is", quiet)
