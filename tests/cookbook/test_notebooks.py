"""Pages as notebooks: sound for Jupyter, run by a real kernel, written by `unsnap cookbook`."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from typer.testing import CliRunner

from unsnap.cli.app import app
from unsnap.cookbook import pages, run
from unsnap.cookbook.notebook import notebook

nbformat = pytest.importorskip("nbformat")
PAGES = pages()


@pytest.fixture
def cookbook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str]]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("unsnap.cli.cookbook.find_spec", lambda name: None)  # as where Jupyter is not installed

    def call(*args: str) -> tuple[int, str]:
        result = CliRunner().invoke(app, ["cookbook", *args])
        return result.exit_code, result.output

    return call


@pytest.mark.parametrize("name", PAGES)
def test_notebooks_are_sound(name: str) -> None:
    made = nbformat.reads(notebook(PAGES[name], PAGES), as_version=4)
    nbformat.validate(made)
    assert [c.source for c in made.cells if c.cell_type == "code"] == [
        b.code.strip("\n") for b in PAGES[name].blocks if b.runs
    ]
    prose = "".join(c.source for c in made.cells if c.cell_type == "markdown")
    assert not any(mark in prose for mark in ("\n:::", "][unsnap", ".md)", "<details"))


OWN = """import unsnap
from unsnap.masks import bernoulli
masks = bernoulli(4, 32, 32)
unsnap.reconstruct(masks.sum(0) / 2, masks, 'gap-tv', progress=True)"""


def test_a_kernel_runs_one_and_shows_what_the_site_shows() -> None:
    """And in a reader's own cell the bar, replaced in place and without widgets, and the film."""
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    page = PAGES["gmm"]  # nothing to compile
    made = nbformat.reads(notebook(page, PAGES), as_version=4)
    made.cells.append(nbformat.v4.new_code_cell(OWN))
    nbclient.NotebookClient(made, timeout=1200, kernel_name="python3").execute()
    bar, film = (output["data"]["text/html"] for output in made.cells.pop()["outputs"])
    assert re.search(r'gap-tv <progress value="(\d+)" max="\1"></progress> \1/\1 change \d', bar)
    assert film.count("data:image/") == 1
    here = nbformat.reads(notebook(page, PAGES, run(page)), as_version=4)
    nbformat.validate(here)
    for theirs, ours in zip(made.cells, here.cells, strict=True):
        if theirs.cell_type == "code":
            text = [[o.text for o in cell.outputs if o.output_type == "stream"] for cell in (theirs, ours)]
            drawn = [["image/png" in o.get("data", {}) for o in cell.outputs] for cell in (theirs, ours)]
            assert text[0] == text[1]
            assert drawn[0] == drawn[1]


def test_the_command_writes_every_page_once(cookbook: Callable, tmp_path: Path) -> None:
    code, said = cookbook("gap", "-o", "n")
    assert code == 0
    assert "not installed" in said
    assert {path.stem for path in (tmp_path / "n").iterdir()} == set(PAGES)
    (tmp_path / "n" / "gap.ipynb").write_text("mine")
    assert cookbook("-o", "n")[0] == 2
    assert (tmp_path / "n" / "gap.ipynb").read_text() == "mine"
    assert cookbook("-o", "n", "--force", "--no-browser")[0] == 0
    assert (tmp_path / "n" / "gap.ipynb").read_text() != "mine"


def test_an_unknown_page_is_one_sentence(cookbook: Callable, tmp_path: Path) -> None:
    code, said = cookbook("nonsense\x1b[2J")
    assert code == 2
    assert "its pages are admm, anderson" in said
    assert "\x1b" not in said
    assert not list(tmp_path.iterdir())


def test_where_jupyter_is_the_reader_s_own_copy_is_opened(
    cookbook: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    codes = [0, 0, 1]

    def jupyter(words: list[str], check: bool) -> CompletedProcess[str]:
        opened.append(words[-1])
        return CompletedProcess(words, codes.pop(0))

    monkeypatch.setattr("unsnap.cli.cookbook.find_spec", lambda name: name)
    monkeypatch.setattr("unsnap.cli.cookbook.subprocess.run", jupyter)
    assert cookbook("gap", "-o", "n")[0] == 0
    (tmp_path / "n" / "gap.ipynb").write_text("mine")
    assert cookbook("gap", "-o", "n")[0] == 0
    assert opened == [str(Path("n/gap.ipynb"))] * 2
    assert (tmp_path / "n" / "gap.ipynb").read_text() == "mine"
    code, said = cookbook("gap", "-o", "n")  # as root, for one
    assert code == 2
    assert "Jupyter ended with exit code 1" in said
