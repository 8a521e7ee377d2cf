"""The contract for scripts, and what a person sees."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.io

import unsnap as library
from campaign.nursery import born, program
from cli.contract import CONTRACT, stored
from cli.processes import forked
from unsnap.campaign.run import Entry
from unsnap.campaign.summary import _row
from unsnap.cli.common import Reading
from unsnap.io import sha256
from unsnap.io.outputs import unconverged
from unsnap.run import Result


def test_json_is_exactly_one_object_with_the_contracted_keys(unsnap: Callable, scene: Path) -> None:
    run = unsnap("reconstruct", scene, "--method", "gap-tv", "--json")
    result = run.json()
    assert run.code == 0
    assert run.out.count("\n") == 1
    assert set(result) >= CONTRACT
    assert (result["method"], result["snapshots"], result["frames"]) == ("gap-tv", 2, 4)
    assert (result["height"], result["width"]) == (40, 48)
    assert result["iterations"] == 40
    assert result["converged"] is True
    assert result["output"] is None
    assert result["input_sha256"] == sha256(scene)
    assert result["unsnap_version"] == library.__version__
    assert result["seconds"] > 0
    assert result["cpu_seconds"] > 0


@pytest.mark.parametrize(("option", "together"), [((), True), (("--together",), True), (("--alone",), False)])
def test_scores_are_those_of_the_library(
    unsnap: Callable, scene: Path, option: tuple[str, ...], together: bool
) -> None:
    """Snapshots of one file are taken for a sequence unless told otherwise."""
    result = unsnap("reconstruct", scene, "--iterations", 3, "--tol", 1, "--json", *option).json()
    loaded = library.load_scene(scene)
    video = library.reconstruct(loaded.measurement, loaded.masks, iterations=3, tol=1, together=together).x
    expected = library.score(video, loaded.truth)
    assert result["together"] is together
    assert result["psnr"] == pytest.approx(expected.psnr, abs=1e-3)
    assert result["ssim"] == pytest.approx(expected.ssim, abs=1e-4)
    assert len(result["psnr_per_snapshot"]) == 1  # truth is known for the first of two


def test_together_is_for_methods_that_can(unsnap: Callable, scene: Path) -> None:
    run = unsnap("reconstruct", scene, "--method", "gap-tv", "--together", "--json")
    assert run.code == 2
    assert "takes every snapshot alone" in run.err
    assert unsnap("reconstruct", scene, "--method", "gap-tv", "--json").json()["together"] is False


def test_without_truth_scores_are_null(unsnap: Callable, scene: Path, arrays: dict[str, np.ndarray]) -> None:
    scipy.io.savemat(scene, {k: arrays[k] for k in ("mask", "meas")})
    result = unsnap("reconstruct", scene, "-m", "gap-tv", "--json").json()
    assert result["psnr"] is None
    assert result["ssim"] is None
    assert result["psnr_per_snapshot"] is None


def test_all_snapshots_become_one_video(unsnap: Callable, scene: Path, tmp_path: Path) -> None:
    run = unsnap("reconstruct", scene, "-m", "gap-tv", "-o", tmp_path / "out.npz", "--json")
    assert run.json()["output"] == str(tmp_path / "out.npz")
    assert stored(tmp_path / "out.npz")["video"].shape == (8, 40, 48)


def test_people_get_an_mp4_named_after_file_and_method(unsnap: Callable, scene: Path, tmp_path: Path) -> None:
    run = unsnap("reconstruct", scene, "--method", "gap-tv")
    assert run.code == 0
    assert "PSNR" in run.out
    assert (tmp_path / "scene-gap-tv.mp4").stat().st_size > 500


def test_dots_in_a_name_are_kept(unsnap: Callable, scene: Path) -> None:
    scene.rename("run.01.mat")
    unsnap("reconstruct", "run.01.mat", "--method", "gap-tv")
    assert Path("run.01-gap-tv.mp4").exists()


def test_forced_one_of_the_two_names_of_a_video_is_left(unsnap: Callable, scene: Path) -> None:
    poor = ("--iterations", 2, "--tol", "1e-9")
    for output in ("v.npz", "frames"):
        names = [Path(output), unconverged(Path(output))]
        for options in (poor, (), poor):
            unsnap("reconstruct", scene, "-m", "gap-tv", "-o", output, "--force", *options)
            assert [path for path in names if path.exists()] == [names[1] if options else names[0]]


def test_first_snapshots_only(unsnap: Callable, scene: Path) -> None:
    assert unsnap("reconstruct", scene, "-m", "gap-tv", "--snapshots", 1, "--json").json()["snapshots"] == 1


def test_missing_a_given_tolerance_is_exit_code_3_but_the_result_is_reported(
    unsnap: Callable, scene: Path, tmp_path: Path
) -> None:
    run = unsnap("reconstruct", scene, "--iterations", 2, "--tol", "1e-9", "--json", "-o", "v.npz")
    assert run.code == 3
    assert run.json()["converged"] is False
    assert "did not converge" in run.err
    assert run.json()["output"] == "v-unconverged.npz", "nobody takes it for the result"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["scene.mat", "v-unconverged.npz"]


def test_a_video_that_does_not_explain_the_snapshot_is_not_told_to_go_on(
    unsnap: Callable, scene: Path, arrays: dict[str, np.ndarray]
) -> None:
    """Masks that are not those of the snapshot: the iteration comes to rest, and no number of iterations helps."""
    scipy.io.savemat(scene, {**arrays, "meas": arrays["meas"][::-1, ::-1]})
    run = unsnap("reconstruct", scene, "-m", "gap-wnnm", "--anyway", "--tol", 0.5)
    assert run.code == 3
    assert "does not explain the snapshot" in run.err
    assert "--iterations" not in run.err.split("did not converge")[1]


def test_divergence_is_exit_code_3_and_no_video(
    unsnap: Callable, scene: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    from unsnap import methods
    from unsnap.algorithms import gap

    def explode(y, phi, n, watch):
        return gap(y, phi, lambda x, sigma: 1e20 * x, [1.0] * n, **watch)

    broken = replace(methods.METHODS["gap-tv"], solve=explode)
    monkeypatch.setitem(methods.METHODS, "gap-tv", broken)
    run = unsnap("reconstruct", scene, "--method", "gap-tv", "--json", "-o", "v.npz")
    assert run.code == 3
    assert run.json()["diverged"] is True
    assert run.json()["output"] is None
    assert not (tmp_path / "v.npz").exists()


def test_a_tolerance_stops_early(unsnap: Callable, scene: Path) -> None:
    assert unsnap("reconstruct", scene, "--tol", "0.05", "--json").json()["iterations"] < 40


def test_masks_from_another_file(unsnap: Callable, tmp_path: Path, scene: Path, arrays: dict[str, np.ndarray]) -> None:
    whole = unsnap("reconstruct", scene, "-m", "gap-tv", "--json").json()
    scipy.io.savemat(tmp_path / "meas.mat", {k: arrays[k] for k in ("meas", "orig")})
    scipy.io.savemat(tmp_path / "mask.mat", {"mask": arrays["mask"]})
    options = ("--masks", tmp_path / "mask.mat", "-m", "gap-tv", "--json")
    parts = unsnap("reconstruct", tmp_path / "meas.mat", *options).json()
    assert parts["psnr"] == pytest.approx(whole["psnr"])


@pytest.mark.parametrize("device", ["cuda:7", "abacus"])
def test_a_device_that_is_not_there(unsnap: Callable, scene: Path, device: str) -> None:
    run = unsnap("reconstruct", scene, "--device", device)
    assert run.code == 2
    assert device in run.err
    assert "use cpu" in run.err


def test_stdout_is_pure_json_in_a_real_process(scene: Path, tmp_path: Path) -> None:
    words = ("reconstruct", str(scene), "-m", "gap-tv", "--json", "-o", str(tmp_path / "a.mp4"))
    done = born(program, "unsnap", *words, said=tmp_path / "said")
    assert done.end() == 0, done.err.read_text()
    assert json.loads(done.out.read_text())["snapshots"] == 2


@pytest.mark.skipif(os.name != "posix", reason="signals as on POSIX")
def test_ctrl_c_leaves_130_and_no_file(scene: Path, tmp_path: Path) -> None:
    command = ["reconstruct", str(scene), "-o", "out.mp4"]
    command += ["--method", "admm-tv3d", "--iterations", "1000000", "--tol", "0"]
    before = set(tmp_path.iterdir())
    with forked(command, tmp_path) as (process, stderr):
        assert "Warning" in stderr.readline()  # the file has been read; now it begins
        time.sleep(0.5)
        assert process.is_alive(), stderr.read()
        os.kill(process.pid, signal.SIGINT)
        err = stderr.read()
        process.join(600)
        assert process.exitcode == 130
    assert err.count("Interrupted") == 1
    assert "Traceback" not in err
    assert set(tmp_path.iterdir()) == before


def test_a_white_that_was_guessed_badly_is_told(unsnap: Callable, scene: Path, arrays: dict[str, np.ndarray]) -> None:
    """Of a measurement over its maximum nobody can tell whether the scene was dim."""
    scipy.io.savemat(scene, {"mask": arrays["mask"], "meas": 0.1 * arrays["meas"] / arrays["meas"].max()})
    run = unsnap("reconstruct", scene, "-m", "gap-tv", "-o", "v.npz")
    assert "Warning: brightness: white was guessed as 1, and the video's brightest is" in run.err
    assert "--scale" in run.err
    told = unsnap("reconstruct", scene, "-m", "gap-tv", "--json", "--quiet").json()["warnings"]
    assert any(text.startswith("brightness") for text in told)
    white = 0.1 * 255 / arrays["meas"].max()
    for options in (["--scale", str(white)], ["--contrast", "auto"]):
        assert "brightness" not in unsnap("reconstruct", scene, "-m", "gap-tv", "-o", "w.npz", "--force", *options).err
    scipy.io.savemat(scene, {"mask": arrays["mask"], "meas": 0 * arrays["meas"]})
    assert "brightness" not in unsnap("reconstruct", scene, "-m", "gap-tv", "-o", "b.npz").err, "no scale helps"


@pytest.mark.parametrize("counts", [20, 320, 4000])
def test_counts_of_any_sensor_become_a_video_between_black_and_white(
    unsnap: Callable, scene: Path, arrays: dict[str, np.ndarray], counts: int
) -> None:
    scipy.io.savemat(scene, {"mask": arrays["mask"], "meas": np.rint(arrays["meas"] * counts / 255)})
    assert unsnap("reconstruct", scene, "-m", "gap-tv", "-o", "v.npz").err.count("brightness") == 0
    assert 0.6 < np.quantile(stored(scene.parent / "v.npz")["video"], 0.99) < 1.1


def test_a_path_with_dots_is_left_as_it_is(unsnap: Callable, scene: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (scene.parent / "deep").mkdir()
    monkeypatch.chdir(scene.parent / "deep")
    run = unsnap("reconstruct", "../scene.mat", "--scale", "0")
    assert "Error: ../scene.mat: --scale must be a positive number" in run.err
    assert ".." not in run.err.replace("../", "")


def test_format_names_the_kind_of_one_video_too(unsnap: Callable, scene: Path) -> None:
    assert unsnap("reconstruct", scene, "-m", "gap-tv", "--format", "gif").code == 0
    assert (scene.parent / "scene-gap-tv.gif").exists()
    run = unsnap("reconstruct", scene, "-m", "gap-tv", "--format", "gif", "-o", "x.npz")
    assert run.code == 2
    assert "--format gif contradicts -o x.npz" in run.err


def test_warnings_travel_with_the_result(unsnap: Callable, scene: Path, arrays: dict[str, np.ndarray]) -> None:
    """To the JSON, and from the workers of a campaign to its summary."""
    mask = arrays["mask"].copy()
    mask[:6, :20] = 0
    meas = np.einsum("ijt,ijt->ij", mask, arrays["orig"].astype(float))[..., None] - 90
    scipy.io.savemat(scene, {"mask": mask, "meas": meas})
    run = unsnap("reconstruct", scene, "-m", "gap-tv", "-o", "v.npz", "--json")
    (offset,) = [text for text in run.json()["warnings"] if text.startswith("offset")]
    assert "--offset -90" in offset
    assert "harmless" not in unsnap("inspect", scene).out, "what follows from the offset is no noise"
    row = _row(Entry(scene, Result(**run.json())))
    assert offset in row["message"]
    assert offset in unsnap("reconstruct", scene, "-m", "gap-tv", "--tile", "32", "--json").json()["warnings"]


def test_what_calibrate_says_to_use_has_its_options() -> None:
    reading = Reading(masks=Path("m.mat"), dark=Path("d.tif"), transpose_masks=True, scale=3.0, saturated="exclude")
    words = replace(reading, calibration=Path("c.npz")).words()
    given = dict(zip(words, [*words[1:], ""], strict=True))
    assert {word: given[word] for word in words if word.startswith("--") and word != "--transpose-masks"} == {
        "--dark": "d.tif", "--saturated": "exclude", "--masks": "m.mat", "--scale": "3.0", "--camera": "c.npz"
    }  # fmt: skip
    assert "--transpose-masks" in words


@pytest.mark.parametrize(
    "options", [["--masks", "scene.mat", "--density", "0.3"], ["--masks", "scene.mat", "--mask", "gray"],
                ["--kind", "dispersed:2", "-T", "12"], ["--masks", "scene.mat", "--blur", "1"],
                ["--mask", "gray", "--density", "0.3"], ["--kind", "dispersed:2", "--snapshots", "3"], ["scene.mat"]],
)  # fmt: skip
def test_simulate_ignores_nothing(unsnap: Callable, scene: Path, options: list[str]) -> None:
    run = unsnap("simulate", "-o", "s.npz", "--size", "40x48", *options)
    assert run.code == 2
    assert "leave" in run.err
    assert not (scene.parent / "s.npz").exists()


def test_simulate_says_if_there_are_fewer_snapshots_than_asked_for(unsnap: Callable) -> None:
    np.save("clip.npy", np.random.default_rng(0).random((9, 16, 16)))
    run = unsnap("simulate", "clip.npy", "-o", "s.npz", "-T", 4, "--snapshots", 3)
    assert run.code == 0
    assert "clip.npy has frames for 2 of the 3 snapshots only" in run.err
