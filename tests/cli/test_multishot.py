"""Several shots of one video: from the file to the video by the commands, better than one shot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import torch

import unsnap as library
from cli.contract import stored
from unsnap.operators import Multishot

SIZE = ["--size", "40x48", "-T", 4, "--seed", 2]


@pytest.fixture
def shots(unsnap: Callable) -> Path:
    assert unsnap("simulate", "--shots", 3, "-o", "s.npz", *SIZE, "-q").code == 0
    return Path("s.npz")


@pytest.fixture
def foreign(shots: Path) -> Path:
    """As somebody else would have saved them: meas (K, H, W) and mask (K, T, H, W) in 8 bits' units, nothing more."""
    with np.load(shots) as known:
        np.savez("f.npz", meas=255 * known["meas"][0], mask=known["mask"], orig=255 * known["orig"])
    return Path("f.npz")


def psnr(unsnap: Callable, *arguments: object) -> float:
    run = unsnap("reconstruct", *arguments, "--json", "-q")
    assert run.code == 0, run.err
    return run.json()["psnr"]


@pytest.mark.parametrize("suffix", ["npz", "mat", "h5"])
def test_every_container_holds_the_same_capture(unsnap: Callable, shots: Path, suffix: str) -> None:
    made = unsnap("simulate", "--shots", 3, "-o", f"t.{suffix}", *SIZE, "--json").json()
    assert (made["shots"], made["snapshots"], made["frames"]) == (3, 1, 4)
    scene, first = library.load_scene(f"t.{suffix}"), library.load_scene(shots)
    assert scene.camera == "multishot"
    assert (scene.measurement.shape, scene.masks.shape) == ((1, 3, 40, 48), (3, 4, 40, 48))
    for part in ("measurement", "masks", "truth"):
        assert np.array_equal(getattr(scene, part), getattr(first, part)), part
    report = unsnap("inspect", f"t.{suffix}", "--json").json()
    assert report["fatal"] is False
    assert report["size"] == {"snapshots": 1, "frames": 4, "height": 40, "width": 48}
    assert report["meta"]["camera"] == "multishot"
    (model,) = [f for f in report["findings"] if f["subject"] == "forward model"]
    assert model["level"] == "ok", model


@pytest.mark.parametrize("method", [["-m", "gap-tv3d"], []])
def test_three_shots_are_better_than_one(unsnap: Callable, shots: Path, method: list[str]) -> None:
    assert unsnap("simulate", "-o", "one.npz", *SIZE, "-q").code == 0
    assert np.array_equal(stored("one.npz")["orig"], stored(shots)["orig"])
    many, one = (psnr(unsnap, file, *method) for file in (shots, "one.npz"))
    assert many > one + 3, (many, one)


@pytest.mark.parametrize("method", [["-m", "gap-tv3d"], []])
def test_the_video_is_the_library_s(unsnap: Callable, shots: Path, method: list[str]) -> None:
    assert unsnap("reconstruct", shots, *method, "-o", "v.npz", "-q").code == 0
    scene = library.load_scene(shots)
    expected = library.reconstruct(scene.measurement, Multishot(scene.masks), *method[1:]).x
    video = stored("v.npz")["video"]
    assert video.shape == (4, 40, 48)
    assert np.allclose(video, expected[0], atol=1e-5)


def test_people_are_told_of_one_capture(unsnap: Callable, shots: Path) -> None:
    run = unsnap("reconstruct", shots, "-m", "gap-tv3d", "-q")
    assert "1 × 4 frames of 40×48" in " ".join(run.out.split())
    assert Path("s-gap-tv3d.mp4").stat().st_size > 500


def test_several_captures_of_several_shots(unsnap: Callable) -> None:
    assert unsnap("simulate", "--shots", 2, "--snapshots", 3, "-o", "s.mat", *SIZE, "-q").code == 0
    run = unsnap("reconstruct", "s.mat", "-m", "gap-tv3d", "-o", "v.npz", "--json", "-q").json()
    assert (run["snapshots"], len(run["psnr_per_snapshot"])) == (3, 3)
    assert stored("v.npz")["video"].shape == (12, 40, 48)
    first = unsnap("reconstruct", "s.mat", "-m", "gap-tv3d", "--snapshots", 2, "--json", "-q").json()
    assert first["psnr_per_snapshot"] == pytest.approx(run["psnr_per_snapshot"][:2], abs=1e-3)


