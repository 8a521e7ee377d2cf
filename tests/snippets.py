"""The Python of this repository that is no package: blocks of Markdown that readers will copy, and scripts."""

from __future__ import annotations

import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import CodeType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent

_BLOCK = re.compile(r"^(?P<skip><!-- not run -->\n+)?```python\n(?P<code>.*?)^```$", re.DOTALL | re.MULTILINE)


def python_blocks(path: Path) -> list[str]:
    """Every ```python block that is not marked `<!-- not run -->`, padded so that its line numbers are the file's."""
    text = path.read_text(encoding="utf-8")
    found = [match for match in _BLOCK.finditer(text) if not match["skip"]]
    return ["\n" * text.count("\n", 0, match.start("code")) + match["code"] for match in found]


def compiled(path: Path) -> list[CodeType]:
    return [compile(block, str(path), "exec") for block in python_blocks(path)]


def script(path: str) -> Any:
    """A script of this repository as a module."""
    spec = spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
