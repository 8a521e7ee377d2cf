"""A page of the cookbook: Markdown whose ```python blocks are cells, the first of them parameters to change.

The format is jupytext's, and a notebook is made without it: `tags=["parameters"]` marks the first block, and
`<!-- not run -->` a block that is only shown. Every parameter is one line that says what it is and what else to try:

    size = 48  # pixels per side; try 32
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unsnap.errors import InputError, printable

_BLOCK = re.compile(
    r'^(?P<skip><!-- not run -->\n+)?```python(?P<tag> tags=\["parameters"\])?\n(?P<code>.*?)^```$',
    re.DOTALL | re.MULTILINE,
)
_PARAMETER = re.compile(r"(?P<name>\w+) = (?P<value>.+?)  # (?P<text>.+); try (?P<other>.+)")
_API = re.compile(r"^::: (\S+)\n(?:    .*\n)*", re.MULTILINE)
_REFERENCE = re.compile(r"\[([^\]]+)\]\[[\w.]+\]")
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Parameter:
    name: str
    value: Any
    other: Any
    """A second value for which everything on the page holds."""
    text: str


@dataclass(frozen=True)
class Block:
    code: str
    line: int
    """Of the file, counted from 1: where the code begins."""
    end: int
    """Position in the text after the block."""
    runs: bool


@dataclass(frozen=True)
class Page:
    name: str
    text: str

    @property
    def title(self) -> str:
        return self.text.partition("\n")[0].removeprefix("# ")

    @property
    def blocks(self) -> list[Block]:
        return [
            Block(m["code"], self.text.count("\n", 0, m.start("code")) + 1, m.end(), not m["skip"])
            for m in _BLOCK.finditer(self.text)
        ]

    @property
    def parameters(self) -> list[Parameter]:
        """Those of the first block; an InputError where it is not tagged, or one of its lines is no parameter."""
        first = _BLOCK.search(self.text)
        if first is None or not first["tag"]:
            raise InputError(f'{self.name}.md: the first block must be ```python tags=["parameters"]')
        return [self._parameter(line) for line in first["code"].splitlines() if line]

    def _parameter(self, line: str) -> Parameter:
        found = _PARAMETER.fullmatch(line)
        if found is None:
            raise InputError(f"{self.name}.md: a parameter is written `name = value  # what; try other`, not {line!r}")
        return Parameter(
            found["name"], ast.literal_eval(found["value"]), ast.literal_eval(found["other"]), found["text"]
        )

    def cells(self) -> list[tuple[str, str]]:
        """("markdown" | "parameters" | "code", source) in order; blocks that are not run stay Markdown."""
        found: list[tuple[str, str]] = []
        start = 0
        for match in _BLOCK.finditer(self.text):
            if match["skip"]:
                continue
            found.append(("markdown", self.text[start : match.start()]))
            found.append(("parameters" if match["tag"] else "code", match["code"].strip("\n")))
            start = match.end()
        found.append(("markdown", self.text[start:]))
        return [(kind, source) for kind, source in found if source.strip()]


def pages() -> dict[str, Page]:
    """Every page that can be run, by name, in the order of the alphabet."""
    found = (Page(path.stem, path.read_text(encoding="utf-8")) for path in sorted(folder().glob("*.md")))
    return {page.name: page for page in found if page.blocks}


def page(name: str) -> Page:
    known = pages()
    if name not in known:
        raise InputError(f"the cookbook has no page {printable(name)}; its pages are {', '.join(known)}")
    return known[name]


def folder() -> Path:
    """Where the pages are: inside an installed package, or in docs/ of a working copy."""
    installed = Path(__file__).parent / "pages"
    return installed if installed.is_dir() else Path(__file__).parents[3] / "docs" / "cookbook"


def plain(markdown: str, known: dict[str, Page]) -> str:
    """Markdown as a notebook shows it: without what only the web site understands."""

    def link(match: re.Match[str]) -> str:
        target, _, anchor = match[2].partition("#")
        if target.startswith("http") or not target:
            return match[0]
        name = target.removesuffix(".md")
        return f"[{match[1]}]({name}.ipynb{'#' * bool(anchor)}{anchor})" if name in known else match[1]

    text = _API.sub(r"`help(\1)`" + "\n", markdown)
    text = _LINK.sub(link, _REFERENCE.sub(r"\1", text))
    text = re.sub(r"</?details[^>]*>\n?", "", text)
    return re.sub(r"<summary>(.*?)</summary>", r"**\1.**", text).strip("\n")
