"""What the documentation says is true: its Python runs, its links lead somewhere, its API page is complete."""

from __future__ import annotations

import importlib
import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import unsnap
from laws import forward_mode
from snippets import ROOT, compiled, python_blocks
from unsnap.algorithms import ITERATIONS
from unsnap.methods import METHODS
from unsnap.models import STARTS
from unsnap.networks import NETWORKS
from unsnap.operators import CAMERAS
from unsnap.priors import PRIORS
from unsnap.registry import Registry

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
# Pages of the cookbook are run by tests/cookbook.
WITH_PYTHON = [page for page in [*PAGES, ROOT / "README.md"] if page.parent.name != "cookbook" and python_blocks(page)]


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.fixture
def registries() -> Iterator[None]:
    """What a page registers is forgotten after it."""
    all_of_them: list[Registry[Any]] = [NETWORKS, PRIORS, METHODS, CAMERAS, STARTS, ITERATIONS]
    before = [dict(registry) for registry in all_of_them]
    yield
    for registry, known in zip(all_of_them, before, strict=True):
        registry.clear()
        registry.update(known)


@forward_mode
@pytest.mark.parametrize("page", WITH_PYTHON, ids=name)
@pytest.mark.usefixtures("registries")
def test_snippets_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    module = ModuleType("snippet")
    monkeypatch.setitem(sys.modules, "snippet", module)  # dataclasses look for the module that they are written in
    for code in compiled(page):
        exec(code, module.__dict__)


def test_blocks_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("a\n```python\nx = 1\n```\n<!-- not run -->\n```python\nx = 2\n```\n```console\n$ ls\n```\n")
    assert python_blocks(page) == ["\n\nx = 1\n"]


INDEX = runpy.run_path(str(DOCS / "make_api_index.py"))


def test_every_room_that_promises_names_is_on_the_api_page() -> None:
    folders = {path.parent.name for path in (ROOT / "src" / "unsnap").glob("*/__init__.py")}
    promising = {name for name in folders if hasattr(importlib.import_module(f"unsnap.{name}"), "__all__")}
    assert promising <= set(INDEX["ROOMS"]), "name it in docs/make_api_index.py, and run that"


def test_every_public_name_is_documented() -> None:
    listed = (DOCS / "api.md").read_text(encoding="utf-8").split("\n")
    documented = set(INDEX["documented"]())
    for room in ("unsnap", *(f"unsnap.{room}" for room in INDEX["ROOMS"])):
        assert {name for name in INDEX["public"](room) if not name.isupper()} <= documented, room
        assert INDEX["row"](room) in listed, "python docs/make_api_index.py"


def test_every_method_name_in_the_docs_exists() -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in [*PAGES, ROOT / "README.md"])
    named = set(re.findall(r"\b(?:gap|admm|fista|pgd|gd)-(?:tv3d|tv|wavelet)\b", text))
    assert named
    assert named <= set(unsnap.METHODS)


def test_the_readme_quotes_what_was_measured() -> None:
    """The table on the front is that of the page of results, row by row, with the command that gives it."""
    readme, results = ((ROOT / page).read_text(encoding="utf-8") for page in ("README.md", "docs/results.md"))
    rows = [line for line in readme.split("\n") if re.match(r"\| `gap-|.unsnap bench ", line)]
    assert len(rows) == 6
    assert all(row in results for row in rows)


def test_links_and_pictures_exist() -> None:
    for page in [*PAGES, ROOT / "README.md"]:
        targets = re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
        assert [target for target in targets if not (page.parent / target).is_file()] == [], page


def test_pictures_are_small_and_used() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    for picture in (DOCS / "img").iterdir():
        assert picture.stat().st_size < 150_000, picture.name
        assert f"img/{picture.name}" in text, picture.name


def test_navigation_lists_every_page() -> None:
    listed = set(re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE))
    assert listed == {page.relative_to(DOCS).as_posix() for page in PAGES}
