"""Processes that are born with everything imported: forked from one that has done nothing else, once for all tests."""

from __future__ import annotations

import multiprocessing
import os
import runpy
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.forkserver import ensure_running
from multiprocessing.process import BaseProcess
from pathlib import Path
from unittest import mock

# Installed ones only: the process that imports them knows nothing of the tests. Those that are missing are left out.
IMPORTED = (
    "unsnap.cli.app", "unsnap.cli.train", "unsnap.cli.work", "unsnap.doctor", "unsnap.kernels.tv", "torch._dynamo",
    "torch.distributed.run", "typer._adapters", "av", "h5py", "matplotlib.pyplot", "numba", "PIL.Image",
    "safetensors.torch", "scipy.io", "tifffile", "distributed.cli.dask_scheduler", "distributed.cli.dask_worker",
    "pytest",
)  # fmt: skip
_NURSERY = multiprocessing.get_context("forkserver")
_NURSERY.set_forkserver_preload(list(IMPORTED))


@dataclass(frozen=True)
class Child:
    """A process, and the files that get what it says."""

    process: BaseProcess
    out: Path
    err: Path

    def end(self) -> int:
        """Its exit code, when it has ended; minus the signal that ended it."""
        self.process.join()
        assert self.process.exitcode is not None
        return self.process.exitcode


def born(
    task: Callable[..., object], *given: object, said: Path, environment: Mapping[str, str] | None = None,
    daemon: bool = False,
) -> Child:  # fmt: skip
    """A process that does `task(*given)`, in the folder and with the environment of this one, in one thread.

    Tasks are functions of modules that any process can import, which those of tests are not.
    What it says is added to said.out and said.err. A daemon ends with this process, and may start no others.
    """
    out, err = said.with_suffix(".out"), said.with_suffix(".err")
    for path in (out, err):
        path.touch()
    surroundings = (dict(os.environ if environment is None else environment), str(out), str(err))
    process = _NURSERY.Process(target=_live, args=(task, given, *surroundings), daemon=daemon)
    with mock.patch.dict(os.environ, OMP_NUM_THREADS="1"):  # threads that importing starts would be lost in forks
        ensure_running()
    process.start()
    return Child(process, out, err)


def _live(task: Callable[..., object], given: tuple[object, ...], environment: dict[str, str], *said: str) -> None:
    for number, name in enumerate(said, start=1):
        with Path(name).open("ab") as file:
            os.dup2(file.fileno(), number)
    os.environ.clear()
    os.environ.update(environment)
    import torch

    torch.set_num_threads(1)
    task(*given)


def unsnap(*words: str) -> None:
    """What the command does in a process of its own."""
    from unsnap.cli import main

    sys.argv = ["unsnap", *words]
    main()


def program(module: str, *words: str) -> None:
    """What `python -m MODULE WORDS` does."""
    sys.argv = [module, *words]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def script(text: str, *words: str) -> None:
    """What `python -c TEXT WORDS` does."""
    sys.argv = ["-c", *words]
    exec(compile(text, "<script>", "exec"), {"__name__": "__main__"})
