"""MkDocs hook: turn the equations that arithmatex marks into MathML while building, so that readers need no script."""

from __future__ import annotations

import html
import logging
import re
from typing import Any

from latex2mathml.converter import convert

_MARKED = re.compile(r'<(span|div) class="arithmatex">(.*?)</\1>', re.DOTALL)
_WORD = re.compile(r"\\mathrm\{(\w\w+)\}")
# A mkdocs logger, so that `mkdocs build --strict` fails on an equation that was not understood.
_LOG = logging.getLogger("mkdocs.hooks.mathml")


def on_page_content(content: str, page: Any, **_: Any) -> str:
    """Called by MkDocs for every page, docstrings included."""
    return _MARKED.sub(lambda match: _mathml(match[2], page.file.src_path), content)


def _mathml(marked: str, page: str) -> str:
    text = html.unescape(marked).strip()
    block, latex = text.startswith(r"\["), text[2:-2].strip()
    plain = _WORD.sub(r"\\operatorname{\1}", latex).replace(r"\arg", r"\operatorname{arg}")
    math = convert(re.sub(r"\\mathrel\{(.)\}", r"\1", plain), display="block" if block else "inline")
    if "\\" in math:
        _LOG.warning("%s: no MathML for %s", page, latex)
    return math
