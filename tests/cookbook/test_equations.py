"""The map of equations names only what exists: code that imports, tests, sections and pictures of the cookbook."""

from __future__ import annotations

import re
from pkgutil import resolve_name
from typing import Any

import pytest

from snippets import ROOT, script
from unsnap.cookbook import pages
from unsnap.cookbook.run import Picture

EQUATIONS = script("docs/hooks/equations.py")
ROWS = [*EQUATIONS.SOURCE, *EQUATIONS.BEYOND]
PAGES = pages()


@pytest.mark.parametrize("row", ROWS, ids=[f"{row.number} {row.latex[:24]}" for row in ROWS])
def test_everything_named_exists(row: Any) -> None:
    assert callable(resolve_name(row.code))

    file, _, function = row.test.partition("::")
    assert f"\ndef {function}(" in (ROOT / "tests" / file).read_text(encoding="utf-8")

    text = PAGES[row.page].text
    assert not row.heading or re.search(rf"^##+ {re.escape(row.heading)}$", text, re.MULTILINE)
    assert not row.number or row.number in text

    page, _, title = row.picture.partition(": ")
    assert any(f'"{title}"' in block.code for block in PAGES[page].blocks)
    assert EQUATIONS.figure(title) == Picture(title, b"").slug


def test_every_numbered_equation_of_the_pages_has_a_row() -> None:
    tags = {tag for page in PAGES.values() for tag in re.findall(r"\\qquad (\(\d+\))\$\$", page.text)}
    assert len(tags) > 20
    assert tags <= {row.number for row in ROWS}


def test_the_numbers_are_complete() -> None:
    numbers = [row.number for row in ROWS if row.number]
    assert numbers == [f"({k})" for k in range(1, 33)]


def test_no_cell_of_the_table_is_cut() -> None:
    lines = [line for line in EQUATIONS.table().splitlines() if line.startswith("| ")]
    assert len(lines) == len(ROWS) + 2
    assert all(line.count("|") == 7 for line in lines)
