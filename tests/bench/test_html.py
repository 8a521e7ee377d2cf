"""The report is one well-formed page that shows every number and picture, and trusts no text that it is given."""

from __future__ import annotations

import base64
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from bench.results import RESULTS
from unsnap.bench.html import Page, write_html
from unsnap.bench.report import groups

VOID = {"meta", "img", "br"}
EVIL = "<script>alert(1)</script>&\"'"
PNG = b"\x89PNG\r\n\x1a\nnot really"


class Reader(HTMLParser):
    """Tags that are opened and closed, and the text between them."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data if self.open and self.open[-1] != "style" else ""


def report(folder: Path, results: list, title: str = "a title") -> Reader:
    (folder / "a.png").write_bytes(PNG)
    page = Page(title, {title: title}, {title: folder / "a.png"}, {title: title, "seed": None}, f"{title}.mp4")
    path = write_html(folder / "report.html", page, results, {title: title, "command": ["unsnap", title]})
    reader = Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    reader.close()
    assert reader.open == []
    return reader


def test_every_number_of_the_table_is_there(tmp_path: Path) -> None:
    reader = report(tmp_path, RESULTS)
    for row in (row for group in groups(RESULTS) for row in group):
        assert all(cell in reader.text for cell in row.cells())
    best = sum(row.best for group in groups(RESULTS) for row in group)
    assert best > 0
    assert sum(attrs.get("class") == "best" for tag, attrs in reader.seen if tag == "tr") == best


def test_pictures_are_inside_and_nothing_is_fetched(tmp_path: Path) -> None:
    reader = report(tmp_path, RESULTS)
    pictures = [attrs["src"] or "" for tag, attrs in reader.seen if tag == "img"]
    assert [base64.b64decode(source.split(",")[1]) for source in pictures] == [PNG]
    sources = [attrs.get(key) for _, attrs in reader.seen for key in ("src", "href") if attrs.get(key)]
    assert [s for s in sources if s and not s.startswith("data:")] == ["a title.mp4"]
    assert not re.search(r"https?:", (tmp_path / "report.html").read_text(encoding="utf-8"))


def test_everything_from_outside_is_escaped(tmp_path: Path) -> None:
    evil = [replace(result, method=EVIL, scene=EVIL) for result in RESULTS]
    reader = report(tmp_path, evil, EVIL)
    assert "script" not in {tag for tag, _ in reader.seen}
    assert reader.text.count(EVIL) >= 8
    assert "<script" not in (tmp_path / "report.html").read_text(encoding="utf-8")
    film = next(attrs for tag, attrs in reader.seen if tag == "video")
    assert film == {"src": f"{EVIL}.mp4", "controls": None, "loop": None, "muted": None}


@pytest.mark.parametrize("psnr", [None, float("nan"), float("inf")])
def test_results_without_numbers_are_shown_too(tmp_path: Path, psnr: float | None) -> None:
    reader = report(tmp_path, [replace(RESULTS[0], psnr=psnr, ssim=None, peak_rss_mb=None)])
    assert ("truth is not known" in reader.text) == (psnr is None)
    assert "–" in reader.text
