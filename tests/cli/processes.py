"""`unsnap ARGS` as a process: a copy of this one, which has everything imported, where that is not what is tested."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing import forkserver, process
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import TextIO

from unsnap.cli import main


@contextmanager
def forked(
    arguments: list[str], folder: Path, environment: Mapping[str, str] | None = None
) -> Iterator[tuple[ForkProcess, TextIO]]:
    """The process and its stderr; its stdout is dropped. Whatever becomes of the test, it has ended afterwards."""
    reader, writer = os.pipe()
    child = multiprocessing.get_context("fork").Process(
        target=_run, args=(arguments, folder, environment or {}, writer), daemon=False
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads here are idle, and unsnap makes its own anew
        child.start()
    os.close(writer)
    try:
        with open(reader, encoding="utf-8") as stderr:  # noqa: PTH123
            yield child, stderr
    finally:
        child.kill()
        child.join()


def _run(arguments: list[str], folder: Path, environment: Mapping[str, str], stderr: int) -> None:
    """What `python -m unsnap` does, as if nothing had been started from this process before."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for number, descriptor in enumerate((null, null, stderr)):
        os.dup2(descriptor, number)
    sys.stdout, sys.stderr = (open(number, "w", encoding="utf-8") for number in (1, 2))  # noqa: PTH123, SIM115
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.update(environment)
    tempfile.tempdir = None
    process.current_process()._config.pop("tempdir", None)
    forkserver._forkserver.__init__()
    warnings.resetwarnings()
    os.chdir(folder)
    sys.argv = ["unsnap", *arguments]
    main()
