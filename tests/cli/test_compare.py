"""compare (and bench): refuse before beginning, report what was done."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from networks.test_published_weights import IPOL, normed_state
from unsnap import methods
from unsnap.algorithms import GAP
from unsnap.io import save_scene
from unsnap.methods import published
from unsnap.models import Equilibrium, save
from unsnap.networks import CNN
from unsnap.scene import Scene


@pytest.fixture
def untouched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """No weights anywhere, and a list of what gap-tv was asked to do."""
    from dataclasses import replace

    monkeypatch.delenv(published.VARIABLE, raising=False)
    monkeypatch.setattr(published, "data_folder", lambda: tmp_path / "nothing")
    begun: list[str] = []
    usual = methods.METHODS["gap-tv"]

    def solve(*args):
        begun.append("gap-tv")
        return usual.solve(*args)

    monkeypatch.setitem(methods.METHODS, "gap-tv", replace(usual, solve=solve))
    return begun


@pytest.mark.parametrize("command", ["compare", "bench", "reconstruct"])
def test_missing_weights_are_refused_before_any_method_begins(
    unsnap: Callable, scene: Path, untouched: list[str], command: str, tmp_path: Path
) -> None:
    wanted = ["--method", "pnp-ffdnet"] if command == "reconstruct" else ["--methods", "gap-tv,pnp-ffdnet"]
    run = unsnap(command, scene, *wanted, "-o", tmp_path / "out.mp4", "--quiet")
    assert run.code == 2
    assert run.out == ""
    assert run.err.startswith("Error: ")
    assert all(word in run.err for word in ("ffdnet_net_gray.pth", "UNSNAP_WEIGHTS", "liuyang12/PnP-SCI_python"))
    assert run.err.count("\n") == 1
    assert untouched == []
    assert [p.name for p in tmp_path.iterdir()] == ["scene.mat"]


def test_a_file_that_a_method_cannot_serve_is_refused_before_any_begins(
    unsnap: Callable, untouched: list[str], tmp_path: Path
) -> None:
    masks = np.random.default_rng(0).integers(0, 2, (3, 8, 30))
    np.savez(tmp_path / "small.npz", mask=masks, meas=masks.sum(0, keepdims=True) / 2)
    run = unsnap("compare", "small.npz", "--methods", "gap-tv,desci", "--quiet")
    assert run.code == 2
    assert "'desci' cannot serve this: a video of 8×30 pixels is too small for patches of 9×9" in run.err
    assert untouched == []
    assert [p.name for p in tmp_path.iterdir()] == ["small.npz"]


def test_all_means_all_that_can_run_here(untouched: list[str]) -> None:
    from unsnap.cli.common import parse_methods

    names = [method.name for method in parse_methods("all")]
    assert {"gap-tv", "desci", "de-gap"} <= set(names)
    assert "pnp-ffdnet" not in names
    assert untouched == []


@pytest.mark.parametrize("command", ["compare", "bench"])
@pytest.mark.parametrize(
    ("camera", "shape", "refused"),
    [("multishot", (2, 4, 16, 16), "'gmm' serves"), ("snapshot", (4, 3, 5), "'gmm' cannot serve this: a video of 3×5")],
)
def test_all_leaves_out_what_cannot_serve_the_file(
    unsnap: Callable, monkeypatch: pytest.MonkeyPatch, command: str, camera: str, shape: tuple[int, ...], refused: str
) -> None:
    monkeypatch.setattr(methods, "everything", lambda: [methods.METHODS[name] for name in ("gmm", "gap-tv")])
    generator = torch.Generator().manual_seed(0)
    video = torch.rand(1, *shape[-3:], generator=generator)
    save_scene("s.npz", Scene.of(video, torch.rand(shape, generator=generator), camera))
    run = unsnap(command, "s.npz", "--methods", "all", "-o", "out", "--json")
    assert run.code == 0, run.err
    assert [row["method"] for row in run.json()] == ["gap-tv"]
    assert "Left out, as they do not serve this camera or size: gmm." in run.err
    run = unsnap(command, "s.npz", "--methods", "gap-tv,gmm", "-o", "out-2")
    assert run.code == 2
    assert refused in run.err


def test_two_models_of_one_name_are_refused(unsnap: Callable, scene: Path, tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        save(tmp_path / folder / "model.safetensors", Equilibrium(GAP(), CNN(2, 4)))
    run = unsnap("compare", scene, "--methods", "a/model.safetensors,b/model.safetensors")
    assert run.code == 2
    assert "two of the name 'model'" in run.err


def test_the_report_holds_settings_and_references(
    unsnap: Callable, scene: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(published.VARIABLE, str(tmp_path))
    state = {k: 0.1 * v if v.ndim == 4 else v for k, v in normed_state(IPOL, [5, 4, 4, 4]).items()}
    torch.save(state, tmp_path / "ffdnet_net_gray.pth")
    evil = scene.with_name("<b>&.mat")
    scene.rename(evil)
    options = ["-o", "cmp", "--iterations", 3, "--tol", 1, "--seed", 5, "--json"]
    run = unsnap("compare", evil, "--methods", "gap-tv,pnp-ffdnet", *options)
    assert run.code == 0, run.err
    assert [row["method"] for row in run.json()] == ["gap-tv", "pnp-ffdnet"]
    assert "report.html" in run.err
    report = (tmp_path / "cmp" / "report.html").read_text(encoding="utf-8")
    assert "<b>" not in report
    assert all(word in report for word in ("&lt;b&gt;&amp;", "CVPR 2020", "ICIP 2016", run.json()[0]["input_sha256"]))
    assert report.count("data:image/png;base64,") == 3
    assert 'src="side-by-side.mp4"' in report


def test_without_truth_there_is_a_report_too(unsnap: Callable, tmp_path: Path, arrays: dict[str, np.ndarray]) -> None:
    np.savez(tmp_path / "s.npz", mask=arrays["mask"].transpose(2, 0, 1), meas=arrays["meas"].transpose(2, 0, 1))
    assert unsnap("compare", "s.npz", "--methods", "gap-tv", "-o", "cmp", "--quiet").code == 0
    report = (tmp_path / "cmp" / "report.html").read_text(encoding="utf-8")
    assert "the truth is not known" in report
    assert report.count("data:image/png;base64,") == 2
