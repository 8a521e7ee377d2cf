"""What only real processes and sockets can show: kills, a scheduler that restarts, a worker of another version."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import unsnap as library
import unsnap.campaign.cluster as cluster_module
from campaign.machines import client, machines, stranger, worker_options
from campaign.nursery import born
from campaign.nursery import unsnap as unsnap_command
from unsnap import Scene, save_scene
from unsnap.masks import bernoulli
from unsnap.simulate import render

# The first to reconstruct s1 dies of it; later ones do not.
DEADLY = """
import os, signal
from dataclasses import replace
from pathlib import Path
from unsnap.methods import METHODS

def solve(y, phi, n, watch):
    mark = Path(os.environ["UNSNAP_TEST_MARK"])
    if float(y.max()) > 1e3 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return METHODS["gap-tv"].solve(y, phi, n, watch)

METHODS.register("deadly", replace(METHODS["gap-tv"], name="deadly", solve=solve))
"""

# Each takes a ticket first, unless it may write no large files or the gate is open.
GATED = """
import resource, time
from dataclasses import replace
from pathlib import Path
from unsnap.methods import METHODS

gate = Path({gate!r})

def solve(y, phi, n, watch):
    while resource.getrlimit(resource.RLIMIT_FSIZE)[0] < 0 and not (gate / "open").exists():
        try:
            next(gate.glob("ticket*")).unlink()
            break
        except (OSError, StopIteration):
            time.sleep(0.05)
    return METHODS["gap-tv"].solve(y, phi, n, watch)

METHODS.register("gated", replace(METHODS["gap-tv"], name="gated", solve=solve))
"""


FILES = 8


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    masks = bernoulli(4, 16, 16, generator=torch.Generator().manual_seed(0))
    (tmp_path / "in").mkdir()
    for k in range(FILES):
        film = render(4, 16, 16, seed=k)[None]
        save_scene(tmp_path / "in" / f"s{k:02d}.npz", Scene.of(film, masks))
    return tmp_path / "in"


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("s*.npz")}


def command(inputs: Path, out: Path, *more: object) -> tuple[object, ...]:
    plugin = ("--plugin", inputs.parent / "gated.py")
    return ("reconstruct", inputs, "-o", out, "-m", "gated", *plugin, "--tol", 1, "--format", "npz", *more)


def test_a_worker_that_dies_is_replaced(inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = library.load_scene(inputs / "s01.npz")
    np.savez(inputs / "s01.npz", meas=4e3 * scene.measurement.numpy(), mask=scene.masks.numpy())
    for path in sorted(inputs.iterdir())[3:]:
        path.unlink()
    (tmp_path / "deadly.py").write_text(DEADLY)
    monkeypatch.setenv("UNSNAP_TEST_MARK", str(tmp_path / "mark"))
    words = ("reconstruct", inputs, "-o", tmp_path / "out", "-m", "deadly", "--plugin", tmp_path / "deadly.py",
             "--scale", 1, "--format", "npz", "--workers", 1, "--tol", 1)  # fmt: skip
    done = born(unsnap_command, *map(str, words), said=tmp_path / "said")
    code, said = done.end(), done.err.read_text()
    assert (tmp_path / "mark").exists(), said
    assert code == 0, said
    assert len(contents(tmp_path / "out")) == 3


def older(tmp_path: Path) -> Path:
    """A folder for PYTHONPATH, in which unsnap is of another version."""
    old, package = tmp_path / "old" / "unsnap", Path(library.__file__).parent
    old.mkdir(parents=True)
    for path in package.iterdir():
        if path.name != "__init__.py":
            (old / path.name).symlink_to(path)
    (old / "__init__.py").write_text((package / "__init__.py").read_text().replace(library.__version__, "0.0.1"))
    return old.parent


def test_kills_change_no_byte(unsnap: Callable, inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two workers, one with a full disk and one of another version; a worker is killed, then the scheduler."""
    monkeypatch.setattr(cluster_module, "CONNECT", 1.0)
    gate = tmp_path / "gate"
    gate.mkdir()
    (tmp_path / "gated.py").write_text(GATED.format(gate=str(gate)))
    with machines(2, tmp_path / "log") as cluster:
        foreign = (str(older(tmp_path)), worker_options(cluster.address, tmp_path))
        guests = [born(stranger, *foreign, said=tmp_path / "stranger", daemon=True).process]
        guests.append(cluster.add_worker(largest_file=2000))  # enough for what it notes, not for a video
        words = command(inputs, tmp_path / "out", "--cluster", cluster.address)
        asking = born(client, *map(str, words), said=tmp_path / "said", daemon=True)
        log = asking.err

        def wait_for(holds: Callable[[], bool]) -> None:
            while not holds():
                assert asking.process.is_alive(), log.read_text()
                time.sleep(0.05)

        wait_for(lambda: all(part in log.read_text() for part in ("unsnap 0.0.1", "its disk is full")))
        for done, kill in ((1, lambda: cluster.kill_worker(random.Random(0))), (2, cluster.kill_scheduler)):
            for number in range(3):  # six at most are done before the gate opens, and eight are to be
                (gate / f"ticket-{done}-{number}").touch()
            wait_for(lambda done=done: len(contents(tmp_path / "out")) >= done)
            kill()
        (gate / "open").touch()
        code = asking.end()
        for guest in guests:
            guest.kill()
            guest.join()
    said = log.read_text()
    assert code == 0, said
    assert unsnap(*command(inputs, tmp_path / "serial")).code == 0
    assert contents(tmp_path / "out") == contents(tmp_path / "serial")
    assert len(contents(tmp_path / "out")) == FILES
    assert "unsnap 0.0.1" in said
    assert "gets no more tasks: its disk is full" in said
    again = unsnap(*words)  # nobody is at that address any more, and nobody is needed
    assert again.code == 0
    assert f"{FILES} of {FILES} files were done earlier" in again.err
    other = unsnap(*words, "--fps", 20)
    assert other.code == 2
    assert "holds another run (fps was 10.0 and is 20.0)" in other.err
    refused = unsnap(*command(inputs, tmp_path / "new", "--cluster", cluster.address))
    assert refused.code == 2
    assert "no Dask scheduler answers" in refused.err
