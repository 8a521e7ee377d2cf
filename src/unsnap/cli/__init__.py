"""The command line: `unsnap COMMAND --help`."""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point; Ctrl-C leaves with 130 even while modules are still loading."""
    try:
        from unsnap.cli.app import app

        app()
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted; nothing was written.\n")
        sys.exit(130)
