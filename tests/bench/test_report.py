"""The table, CSV, JSON and Markdown say what the results say."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.text import Text

import unsnap
from bench.results import BASE, RESULTS
from unsnap.bench import report
from unsnap.errors import InputError
from unsnap.run import Result


def printed(results: list[Result]) -> list[list[str]]:
    """The cells of the table as they read on the terminal."""
    columns = [[Text.from_markup(str(cell)).plain for cell in column.cells] for column in report.table(results).columns]
    return [list(row) for row in zip(*columns, strict=True)]


def test_rows_are_grouped_by_scene_and_end_with_the_means() -> None:
    mixed = [RESULTS[0], RESULTS[2], RESULTS[1], RESULTS[3]]
    rows = printed(mixed)
    assert [row[:3] for row in rows] == [
        ["drop", "gap-tv", "30.00"],
        ["drop", "gap-tv3d", "32.00"],
        ["traffic", "gap-tv", "20.00"],
        ["traffic", "gap-tv3d", "19.00"],
        ["mean of 2", "gap-tv", "25.00"],
        ["mean of 2", "gap-tv3d", "25.50"],
    ]
    assert [row[4] for row in rows] == ["1.5", "1.5", "0.5", "1.5", "1", "1.5"]  # CPU seconds per snapshot
    assert rows[-1][6:] == ["500", "40", "5.0e-01", "✗"]  # largest peak and residual, converged only if all are


def test_one_scene_has_no_means_and_unknown_values_are_dashes() -> None:
    rows = printed([replace(BASE, psnr=None, ssim=None, peak_rss_mb=None, residual=math.nan)])
    assert rows == [["drop", "gap-tv", "–", "–", "1.5", "1.5", "–", "40", "–", "✓"]]
    assert printed([replace(BASE, psnr=math.inf)])[0][2] == "∞"


def test_mean_is_over_scenes_with_known_truth_and_says_of_how_many() -> None:
    unknown = replace(BASE, psnr=None, ssim=None)
    rows = printed([BASE, replace(unknown, scene="real")])
    assert rows[-1][:4] == ["mean of 2, PSNR of 1", "gap-tv", "30.00", "0.9000"]
    rows = printed([unknown, replace(unknown, scene="real")])
    assert rows[-1][:4] == ["mean of 2", "gap-tv", "–", "–"]


def test_scene_names_are_not_taken_for_markup() -> None:
    assert printed([replace(BASE, scene="[red]x[/red]")])[0][0] == "[red]x[/red]"


def test_markdown_marks_the_best_of_every_group(tmp_path: Path) -> None:
    lines = report.write_markdown(tmp_path / "r.md", RESULTS).read_text(encoding="utf-8").splitlines()
    assert {line.count("|") for line in lines} == {11}
    assert [line.split(" | ")[1] for line in lines if "**" in line] == ["gap-tv3d", "gap-tv", "gap-tv3d"]


def test_csv_holds_every_field(tmp_path: Path) -> None:
    path = report.write_csv(tmp_path / "r.csv", [replace(BASE, psnr=math.nan), *RESULTS])
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == list(BASE.to_dict())
    assert (rows[0]["psnr"], rows[1]["psnr"], rows[1]["psnr_per_snapshot"]) == ("", "30.0", "29.0;31.0")
    assert len(rows) == 5


def test_json_can_be_repeated_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["/somewhere/bin/unsnap", "bench", "drop.mat"])
    path = report.write_json(tmp_path / "r.json", [replace(BASE, residual=math.nan), *RESULTS], report.environment())
    content = json.loads(path.read_text(encoding="utf-8"))
    assert content["results"] == [replace(BASE, residual=math.nan).to_dict(), *(r.to_dict() for r in RESULTS)]
    assert content["scenes"] == {"drop": "ab" * 32, "traffic": "cd" * 32}
    where = content["environment"]
    assert where["command"] == ["unsnap", "bench", "drop.mat"]
    assert (where["unsnap"], where["threads"]) == (unsnap.__version__, torch.get_num_threads())
    assert all(where[key] for key in ("torch", "numpy", "numba", "python", "platform", "cpu", "cores"))


def test_a_failed_write_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot be written"):
        report.write_csv(tmp_path / "file" / "r.csv", RESULTS)
