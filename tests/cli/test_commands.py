"""inspect, simulate, compare, bench, methods, demo and the help texts."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import unsnap as library
from cli.contract import stored
from unsnap.methods import METHODS

COMMANDS = ["reconstruct", "inspect", "simulate", "compare", "bench", "methods", "demo"]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_with_an_example(unsnap: Callable, command: str) -> None:
    run = unsnap(command, "--help")
    assert run.code == 0
    assert f"unsnap {command}" in " ".join(run.out.split())
    assert "Example" in run.out


def test_version_and_bare_call(unsnap: Callable) -> None:
    assert unsnap("--version").out.strip() == library.__version__
    bare = unsnap()
    assert all(command in bare.out + bare.err for command in COMMANDS)


def test_inspect_json(unsnap: Callable, scene: Path) -> None:
    report = unsnap("inspect", scene, "--json").json()
    assert report["fatal"] is False
    assert report["size"] == {"snapshots": 2, "frames": 4, "height": 40, "width": 48}
    assert {f["subject"] for f in report["findings"]} >= {"masks", "forward model"}


def test_simulated_scenes_are_reproducible_and_reconstructible(unsnap: Callable, tmp_path: Path) -> None:
    options = ["--size", "33x41", "-T", 5, "--mask", "shifted", "--photons", 5000, "--bits", 12, "--dead", 0.01]
    for name in ("a.npz", "b.npz"):
        assert unsnap("simulate", "-o", tmp_path / name, "--seed", 4, *options).code == 0
    assert unsnap("simulate", "-o", tmp_path / "c.npz", "--seed", 5, *options).code == 0
    a, b, c = (stored(tmp_path / f"{n}.npz") for n in "abc")
    assert all(np.array_equal(a[k], b[k]) for k in a)
    assert not np.array_equal(a["mask"], c["mask"])
    result = unsnap("reconstruct", tmp_path / "a.npz", "--json").json()
    assert (result["frames"], result["height"], result["width"]) == (5, 33, 41)
    assert result["psnr"] > 18


@pytest.mark.parametrize("mask", ["shifted", "gray"])
def test_optics_blur_masks(unsnap: Callable, tmp_path: Path, mask: str) -> None:
    options = ["--size", "32x40", "-T", 4, "--mask", mask]
    assert unsnap("simulate", "-o", tmp_path / "soft.npz", *options, "--blur", 0.7).code == 0
    assert unsnap("simulate", "-o", tmp_path / "sharp.npz", *options).code == 0
    soft, sharp = (stored(tmp_path / f"{name}.npz")["mask"] for name in ("soft", "sharp"))
    assert soft.std() < 0.8 * sharp.std()
    refused = unsnap("simulate", "-o", tmp_path / "no.npz", *options[:-2], "--blur", 0.7)
    assert refused.code == 2
    assert "--mask shifted" in refused.err


def test_simulate_from_a_video_file(unsnap: Callable, tmp_path: Path) -> None:
    from unsnap.simulate import render

    library.save_video(tmp_path / "clip.mp4", render(9, 32, 48, seed=2))
    facts = unsnap("simulate", tmp_path / "clip.mp4", "-o", "s.mat", "-T", 4, "--json").json()
    assert (facts["snapshots"], facts["frames"], facts["dropped_frames"], facts["mask"]) == (2, 4, 1, "bernoulli")
    again = unsnap("simulate", tmp_path / "clip.mp4", "-o", "u.mat", "-T", 4, "--masks", "s.mat", "--json").json()
    assert again["mask"] == "given"
    too_short = unsnap("simulate", tmp_path / "clip.mp4", "-o", "t.mat", "-T", 20)
    assert too_short.code == 2
    assert not (tmp_path / "t.mat").exists()


def test_bench_prints_writes_and_lists(unsnap: Callable, scene: Path, tmp_path: Path) -> None:
    run = unsnap("bench", tmp_path, "--methods", "gap-tv,gap-tv3d", "-o", tmp_path / "results", "--json")
    rows = run.json()
    assert [row["method"] for row in rows] == ["gap-tv", "gap-tv3d"]
    assert {row["scene"] for row in rows} == {"scene"}
    written = json.loads((tmp_path / "results" / "results.json").read_text())
    assert "torch" in json.dumps(written)
    assert rows[0]["input_sha256"] in json.dumps(written)
    with (tmp_path / "results" / "results.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [float(r["psnr"]) for r in table] == pytest.approx([r["psnr"] for r in rows])
    assert (tmp_path / "results" / "psnr-time.png").read_bytes().startswith(b"\x89PNG")
    assert "gap-tv3d" in unsnap("bench", scene, "--methods", "gap-tv3d").out


def test_compare_draws_everything(unsnap: Callable, scene: Path, tmp_path: Path) -> None:
    rows = unsnap("compare", scene, "--methods", "gap-tv,admm-tv3d", "-o", "cmp", "--json").json()
    assert len(rows) == 2
    names = {p.name for p in (tmp_path / "cmp").iterdir()}
    assert names == {
        *("side-by-side.mp4", "side-by-side.gif", "frames.png", "convergence.png", "psnr-time.png"),
        *("results.csv", "results.json", "report.html"),
    }


def test_methods_lists_what_can_be_run(unsnap: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UNSNAP_WEIGHTS", raising=False)
    monkeypatch.setattr("unsnap.cli.methods.out", Console(width=160, force_terminal=False))
    rows = {row["name"]: row for row in unsnap("methods", "--json").json()}
    assert list(rows) == list(METHODS)
    assert sum(row["default"] for row in rows.values()) == 1
    assert {"family", "reference", "year", "needs", "missing", "frames", "cpu_seconds"} <= set(rows["gap-tv"])
    assert (rows["gap-tv"]["year"], rows["gap-tv"]["needs"], rows["gap-tv"]["missing"]) == (2016, None, None)
    assert rows["pnp-ffdnet"]["needs"] == "ffdnet_net_gray.pth"
    assert "not here" in rows["pnp-ffdnet"]["missing"]
    wide = unsnap("methods").out
    monkeypatch.setattr("unsnap.cli.methods.out", Console(width=80, force_terminal=False))
    for text in (wide, unsnap("methods").out):
        said = " ".join(text.split())
        assert all(name in said for name in METHODS)
        assert all(w in said for w in ("ICIP 2016", "rank minimisation", "ffdnet_net_gray.pth", "shipped weights"))


def test_demo_needs_nothing_and_shows_everything(
    unsnap: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unsnap.cli.demo._SIZE", 48)
    rows = unsnap("demo", "-o", "demo", "--json").json()
    names = {p.name for p in (tmp_path / "demo").iterdir()}
    assert {"scene.mat", "side-by-side.mp4", "side-by-side.gif", "frames.png", "results.md"} <= names
    assert all(row["psnr"] > 22 for row in rows)
    frames = library.read_video(tmp_path / "demo" / "side-by-side.gif")
    assert len(frames) == 16
    assert float((frames[1:] - frames[:-1]).abs().mean()) > 1e-3  # it moves
    again = unsnap("reconstruct", tmp_path / "demo" / "scene.mat", "--method", "gap-tv", "--json").json()
    assert again["psnr"] == pytest.approx(rows[0]["psnr"], abs=1e-3)
