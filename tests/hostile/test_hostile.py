"""Every attack on every format against the whole promise, once; `make fuzz` goes on from there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts memory in /proc")
def test_hostile_files_get_one_sentence(tmp_path: Path) -> None:
    """In a process of its own, which may fork: it limits memory and time, and prints the table (pytest -s)."""
    paths = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "hostile.fuzz", "--once", "--cases", "3000", "--findings", str(tmp_path / "found")]
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "UNSNAP_HOSTILE_PATIENCE": "10"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
