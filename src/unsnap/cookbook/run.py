"""Run a page: what each of its blocks prints and draws, for its own parameters or others."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from unsnap.cookbook.page import Block, Page
from unsnap.errors import InputError


@dataclass(frozen=True)
class Picture:
    name: str
    """What it shows; `slug` is its name in an address."""
    png: bytes

    @property
    def slug(self) -> str:
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")


@dataclass(frozen=True)
class Shown:
    """What one block has shown."""

    block: Block
    text: str
    pictures: list[Picture]


def run(page: Page, settings: Mapping[str, Any] | None = None, *, dpi: int = 110) -> Iterator[Shown]:
    """Run the blocks of a page one after the other; settings replace the values of its parameters."""
    unknown = sorted(set(settings or {}) - {parameter.name for parameter in page.parameters})
    if unknown:
        raise InputError(f"{page.name}.md has no parameter {unknown[0]}; it has {[p.name for p in page.parameters]}")
    with _module() as module:
        for k, block in enumerate(block for block in page.blocks if block.runs):
            printed = io.StringIO()
            padded = "\n" * (block.line - 1) + block.code  # tracebacks name the line of the page
            with redirect_stdout(printed):
                exec(compile(padded, f"{page.name}.md", "exec"), module.__dict__)
                if k == 0:
                    module.__dict__.update(settings or {})
            yield Shown(block, printed.getvalue(), _drawn(dpi))


@contextmanager
def _module() -> Iterator[ModuleType]:
    """A module to run in: dataclasses look for the one that they are written in."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    module = ModuleType("cookbook_page")
    sys.modules["cookbook_page"] = module
    try:
        yield module
    finally:
        del sys.modules["cookbook_page"]
        plt.close("all")


def _drawn(dpi: int) -> list[Picture]:
    from matplotlib import pyplot as plt

    found = []
    for number in plt.get_fignums():
        figure, file = plt.figure(number), io.BytesIO()
        figure.savefig(file, dpi=dpi, bbox_inches="tight", metadata={"Software": None})
        found.append(Picture(figure.get_label() or f"figure {number}", file.getvalue()))
        plt.close(figure)
    return found
