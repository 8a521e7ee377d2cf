"""The command line: `unsnap COMMAND --help`."""

from __future__ import annotations

import signal
import sys

INTERRUPTED = 130


def main() -> None:
    """Entry point; Ctrl-C leaves with 130 even while modules are still loading."""
    from unsnap.cli.last_resort import last_resort

    try:
        with last_resort():
            from unsnap.cli.app import app

            app()
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted; nothing was written.\n")
        sys.exit(INTERRUPTED)
    except SystemExit as left:
        if left.code == INTERRUPTED:  # a second Ctrl-C while threads end their last piece would only add a traceback
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise
