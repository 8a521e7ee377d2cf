"""A comparison as one page of HTML that needs nothing else: table, pictures inside, settings and machine."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from unsnap.bench.report import HEADINGS, groups
from unsnap.errors import printable
from unsnap.io import write_text
from unsnap.run import Result

_STYLE = """
:root { color-scheme: light dark; --ink: #1d2229; --faint: #68727e; --line: #dfe3e8; --paper: #fff; --best: #eaf4ee }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e7eb; --faint: #9aa4b0; --line: #363d46; --paper: #15181c; --best: #1d3327 }
}
body { margin: 2.5rem auto; max-width: 76rem; padding: 0 1.5rem; background: var(--paper); color: var(--ink);
  font: 15px/1.55 system-ui, sans-serif }
h1 { font-size: 1.6rem; margin: 0 } h2 { font-size: 1.1rem; margin: 2.4rem 0 .7rem }
p, figcaption { color: var(--faint); margin: .3rem 0 } code { font-size: .92em; overflow-wrap: anywhere }
.wide { overflow-x: auto } table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { padding: .32rem .9rem .32rem 0; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line) }
th { font-weight: 600; white-space: nowrap } .number { text-align: right; white-space: nowrap }
tr.best td { background: var(--best); font-weight: 600 }
figure { margin: 0 0 1.6rem } img, video { max-width: 100%; height: auto; border-radius: 6px; background: #fff }
"""


@dataclass(frozen=True)
class Page:
    """What the report shows beside the results. All text is escaped, wherever it comes from."""

    title: str
    methods: Mapping[str, str]
    """name -> what it does and where it was published"""
    pictures: Mapping[str, Path]
    """caption -> PNG, which becomes part of the page"""
    settings: Mapping[str, Any] = field(default_factory=dict)
    film: str | None = None
    """A video that lies beside the page, by its name."""


def write_html(path: str | Path, page: Page, results: Sequence[Result], environment: Mapping[str, Any]) -> Path:
    """Write the report; the PNGs must exist by now."""
    body = [
        f"<h1>{_text(page.title)}</h1>",
        f"<p>{escape(_subtitle(results))}</p>",
        f'<div class="wide">{_results(results)}</div>',
        *(_figure(caption, picture) for caption, picture in page.pictures.items()),
        _film(page.film),
        "<h2>Methods</h2>",
        _pairs(page.methods),
        "<h2>Settings</h2>",
        _pairs(page.settings),
        "<h2>Machine</h2>",
        _pairs(environment),
    ]
    return write_page(path, page.title, body)


def write_page(path: str | Path, title: str, body: Sequence[str]) -> Path:
    """HTML that needs no other file; its body must be escaped by now."""
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{_text(title)}</title><style>{_STYLE}</style>"
    )
    text = f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n' + "\n".join(body) + "\n</body></html>\n"
    return write_text(path, text)


def _subtitle(results: Sequence[Result]) -> str:
    first = results[0]
    count = f"{first.snapshots} snapshot{'s' if first.snapshots > 1 else ''}"
    truth = "" if first.psnr is not None else "; the truth is not known, so there is no PSNR"
    return f"{count} of {first.frames} frames, {first.height}×{first.width} pixels{truth}"


def _results(results: Sequence[Result]) -> str:
    heading = "".join(f'<th class="{_kind(name)}">{escape(name)}</th>' for name in HEADINGS)
    lines = [f"<tr>{heading}</tr>"]
    for row in (row for group in groups(results) for row in group):
        cells = zip(HEADINGS, row.cells(), strict=True)
        inside = "".join(f'<td class="{_kind(name)}">{escape(cell)}</td>' for name, cell in cells)
        lines.append(f"<tr class={'best' if row.best else 'plain'}>{inside}</tr>")
    return f"<table>{''.join(lines)}</table>"


def _kind(heading: str) -> str:
    return "text" if heading in ("scene", "method") else "number"


def _pairs(values: Mapping[str, Any]) -> str:
    rows = "".join(f"<tr><th>{_text(key)}</th><td>{_value(value)}</td></tr>" for key, value in values.items())
    return f'<div class="wide"><table>{rows}</table></div>'


def _value(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, (list, tuple)):
        return f"<code>{_text(' '.join(map(str, value)))}</code>"
    return _text(value)


def _text(value: object) -> str:
    return escape(printable(value))


def _figure(caption: str, picture: Path) -> str:
    data = base64.b64encode(picture.read_bytes()).decode("ascii")
    words = escape(caption)
    return (
        f"<h2>{words}</h2><figure>"
        f'<img src="data:image/png;base64,{data}" alt="{words}"></figure>'
    )  # fmt: skip


def _film(name: str | None) -> str:
    if name is None:
        return ""
    source = escape(name, quote=True)
    return (
        f'<h2>As a film</h2><figure><video src="{source}" controls loop muted></video>'
        f"<figcaption>{source}, beside this page</figcaption></figure>"
    )
