"""Names from outside on their way out: neither markup, nor escapes, nor formulas, nor line breaks."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from unsnap.bench.report import write_csv, write_json, write_markdown

HOSTILE = ["a[/b]", "[bold]x[/]", "a\x1b[2Jb", "a\nb", "a\rb", "\u202egpj", "=1+1", "$\\frac$", "_a", "x\\", "[/]"]


@pytest.fixture
def named(unsnap: Callable, scene: Path) -> Callable[[str], Path]:
    def copy(name: str) -> Path:
        target = scene.parent / name
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(scene.read_bytes())
        return target

    return copy


def clean(text: str) -> bool:
    """Does it move nothing on a terminal but line ends?"""
    return all(c.isprintable() or c == "\n" for c in text)


@pytest.mark.parametrize("name", HOSTILE)
def test_names_of_files(unsnap: Callable, named: Callable, tmp_path: Path, name: str) -> None:
    file = named(f"{name}.mat")
    run = unsnap("reconstruct", file, "-m", "gap-tv", "--tol", "1", "-o", tmp_path / f"{name}.npz")
    assert run.code == 0, run.err
    assert (tmp_path / f"{name}.npz").is_file()
    assert clean(run.out + run.err)
    run = unsnap("inspect", file)
    assert run.code == 0
    assert clean(run.out)
    missing = unsnap("reconstruct", tmp_path / f"{name}-missing.mat")
    assert missing.code == 2
    assert missing.err.count("\n") == 1
    assert clean(missing.err)


def test_a_name_that_is_no_utf8_goes_from_input_to_output(unsnap: Callable, named: Callable, tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9")
    try:
        file = named(f"{name}.mat")
    except OSError:
        pytest.skip("this system's names are UTF-8")
    for output in (f"{name}.mp4", f"{name}.gif", f"{name}.npz", f"{name}.tif", f"{name}-frames"):
        run = unsnap("reconstruct", file, "-m", "gap-tv", "--tol", "1", "-o", tmp_path / output, "--json")
        assert run.code == 0, run.err
        assert (tmp_path / output).exists()
        assert json.loads(run.out)["output"] == str(tmp_path / output)
    assert unsnap("bench", file, "--methods", "gap-tv", "--tol", "1", "-o", tmp_path / "results").code == 0
    written = json.loads((tmp_path / "results" / "results.json").read_text(encoding="utf-8"))
    assert written["results"][0]["scene"] == name


def test_names_of_arrays(unsnap: Callable, tmp_path: Path, arrays: dict[str, np.ndarray]) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name, array in arrays.items():
            file[name] = array.T
        for k, name in enumerate(("[/nope]", "x\x1b[31m", "a\nb")):
            file[name] = np.ones(k + 1)
    run = unsnap("inspect", tmp_path / "a.h5")
    assert run.code == 0, run.err
    assert "[/nope]" in run.out
    assert r"\x1b[31m" in run.out
    assert clean(run.out)


def test_cells_of_a_table(unsnap: Callable, named: Callable, tmp_path: Path) -> None:
    files = [named(f"{name}.mat") for name in ("=cmd|'!A0", "+1", "-1", "@sum", "a\n|b", "plain")]
    run = unsnap("bench", *files, "--methods", "gap-tv", "--tol", "1", "-o", tmp_path / "results")
    assert run.code == 0, run.err
    assert clean(run.out + run.err)
    with (tmp_path / "results" / "results.csv").open(encoding="utf-8", newline="") as file:
        scenes = [row["scene"] for row in csv.DictReader(file)]
    assert [scene[0] for scene in scenes] == ["'", "'", "'", "'", "a", "p"]
    assert scenes[-2:] == [r"a\n|b", "plain"]


def test_a_comparison_of_a_file_with_a_hostile_name(unsnap: Callable, named: Callable, tmp_path: Path) -> None:
    run = unsnap("compare", named("<b>$\\x$\n.mat"), "--methods", "gap-tv", "--tol", "1", "-o", tmp_path / "c")
    assert run.code == 0, run.err
    page = (tmp_path / "c" / "report.html").read_text(encoding="utf-8")
    assert "<b>" not in page
    assert "&lt;b&gt;" in page


def test_tables_take_any_name(tmp_path: Path) -> None:
    assert write_csv(tmp_path / "a.csv", []).read_text() == "\n"
    assert write_markdown(tmp_path / "a.md", []).is_file()
    assert write_json(tmp_path / "a.json", [], {"command": [os.fsdecode(b"\xff")]}).is_file()
    assert json.loads((tmp_path / "a.json").read_text())["environment"]["command"] == [os.fsdecode(b"\xff")]
