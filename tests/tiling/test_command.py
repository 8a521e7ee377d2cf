"""`unsnap reconstruct` by tiles: the same video in less memory, and nothing half-written."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from campaign.nursery import born, script
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
    return torch.from_numpy(np.load(target))


def test_tiles_keep_values_above_white_as_the_whole_does(scene: Path, tmp_path: Path) -> None:
    """Half of white is called white, in numbers, which are kept, and in 8 bits, which are not."""
    for name, *more in (("whole.npy",), ("tiles.npy", "--tile", 160)):
        assert run(scene, "-o", tmp_path / name, "--scale", 0.5, *more)[0] == 0
    one, other = (np.load(tmp_path / name) for name in ("whole.npy", "tiles.npy"))
    assert one.max() > 1.5
    assert np.abs(other - one).max() < 1e-3


# 12 MiB: less than reading this file takes (15.3 MiB), and than its video as a whole needs to be written.
@pytest.mark.parametrize("name", ["a.npy", "a.zarr", "a.tif", "a.h5", "a.mp4"])
def test_a_file_that_does_not_fit_is_read_and_written_in_parts(
    name: str, scene: Path, whole: torch.Tensor, tmp_path: Path
) -> None:
    code, said = run(scene, "-o", tmp_path / name, "--memory", "12M")
    assert code == 0, said
    assert "tiles" in said
    assert [entry.name for entry in tmp_path.iterdir()] == [name]
    lost = (read_video(tmp_path / name) - whole.clamp(0, 1)).abs()
    most, mean = (0.1, 0.004) if name.endswith("mp4") else (1e-4, 1e-5)
    assert float(lost.max()) <= most
    assert float(lost.mean()) <= mean


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


# A small picture first, with which everything is imported and compiled: what the large one takes is counted.
MEASURED = """
import re, sys, unsnap.cli.tiled
from contextlib import suppress
from pathlib import Path
from unsnap.cli import main

def memory(line):
    return 1024 * int(re.search(rf"{line}:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

unsnap.cli.tiled.reset_peak = lambda: None
small, large, *options = sys.argv[1:]
sys.argv = ["unsnap", "reconstruct", small + "/y.npy", "--masks", small + "/masks.npy", "--tile", "64", *options]
with suppress(SystemExit):
    main()
sys.argv = ["unsnap", "reconstruct", large + "/y.npy", "--masks", large + "/masks.npy", "--memory", "64M", *options]
Path("/proc/self/clear_refs").write_text("5")
before = memory("VmRSS")
try:
    main()
finally:
    Path(large, "used").write_text(str(memory("VmHWM") - before))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts memory in /proc")
@pytest.mark.parametrize("time_first", [True, False])
def test_memory_is_bounded(time_first: bool, tmp_path: Path) -> None:
    """A picture whose masks and video are 120 MiB each takes about --memory 64M at the most, time first or last."""
    for name, side in (("small", 128), ("large", 1024)):
        masks = np.random.default_rng(0).integers(0, 2, (30, side, side), np.uint8)
        (tmp_path / name).mkdir()
        np.save(tmp_path / name / "y.npy", (masks.sum(0) / 2).astype(np.float32))
        np.save(tmp_path / name / "masks.npy", masks if time_first else masks.transpose(1, 2, 0).copy())
    options = ("-m", "gap-tv3d", "--iterations", "1", "--tol", "1", "--quiet", "--scale", "1", "--force")
    folders = [str(tmp_path / name) for name in ("small", "large")]
    out = tmp_path / "a.npy"
    done = born(script, MEASURED, *folders, *options, "-o", str(out), said=tmp_path / "said")
    assert done.end() == 0, done.err.read_text()
    used = int((tmp_path / "large" / "used").read_text())
    assert out.stat().st_size > 120 * 2**20
    assert 2**23 < used < 80 * 2**20, f"{used / 2**20:.0f} MiB"  # a quarter for what the allocator keeps: 60 to 74 MiB
