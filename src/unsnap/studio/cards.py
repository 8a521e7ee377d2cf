"""Pieces of the page as HTML: findings, methods, progress, results. Every text from outside goes through `safe`."""

from __future__ import annotations

import base64
import html
import io
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unsnap.errors import printable
from unsnap.methods import Method
from unsnap.studio.reading import Remedy, clicks

_MARK = {"ok": "✓", "note": "·", "warning": "!", "fatal": "✗"}
_WORD = {"ok": "fine", "note": "note", "warning": "warning", "fatal": "cannot work"}


def safe(text: object) -> str:
    """Text as HTML that is nothing but text; braces and dollars would mean something to Gradio's templates."""
    escaped = html.escape(printable(text))
    return escaped.replace("{", "&#123;").replace("}", "&#125;").replace("$", "&#36;")


def problem(text: str) -> str:
    """One sentence about what is wrong."""
    return f'<p class="problem" role="alert">{safe(text)}</p>'


def note(text: str) -> str:
    return f'<p class="note">{safe(text)}</p>'


def png(picture: NDArray[np.uint8]) -> bytes:
    from PIL import Image

    stream = io.BytesIO()
    Image.fromarray(picture).save(stream, format="png")
    return stream.getvalue()


def image(picture: NDArray[np.uint8], name: str) -> str:
    data = base64.b64encode(png(picture)).decode("ascii")
    return f'<img alt="{safe(name)}" src="data:image/png;base64,{data}">'


def strip(pictures: Sequence[NDArray[np.uint8]], names: Sequence[str]) -> str:
    """Small pictures beside one another, each with its name."""
    parts = zip(pictures, names, strict=True)
    figures = [f"<figure>{image(p, n)}<figcaption>{safe(n)}</figcaption></figure>" for p, n in parts]
    return f'<div class="strip">{"".join(figures)}</div>'


def findings(report: dict[str, Any], pictures: Sequence[NDArray[np.uint8]], name: str, applied: Sequence[str]) -> str:
    """The doctor's findings as cards, gravest first; a card whose remedy is a click has a button."""
    order = ("fatal", "warning", "note", "ok")
    ranked = sorted(enumerate(report["findings"]), key=lambda item: order.index(item[1]["level"]))
    offered = clicks(report["findings"])
    cards = [_finding(k, finding, offered.get(k)) for k, finding in ranked]
    grave = sum(finding["level"] in ("fatal", "warning") for finding in report["findings"])
    urgent, calm = cards[:grave], cards[grave:]
    verdict = "Nothing is wrong with it" if not grave else f"{grave} thing{'s' * (grave > 1)} to look at"
    rest = f"<details><summary>{len(calm)} further findings</summary>{''.join(calm)}</details>" if calm else ""
    told = f'<p class="applied">Read with <code>{safe(" ".join(applied))}</code></p>' if applied else ""
    seen = strip(pictures, ("snapshot", "first mask")) if pictures else ""
    head = f'<h3>{safe(name)}</h3><p class="verdict">{verdict}.</p>'
    return f'<section class="findings" aria-label="Findings">{head}{told}{seen}{"".join(urgent)}{rest}</section>'


def _finding(number: int, finding: dict[str, str], remedy: Remedy | None) -> str:
    level = finding["level"]
    advice = f'<p class="remedy">→ {safe(finding["remedy"])}</p>' if finding["remedy"] else ""
    button = f'<button type="button" data-remedy="{number}">{safe(remedy.label)}</button>' if remedy else ""
    return (
        f'<article class="card {level}"><span class="mark" aria-label="{_WORD[level]}">{_MARK[level]}</span>'
        f"<div><b>{safe(finding['subject'])}</b><p>{safe(finding['text'])}</p>{advice}{button}</div></article>"
    )


