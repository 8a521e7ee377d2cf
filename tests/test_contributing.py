"""The page that teaches how to add an algorithm is executed, and its map of the source is the source."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest
import torch

from snippets import ROOT, python_blocks
from unsnap import Snapshot, methods, psnr
from unsnap.masks import bernoulli
from unsnap.simulate import render

PAGE = ROOT / "CONTRIBUTING.md"
ALGORITHM, RECIPE, LAWS = python_blocks(PAGE)


@pytest.fixture
def algorithm(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The page's first block, importable as the module it says it is."""
    module = ModuleType("unsnap.algorithms.hqs")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(ALGORITHM, str(PAGE), "exec"), module.__dict__)
    return module


def test_example_laws_hold(algorithm: ModuleType) -> None:
    namespace: dict[str, Any] = {"__name__": "test_hqs"}
    exec(compile(LAWS, str(PAGE), "exec"), namespace)
    laws = [value for key, value in namespace.items() if key.startswith("test_")]
    assert len(laws) == 3
    for law in laws:
        law()


def test_example_recipe_reconstructs(algorithm: ModuleType) -> None:
    from unsnap.algorithms.schedules import geometric

    tree = ast.parse(RECIPE)
    entry = tree.body.pop()
    assert isinstance(entry, ast.Expr)
    namespace = {**vars(methods), "hqs": algorithm.hqs, "geometric": geometric}
    exec(compile(tree, str(PAGE), "exec"), namespace)
    method = eval(compile(ast.Expression(entry.value), str(PAGE), "eval"), namespace)

    x = render(8, 64, 64, seed=0)
    phi = Snapshot(bernoulli(8, 64, 64, generator=torch.Generator().manual_seed(0)))
    solution = method(phi.A(x), phi)
    assert bool(solution.converged)
    assert psnr(solution.x, x).mean() > psnr(phi.A_dagger(phi.A(x)), x).mean() + 6


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
