"""Every example runs as a reader would run it, says something, and leaves nothing behind where it was started."""

from __future__ import annotations

import io
import re
import runpy
import sys
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from snippets import ROOT
from unsnap.networks import NETWORKS
from unsnap.plugins import LOADED
from unsnap.priors import PRIORS

EXAMPLES = sorted((ROOT / "examples").glob("[0-9]*.py"))


def run(script: Path, folder: Path, *arguments: str) -> str:
    """What it prints when it is started in a folder, in this process: another one would only import torch again."""
    temporary, out = folder / "temporary", io.StringIO()
    temporary.mkdir()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out):
        patch.chdir(folder)
        patch.setattr(sys, "argv", [str(script), *arguments])
        patch.setattr(tempfile, "tempdir", str(temporary))
        runpy.run_path(str(script), run_name="__main__")
    assert [entry.name for entry in folder.iterdir()] == ["temporary"]
    return out.getvalue()


@pytest.fixture
def forgotten() -> Iterator[None]:
    """The plug-in that an example loads, and what that registers, are forgotten after it."""
    changed: list[dict[str, Any]] = [NETWORKS, PRIORS, LOADED]
    before, modules = [dict(known) for known in changed], set(sys.modules)
    yield
    for known, kept in zip(changed, before, strict=True):
        known.clear()
        known.update(kept)
    for name in set(sys.modules) - modules:
        if name.startswith("unsnap_plugin_"):
            del sys.modules[name]


def decibels(line: str) -> float:
    found = re.search(r"PSNR\s+(-?[\d.]+) dB", line)
    assert found is not None, line
    return float(found[1])


def test_there_are_examples() -> None:
    assert [path.name[:3] for path in EXAMPLES] == ["01_", "02_", "03_", "04_", "05_", "06_", "07_", "08_", "09_"]


def test_the_gallery_shows_them_all() -> None:
    page = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    for path in EXAMPLES:
        assert page.count(path.name) == 3
        assert f"(img/gallery-{path.name[:2]}.png)" in page


def test_reconstruct_a_file(tmp_path: Path) -> None:
    given = tmp_path / "temporary" / "given"
    text = run(EXAMPLES[0], tmp_path, str(given))
    assert {entry.name for entry in given.iterdir()} == {"capture.mat", "capture.mp4", "capture.gif"}
    assert "the measurement equals Σ mask·truth" in text
    assert decibels(text) > 20


def test_your_own_denoiser(tmp_path: Path) -> None:
    lines = run(EXAMPLES[1], tmp_path).splitlines()
    assert len(lines) == 4
    assert all(decibels(line) > 20 for line in lines if not line.startswith("box blur"))


def test_compare_algorithms_reach_one_minimum(tmp_path: Path) -> None:
    _, pgd, fista, admm = run(EXAMPLES[2], tmp_path).splitlines()
    last = [float(line.split("PSNR")[0].split()[-1]) for line in (pgd, fista, admm)]
    assert last[0] == pytest.approx(last[1], rel=0.05)
    assert last[1] == pytest.approx(last[2], rel=1e-4)


def test_real_camera_masks(tmp_path: Path) -> None:
    text = run(EXAMPLES[3], tmp_path)
    cameras = [line for line in text.splitlines() if "PSNR" in line]
    assert len(cameras) == 6
    assert all(decibels(line) > 20 for line in cameras)
    grew, fell = (float(number) for number in re.findall(r"\d\.\de[+-]\d+", text)[-2:])
    assert grew > 1e6
    assert fell < 1e-5


def test_an_equation_a_line(tmp_path: Path) -> None:
    text = run(EXAMPLES[4], tmp_path)
    assert float(text.split()[-1]) < 1e-12


def test_training_an_equilibrium_improves_it(tmp_path: Path) -> None:
    lines = run(EXAMPLES[5], tmp_path, "--steps", "20").splitlines()
    losses = [float(found) for line in lines for found in re.findall(r"loss ([\d.]+)", line)]
    residuals = [float(found) for line in lines for found in re.findall(r"residual (\S+)", line)]
    assert len(losses) == len(residuals) == 5
    assert losses[-1] < 0.8 * losses[0]
    assert max(residuals) <= 1e-3


def test_certificate_holds(tmp_path: Path) -> None:
    text = run(EXAMPLES[6], tmp_path)
    assert text.startswith("certified: True")
    assert text.count("converged after") == text.count("residual rose 0 times") == 4
    assert all(float(found) <= 1 + 1e-5 for found in re.findall(r"constant ([\d.]+) <= 1", text))
    assert "CNN: no certificate" in text


@pytest.mark.usefixtures("forgotten")
def test_a_plugin_is_trained_saved_and_loaded(tmp_path: Path) -> None:
    given = tmp_path / "temporary" / "given"
    text = run(EXAMPLES[7], tmp_path, str(given))
    prior, untrained, trained, refused = text.splitlines()
    assert min(decibels(prior), decibels(trained)) > 20 > decibels(untrained) + 5
    assert "Unregistered is not a registered network" in refused
    assert {entry.name for entry in given.iterdir()} == {"capture.npz", "my-model.safetensors"}


def test_every_repair_of_a_camera_is_worth_something(tmp_path: Path) -> None:
    given = tmp_path / "temporary" / "given"
    lines = [line for line in run(EXAMPLES[8], tmp_path, str(given)).splitlines() if "PSNR" in line]
    *without, repaired, perfect = map(decibels, lines)
    assert len(without) == 6
    assert max(without) < repaired - 0.1
    assert perfect - 1.5 < repaired < perfect
