"""`unsnap reconstruct` by tiles: the same video in less memory, and nothing half-written."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from unsnap.algorithms.iterate import Solution
from unsnap.cli.app import app
from unsnap.io import read_video, save_scene
from unsnap.masks import bernoulli
from unsnap.methods import METHODS
from unsnap.scene import Scene
from unsnap.simulate import render

SIDE = 448


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Path:
    truth = render(4, SIDE, SIDE)
    known = Scene.of(truth[None], bernoulli(4, SIDE, SIDE, generator=torch.Generator().manual_seed(0)))
    return save_scene(tmp_path_factory.mktemp("scene") / "scene.h5", known)


def run(*arguments: object) -> tuple[int, str]:
    found = CliRunner().invoke(app, ["reconstruct", *map(str, arguments), "-m", "gap-tv3d", "--iterations", "20"])
    return found.exit_code, found.output


@pytest.fixture(scope="module")
def whole(scene: Path, tmp_path_factory: pytest.TempPathFactory) -> torch.Tensor:
    target = tmp_path_factory.mktemp("whole") / "whole.npy"
    assert run(scene, "-o", target)[0] == 0
    return read_video(target)


# 12 MiB: less than reading this file takes (15.3 MiB), and than its video as a whole needs to be written.
@pytest.mark.parametrize("name", ["a.npy", "a.zarr", "a.tif", "a.h5", "a.mp4"])
def test_a_file_that_does_not_fit_is_read_and_written_in_parts(
    name: str, scene: Path, whole: torch.Tensor, tmp_path: Path
) -> None:
    code, said = run(scene, "-o", tmp_path / name, "--memory", "12M")
    assert code == 0, said
    assert "tiles" in said
    atol = 0.05 if name.endswith("mp4") else 1e-4
    torch.testing.assert_close(read_video(tmp_path / name), whole, rtol=0, atol=atol)
    assert [entry.name for entry in tmp_path.iterdir()] == [name]


def test_another_library_reads_the_zarr_array(scene: Path, whole: torch.Tensor, tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr")
    assert run(scene, "-o", tmp_path / "a.zarr", "--tile", 256)[0] == 0
    found = np.asarray(zarr.open(str(tmp_path / "a.zarr"), mode="r")[:])
    torch.testing.assert_close(torch.from_numpy(found), whole, rtol=0, atol=1e-4)


def test_too_little_for_one_tile_is_one_sentence(scene: Path, tmp_path: Path) -> None:
    code, said = run(scene, "-o", tmp_path / "a.npy", "--memory", "100K")
    assert code == 2
    assert said.count("Error:") == 1
    assert "--memory" in said
    assert list(tmp_path.iterdir()) == []


def test_a_format_that_needs_the_whole_is_refused_before_the_work(scene: Path, tmp_path: Path) -> None:
    code, said = run(scene, "-o", tmp_path / "a.mat", "--memory", "12M")
    assert code == 2
    assert "a.mat" in said
    assert ".zarr" in said
    assert list(tmp_path.iterdir()) == []


def command(scene: Path, target: Path, *more: str) -> list[str]:
    base = [sys.executable, "-m", "unsnap", "reconstruct", str(scene), "-m", "gap-tv3d", "-o", str(target)]
    return [*base, "--quiet", *more]


def test_an_interrupt_leaves_nothing(scene: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    method, written = METHODS["gap-tv3d"], []

    def solve(*given: Any) -> Solution:
        written[:] = tmp_path.glob("new/.unsnap-*/tile-*")
        if written:
            raise KeyboardInterrupt
        return method.solve(*given)

    monkeypatch.setitem(METHODS, "gap-tv3d", replace(method, solve=solve))
    code, said = run(scene, "-o", tmp_path / "new" / "a.npy", "--tile", "64")
    assert written, said
    assert code == 130
    assert list(tmp_path.iterdir()) == []


def test_memory_is_bounded(tmp_path: Path) -> None:
    """Above the interpreter, a picture whose masks and video are 96 MiB each takes no more than --memory 64M."""
    side, frames = 1024, 24
    path = tmp_path / "large.npz"
    masks = np.random.default_rng(0).integers(0, 2, (frames, side, side), np.uint8)
    np.savez(path, meas=(masks.sum(0) / 2).astype(np.float32), mask=masks)
    least = (
        "import sys, unsnap.cli.reconstruct, unsnap.tiling, numba; from unsnap.methods import get; import torch; "
        "from unsnap import Snapshot; m = torch.ones(2, 16, 16); get('gap-tv3d')(m.sum(0), Snapshot(m), iterations=1)"
    )
    empty = peak([sys.executable, "-c", least])
    used = peak(command(path, tmp_path / "a.npy", "--memory", "64M", "--iterations", "1", "--tol", "1"))
    assert (tmp_path / "a.npy").stat().st_size > 96 * 2**20
    assert used - empty < 64 * 2**20, f"{(used - empty) / 2**20:.0f} MiB"


def peak(command: list[str]) -> int:
    """Largest resident memory of a process, in bytes."""
    child = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode in (0, 3)
    return (1 if sys.platform == "darwin" else 1024) * usage.ru_maxrss
