"""The contract for scripts, and what a person sees."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import scipy.io

import unsnap as library
from cli.contract import CONTRACT, stored
from unsnap.io import sha256


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
    result = unsnap("reconstruct", scene, "--json", *option).json()
    loaded = library.load_scene(scene)
    video = library.reconstruct(loaded.measurement, loaded.masks, together=together).x
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
    result = unsnap("reconstruct", scene, "--json").json()
    assert result["psnr"] is None
    assert result["ssim"] is None
    assert result["psnr_per_snapshot"] is None


def test_all_snapshots_become_one_video(unsnap: Callable, scene: Path, tmp_path: Path) -> None:
    run = unsnap("reconstruct", scene, "-o", tmp_path / "out.npz", "--json")
    assert run.json()["output"] == str(tmp_path / "out.npz")
    assert stored(tmp_path / "out.npz")["video"].shape == (8, 40, 48)


def test_people_get_an_mp4_named_after_file_and_method(unsnap: Callable, scene: Path, tmp_path: Path) -> None:
    run = unsnap("reconstruct", scene, "--method", "gap-tv")
    assert run.code == 0
    assert "PSNR" in run.out
    assert (tmp_path / "scene-gap-tv.mp4").stat().st_size > 500


def test_first_snapshots_only(unsnap: Callable, scene: Path) -> None:
    assert unsnap("reconstruct", scene, "--snapshots", 1, "--json").json()["snapshots"] == 1


def test_missing_a_given_tolerance_is_exit_code_3_but_the_result_is_reported(
    unsnap: Callable, scene: Path, tmp_path: Path
) -> None:
    run = unsnap("reconstruct", scene, "--iterations", 2, "--tol", "1e-9", "--json", "-o", "v.npz")
    assert run.code == 3
    assert run.json()["converged"] is False
    assert "did not converge" in run.err
    assert run.json()["output"] == "v-unconverged.npz", "nobody takes it for the result"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["scene.mat", "v-unconverged.npz"]


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
    whole = unsnap("reconstruct", scene, "--json").json()
    scipy.io.savemat(tmp_path / "meas.mat", {k: arrays[k] for k in ("meas", "orig")})
    scipy.io.savemat(tmp_path / "mask.mat", {"mask": arrays["mask"]})
    parts = unsnap("reconstruct", tmp_path / "meas.mat", "--masks", tmp_path / "mask.mat", "--json").json()
    assert parts["psnr"] == pytest.approx(whole["psnr"])


@pytest.mark.parametrize("device", ["cuda:7", "abacus"])
def test_a_device_that_is_not_there(unsnap: Callable, scene: Path, device: str) -> None:
    run = unsnap("reconstruct", scene, "--device", device)
    assert run.code == 2
    assert device in run.err
    assert "use cpu" in run.err


def test_stdout_is_pure_json_in_a_real_process(scene: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "unsnap", "reconstruct", str(scene), "-m", "gap-tv", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["snapshots"] == 2


@pytest.mark.skipif(os.name != "posix", reason="signals as on POSIX")
def test_ctrl_c_leaves_130_and_no_file(scene: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "unsnap", "reconstruct", str(scene), "-o", "out.mp4"]
    command += ["--method", "admm-tv3d", "--iterations", "1000000", "--tol", "0"]
    before = set(tmp_path.iterdir())
    # A suite that itself runs in the background ignores SIGINT, and so would its children.
    heed = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path, preexec_fn=heed) as process:
        assert process.stderr is not None
        assert "Warning" in process.stderr.readline()  # the file has been read; now it begins
        time.sleep(2)
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=600)
    assert process.returncode == 130
    assert "Interrupted" in err
    assert "Traceback" not in err
    assert set(tmp_path.iterdir()) == before