def method(chosen: Method, seconds: float | None, refusal: str | None) -> str:
    """Family, paper and expected time of a method for this file."""
    if refusal is not None:
        return problem(refusal)
    time = "not known" if seconds is None else f"about {in_words(seconds)} (an estimate)"
    rows = [("family", chosen.family), ("paper", chosen.reference or "–"), ("for this file", time)]
    lines = "".join(f"<dt>{safe(name)}</dt><dd>{safe(value)}</dd>" for name, value in rows)
    return f'<div class="method"><p>{safe(chosen.summary)}</p><dl>{lines}</dl></div>'


def in_words(seconds: float) -> str:
    """For people: 0.03 s, 0.3 s, 12 s, 4 min, 2.5 h."""
    if seconds < 0.1:
        return f"{max(seconds, 0.01):.2f} s"
    if seconds < 100:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def progress(words: str, share: float, frames: Sequence[NDArray[np.uint8]], curves: str) -> str:
    """How far a computation is, what it has, and its curves."""
    percent = round(100 * max(0.0, min(share, 1.0)))
    bar = (
        f'<div class="bar" role="progressbar" aria-valuenow="{percent}" aria-valuemin="0" aria-valuemax="100">'
        f'<span style="width:{percent}%"></span></div>'
    )
    shown_frames = (
        f'<div class="strip live">{"".join(image(f, "frame so far") for f in frames)}</div>' if frames else ""
    )
    return f'<section class="running" aria-live="polite"><p>{safe(words)}</p>{bar}{shown_frames}{curves}</section>'


def curve(values: Iterable[tuple[float, float]], title: str, *, log: bool) -> str:
    """A line of (x, y) as a small SVG; what is not finite (or not positive, with log) is left out."""
    points = [(x, math.log10(y) if log else y) for x, y in values if math.isfinite(y) and (y > 0 or not log)]
    if len(points) < 2:
        return ""
    step = max(1, len(points) // 300)
    points = [*points[:-1:step], points[-1]]
    xs, ys = zip(*points, strict=True)
    low, high, first, last = min(ys), max(ys), min(xs), max(xs)
    across, up = max(last - first, 1e-12), max(high - low, 1e-12)
    path = " ".join(f"{44 + 250 * (x - first) / across:.1f},{92 - 80 * (y - low) / up:.1f}" for x, y in points)
    top, bottom = (f"{10**v:.1e}" if log else f"{v:.4g}" for v in (high, low))
    label = f"{title}, now {10 ** ys[-1]:.2e}" if log else f"{title}, now {ys[-1]:.2f}"
    return (
        f'<figure class="curve"><svg viewBox="0 0 300 110" role="img" aria-label="{safe(label)}">'
        '<path class="axis" d="M44 8V94H296"/>'
        f'<text x="40" y="16" text-anchor="end">{top}</text><text x="40" y="94" text-anchor="end">{bottom}</text>'
        f'<text x="44" y="107">{first:g}</text><text x="296" y="107" text-anchor="end">{last:g}</text>'
        f'<polyline points="{path}"/></svg><figcaption>{safe(label)}</figcaption></figure>'
    )


def link(address: str, name: str) -> str:
    """A download."""
    return f'<a href="{safe(address)}" download="{safe(name)}">{safe(name)}</a>'


def embedded(path: Path, name: str) -> str:
    """A PNG file as a part of the page."""
    data = base64.b64encode(path.read_bytes()).decode("ascii")
    return f'<img class="plot" alt="{safe(name)}" src="data:image/png;base64,{data}">'


def code(lines: Sequence[str], label: str) -> str:
    """Commands to copy."""
    text = "\n".join(lines)
    return (
        f'<div class="command"><span>{safe(label)}</span><pre tabindex="0"><code>{safe_lines(text)}</code></pre></div>'
    )


def safe_lines(text: str) -> str:
    return "\n".join(safe(line) for line in text.split("\n"))


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], caption: str) -> str:
    head = "".join(f'<th scope="col">{safe(h)}</th>' for h in heads)
    body = "".join("<tr>" + "".join(f"<td>{safe(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return (
        f'<div class="scroll" tabindex="0"><table><caption>{safe(caption)}</caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )
