"""Read the Python blocks of a Markdown file, so that tests can run what readers will copy."""

from __future__ import annotations

import re
from pathlib import Path
from types import CodeType

ROOT = Path(__file__).resolve().parent.parent

_BLOCK = re.compile(r"^(?P<skip><!-- not run -->\n+)?```python\n(?P<code>.*?)^```$", re.DOTALL | re.MULTILINE)


def python_blocks(path: Path) -> list[str]:
    """Every ```python block that is not marked `<!-- not run -->`, padded so that its line numbers are the file's."""
    text = path.read_text(encoding="utf-8")
    found = [match for match in _BLOCK.finditer(text) if not match["skip"]]
    return ["\n" * text.count("\n", 0, match.start("code")) + match["code"] for match in found]


def compiled(path: Path) -> list[CodeType]:
    return [compile(block, str(path), "exec") for block in python_blocks(path)]
