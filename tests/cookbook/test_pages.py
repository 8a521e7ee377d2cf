"""The cookbook is true: its pages run for two settings of their parameters, and every block shows something."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from laws import forward_mode
from snippets import ROOT
from unsnap.cookbook import Page, pages, run
from unsnap.cookbook.notebook import notebook
from unsnap.cookbook.page import folder
from unsnap.errors import InputError

PAGES = pages()


@forward_mode
@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("other", [False, True], ids=["as written", "what else to try"])
def test_a_page_holds_for_two_settings(name: str, other: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = PAGES[name]
    settings = {p.name: p.other for p in page.parameters} if other else {}
    if other:  # its figures are made, but drawing them takes a quarter of the time, and was done as written
        monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda *args, **options: None)
    first, *shown = run(page, settings, dpi=30)
    assert first.block.code.count("; try ") == len(page.parameters) > 0
    silent = [block.block.line for block in shown if not block.text.strip() and not block.pictures]
    assert not silent, f"{name}.md: the block at this line neither prints nor draws"
    titles = [picture.slug for block in shown for picture in block.pictures]
    assert len(set(titles)) == len(titles)
    assert not any(title.startswith("figure-") for title in titles), "a picture needs a title"
    assert not list(tmp_path.iterdir())


def test_every_page_but_the_map_is_run() -> None:
    assert {path.stem for path in (ROOT / "docs" / "cookbook").glob("*.md")} - set(PAGES) == {"index"}
    assert folder() == ROOT / "docs" / "cookbook"


def test_the_other_setting_differs() -> None:
    for page in PAGES.values():
        assert all(p.value != p.other and type(p.value) is type(p.other) for p in page.parameters), page.name


BLOCKS = """title

```python tags=["parameters"]
n = 3  # how many; try 4
```

text [a](gap.md) [b](../x.md)

{}```python
print(n)
```
"""


def test_settings_replace_parameters_and_unknown_ones_are_refused() -> None:
    page = Page("one", BLOCKS.format(""))
    assert [block.text for block in run(page)] == ["", "3\n"]
    assert [block.text for block in run(page, {"n": 7})] == ["", "7\n"]
    with pytest.raises(InputError, match="no parameter m"):
        list(run(page, {"m": 1}))


@pytest.mark.parametrize("text", ["# t\n\n```python\nn = 3\n```\n", BLOCKS.format("").replace("; try 4", "")])
def test_a_page_without_parameters_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"one\.md: "):
        _ = Page("one", text).parameters


def test_a_block_that_is_not_run_stays_text() -> None:
    page = Page("one", BLOCKS.format("<!-- not run -->\n"))
    assert len(list(run(page))) == 1
    assert [kind for kind, _ in page.cells()] == ["markdown", "parameters", "markdown"]


def test_links_of_a_notebook_lead_to_notebooks() -> None:
    cells = json.loads(notebook(Page("one", BLOCKS.format("")), PAGES))["cells"]
    assert cells[2]["source"] == "text [a](gap.ipynb) b"
    assert cells[1]["metadata"] == {"tags": ["parameters"]}
