"""The command line: `unsnap COMMAND --help`."""

from __future__ import annotations

import signal
import sys
from contextlib import suppress

from unsnap.cli.signals import SIGNALS, exit_code, heed, spoken


def main() -> None:
    """Entry point; signals end it in order even while modules are still loading."""
    from unsnap.cli.last_resort import last_resort

    seen = heed()
    try:
        with last_resort():
            from unsnap.cli.app import app

            app()
    except KeyboardInterrupt as interrupt:
        _say_interrupted()
        sys.exit(exit_code(interrupt))
    except SystemExit as left:
        if seen:
            for number in SIGNALS:  # another one while threads end their last piece would only add a traceback
                signal.signal(number, signal.SIG_IGN)
            # Typer's codes, old and new, for an interruption before a command began.
            if left.code in (1, 130) and not spoken:
                _say_interrupted()
                sys.exit(128 + seen[0])
        raise


def _say_interrupted() -> None:
    with suppress(OSError):
        sys.stderr.write("Interrupted; nothing was written.\n")
