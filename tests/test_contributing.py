"""The page that teaches how to add an algorithm and a camera is executed, and its map of the source is the source."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from snippets import ROOT, python_blocks
from unsnap import Snapshot, diagnose, load_scene, methods, psnr, save_scene
from unsnap.masks import bernoulli
from unsnap.operators import CAMERAS
from unsnap.run import measure
from unsnap.simulate import render, simulate
from unsnap.simulate.coded import coded_masks

PAGE = ROOT / "CONTRIBUTING.md"
ALGORITHM, RECIPE, LAWS, CAMERA, CAMERA_LAWS = python_blocks(PAGE)


def module(name: str, code: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A block of the page, importable as the module it says it is."""
    made = ModuleType(name)
    monkeypatch.setitem(sys.modules, name, made)
    exec(compile(code, str(PAGE), "exec"), made.__dict__)
    return made


@pytest.fixture
def algorithm(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return module("unsnap.algorithms.hqs", ALGORITHM, monkeypatch)


@pytest.fixture
def camera(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    made = module("unsnap.operators.binned", CAMERA, monkeypatch)
    monkeypatch.setitem(CAMERAS, "binned", made.Binned)
    return made


def run_laws(code: str) -> int:
    namespace: dict[str, Any] = {"__name__": "laws_of_the_page"}
    exec(compile(code, str(PAGE), "exec"), namespace)
    found = [value for key, value in namespace.items() if key.startswith("test_")]
    for law in found:
        law()
    return len(found)


def test_example_laws_hold(algorithm: ModuleType) -> None:
    assert run_laws(LAWS) == 4


def test_example_recipe_reconstructs(algorithm: ModuleType) -> None:
    from unsnap.algorithms.schedules import geometric
    from unsnap.methods import classical

    tree = ast.parse(RECIPE)
    entry = tree.body.pop()
    assert isinstance(entry, ast.Expr)
    namespace = {**vars(classical), "hqs": algorithm.hqs, "geometric": geometric}
    exec(compile(tree, str(PAGE), "exec"), namespace)
    method = eval(compile(ast.Expression(entry.value), str(PAGE), "eval"), namespace)

    x = render(8, 64, 64, seed=0)
    phi = Snapshot(bernoulli(8, 64, 64, generator=torch.Generator().manual_seed(0)))
    solution = method(phi.A(x), phi)
    assert bool(solution.converged)
    assert psnr(solution.x, x).mean() > psnr(phi.A_dagger(phi.A(x)), x).mean() + 6


def test_the_camera_obeys_the_laws_of_cameras(camera: ModuleType) -> None:
    assert run_laws(CAMERA_LAWS) == 2


@pytest.mark.parametrize("suffix", [".npz", ".mat", ".h5"])
def test_the_camera_goes_from_file_to_video(camera: ModuleType, tmp_path: Path, suffix: str) -> None:
    """With nothing but its page and its line: a file holds it, and the methods serve it, the default included."""
    truth = render(8, 48, 32, seed=0)
    scene = simulate(truth, bernoulli(4, 48, 32, generator=torch.Generator().manual_seed(0)), camera="binned")
    again = load_scene(save_scene(tmp_path / f"scene{suffix}", scene))
    assert again.camera == "binned"
    codes, name = coded_masks("binned", lambda frames: bernoulli(frames, 48, 32), frames=4)
    assert (codes.shape, name) == ((4, 48, 32), "binned"), "unsnap simulate --kind binned"
    assert torch.equal(again.measurement, scene.measurement)
    assert not [f for f in diagnose(again) if f.level in ("warning", "fatal")]
    blind = psnr(again.operator.A_dagger(again.measurement), truth.reshape(2, 4, 48, 32)).mean()
    for name in ("gap-tv3d", "gap-wnnm", "de-gap", "pnp") if suffix == ".npz" else ("gap-tv3d",):
        _, result = measure(again, methods.get(name))
        assert result.psnr is not None
        assert result.psnr > blind + 4, name


def test_map_of_the_source_is_the_source() -> None:
    text = PAGE.read_text(encoding="utf-8")
    tree = re.search(r"^src/unsnap/\n(.*?)^tests/", text, re.DOTALL | re.MULTILINE)
    assert tree is not None
    assert set(re.findall(r"^  (\S+)", tree[1], re.MULTILINE)) == rooms()


def rooms() -> set[str]:
    """Modules and packages of unsnap that are part of the project: what git knows or, without git, what is there."""
    source = ROOT / "src" / "unsnap"
    listing = subprocess.run(["git", "ls-files", "*.py"], cwd=source, capture_output=True, text=True, check=False)
    files = listing.stdout.split() or [path.relative_to(source).as_posix() for path in source.rglob("*.py")]
    return {f"{head}/" if slash else head for head, slash, _ in (f.partition("/") for f in files)} - {"__init__.py"}
