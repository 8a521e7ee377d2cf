"""Killed or asked to end, at a random moment or inside a write: nothing is lost, nothing half-written stays."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

KILL = Path(__file__).with_name("kill.py")


def test_a_sample_of_the_moments() -> None:
    """`python tests/hostile/kill.py --moments 200` takes many more; here the checkpoint's write and some by chance."""
    done = subprocess.run(
        [sys.executable, KILL, "--moments", "4"],
        env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "write .pt" in done.stdout
    assert done.stdout.count("as if nothing had begun") == 3
