"""The last resort: what is unforeseen, and what happens to what was to be printed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PRINTS = "from unsnap.cli.last_resort import last_resort\nwith last_resort():\n    print('x' * 100_000, flush=True)\n"
RAISES = "from unsnap.cli.last_resort import last_resort\nwith last_resort():\n    raise KeyError('a\\nb\\x1b[2J')\n"
LEAVES = "from unsnap.cli.last_resort import last_resort\nwith last_resort():\n    raise SystemExit(3)\n"


def start(code: str, tmp_path: Path, **streams: int) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    return subprocess.run(
        [sys.executable, "-c", code], check=False, text=True, env=environment, **{"stderr": subprocess.PIPE, **streams}
    )


def is_one_sentence(text: str) -> bool:
    return text.startswith("Error: ") and text.count("\n") == 1


def test_an_unforeseen_exception_is_one_sentence_and_a_log(tmp_path: Path) -> None:
    run = start(RAISES, tmp_path)
    assert run.returncode == 70
    assert is_one_sentence(run.stderr)
    assert "please report" in run.stderr
    (log,) = tmp_path.iterdir()
    assert str(log) in run.stderr
    assert "Traceback" in log.read_text()


def test_other_exits_are_left_alone(tmp_path: Path) -> None:
    assert start(LEAVES, tmp_path).returncode == 3


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_stdout_is_one_sentence(tmp_path: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        run = start(PRINTS, tmp_path, stdout=full.fileno())
        assert run.returncode == 74
        assert is_one_sentence(run.stderr)
        assert start(RAISES, tmp_path, stderr=full.fileno()).returncode == 70


def test_a_reader_that_has_left_is_one_sentence(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    run = start(PRINTS, tmp_path, stdout=writer)
    os.close(writer)
    assert run.returncode == 74
    assert is_one_sentence(run.stderr)


@pytest.mark.skipif(os.name == "nt", reason="needs a shell")
def test_a_closed_stdout_is_one_sentence(tmp_path: Path) -> None:
    script = tmp_path / "prints.py"
    script.write_text(PRINTS)
    run = subprocess.run(["sh", "-c", f"{sys.executable} {script} >&-"], check=False, text=True, stderr=subprocess.PIPE)
    assert run.returncode == 74
    assert is_one_sentence(run.stderr)
