"""Every attack on every format against the whole promise, once; `make fuzz` goes on from there."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from campaign.nursery import born, program


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts memory in /proc")
def test_hostile_files_get_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a process of its own, which may fork: it limits memory and time, and prints the table (pytest -s)."""
    monkeypatch.chdir(tmp_path)
    words = ("hostile.fuzz", "--once", "--cases", "3000", "--findings", str(tmp_path / "found"))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "UNSNAP_HOSTILE_PATIENCE": "10"}
    done = born(program, *words, said=tmp_path / "said", environment=environment)
    code = done.end()
    print(done.out.read_text())
    assert code == 0, done.out.read_text() + done.err.read_text()
    assert " cases per second" in done.out.read_text()