def test_compare_and_bench_work_on_it(unsnap: Callable, shots: Path) -> None:
    run = unsnap("compare", shots, "--methods", "gap-tv3d,gap-tv", "-o", "cmp", "--json", "-q")
    assert run.code == 0, run.err
    rows = run.json()
    assert min(row["psnr"] for row in rows) > 25
    assert {"frames.png", "side-by-side.mp4", "report.html"} <= {p.name for p in Path("cmp").iterdir()}
    assert len(library.read_video("cmp/side-by-side.gif")) == 4
    (row,) = unsnap("bench", shots, "--methods", "gap-tv3d", "--json", "-q").json()
    assert row["psnr"] == pytest.approx(rows[0]["psnr"], abs=1e-3)


@pytest.mark.parametrize("command", [["reconstruct", "-m", "gmm"], ["compare", "--methods", "gap-tv3d,gmm"]])
def test_a_method_for_single_snapshots_is_refused_in_one_sentence(
    unsnap: Callable, shots: Path, command: list[str]
) -> None:
    run = unsnap(command[0], shots, *command[1:], "-q")
    assert run.code == 2
    assert run.err.startswith("Error: method 'gmm' serves cameras of the kind Snapshot or RGB, not Multishot; ")
    assert run.err.count("\n") == 1
    assert run.out == ""
    assert [p.name for p in Path().iterdir()] == ["s.npz"]


def test_adapting_to_it_is_refused_in_one_sentence(unsnap: Callable, shots: Path) -> None:
    run = unsnap("adapt", shots, "--steps", 1, "-q")
    assert run.code == 2
    assert all(word in run.err for word in ("s.npz", "single snapshots", "multishot"))
    assert run.err.count("\n") == 1


def test_a_foreign_file_needs_the_camera(unsnap: Callable, shots: Path, foreign: Path) -> None:
    options = ["-m", "gap-tv3d", "-o"]
    assert unsnap("reconstruct", foreign, "--kind", "multishot", *options, "f-video.npz", "-q").code == 0
    assert unsnap("reconstruct", shots, *options, "s-video.npz", "-q").code == 0
    theirs, ours = (stored(f"{name}-video.npz")["video"] for name in "fs")
    assert np.allclose(theirs, ours, atol=1e-4)
    plain = unsnap("reconstruct", foreign, "-m", "gap-tv3d", "--json", "-q").json()
    assert plain["snapshots"] == 3, "three captures of one video each, for all that the file says"
    assert psnr(unsnap, foreign, "--kind", "multishot", "-m", "gap-tv3d") > plain["psnr"] + 3
    report = unsnap("inspect", foreign, "--kind", "multishot", "--json").json()
    assert (report["fatal"], report["size"]["snapshots"]) == (False, 1)
    assert "took the 3 snapshots for shots of one video" in report["meta"]["notes"]


@pytest.mark.parametrize("order", [(2, 3, 1, 0), (2, 3, 0, 1)])
def test_a_foreign_matlab_file(unsnap: Callable, foreign: Path, order: tuple[int, ...]) -> None:
    known = stored(foreign)
    arrays = {"meas": known["meas"].transpose(1, 2, 0), "mask": known["mask"].transpose(order)}
    scipy.io.savemat("f.mat", {**arrays, "orig": known["orig"].transpose(1, 2, 0)})
    expected = psnr(unsnap, foreign, "--kind", "multishot", "-m", "gap-tv3d")
    assert psnr(unsnap, "f.mat", "--kind", "multishot", "-m", "gap-tv3d") == pytest.approx(expected, abs=1e-3)


def test_cameras_that_do_not_fit_are_one_sentence(unsnap: Callable, scene: Path, foreign: Path) -> None:
    one_set = unsnap("reconstruct", scene, "--kind", "multishot", "-q")
    unknown = unsnap("reconstruct", foreign, "--kind", "multishoot", "-q")
    for run, words in ((one_set, ["scene.mat", "(K, T, H, W)", "--kind"]), (unknown, ["multishoot", "multishot"])):
        assert run.code == 2, run.out
        assert all(word in run.err for word in words), run.err
        assert run.err.startswith("Error: ")
        assert run.err.count("\n") == 1


def test_the_picture_of_a_capture_is_its_first_shot(shots: Path) -> None:
    from unsnap.cli.compare import _held_snapshots

    scene = library.load_scene(shots)
    first = scene.measurement[0, 0]
    assert torch.equal(_held_snapshots(scene, 1, 1)[:, 0], (first / first.max()).expand(4, 40, 48))
