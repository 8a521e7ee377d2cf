"""Killed or asked to end, at a random moment or inside a write: nothing is lost, nothing half-written stays."""

from __future__ import annotations

from pathlib import Path

from campaign.nursery import born, program


def test_a_sample_of_the_moments(tmp_path: Path) -> None:
    """`python tests/hostile/kill.py --moments 200` takes many more; here the checkpoint's write and some by chance."""
    done = born(program, "hostile.kill", "--moments", "4", said=tmp_path / "said")
    code, told = done.end(), done.out.read_text()
    assert code == 0, told + done.err.read_text()
    assert "write .pt" in told
    assert told.count("as if nothing had begun") == 3
