"""Killed or asked to end, at a random moment or inside a write: nothing is lost, nothing half-written stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from unsnap.io import save_scene
from unsnap.masks import bernoulli
from unsnap.simulate import render, simulate

HERE = Path(__file__).parent
QUIET = {**os.environ, "OMP_NUM_THREADS": "1"}


def test_a_sample_of_the_moments() -> None:
    """`python tests/hostile/kill.py --moments 200` takes many more; here the checkpoint's write and some by chance."""
    done = subprocess.run(
        [sys.executable, HERE / "kill.py", "--moments", "6"], env=QUIET, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "write .pt" in done.stdout


def heed() -> None:
    """As in a terminal; the parent may ignore Ctrl-C, as background jobs do."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def nohup() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


@pytest.mark.parametrize(
    ("sent", "begin", "code"),
    [
        ([signal.SIGINT], heed, 130),
        ([signal.SIGHUP, signal.SIGHUP], None, 129),  # a closing terminal sends two
        ([signal.SIGHUP, signal.SIGTERM], nohup, 143),
    ],
)
def test_a_signal_inside_a_write_leaves_nothing(tmp_path: Path, sent: list[int], begin: object, code: int) -> None:
    generator = torch.Generator().manual_seed(0)
    masks = bernoulli(2, 32, 32, generator=generator)
    save_scene(tmp_path / "scene.npz", simulate(render(2, 32, 32, seed=0), masks, generator=generator))
    command = ["-m", "unsnap", "reconstruct", "scene.npz", "-m", "gap-tv", "--tol", "1", "-o", "new/video.npy"]
    pause = {**QUIET, "PAUSE": f"sync .npy 1 {tmp_path / 'mark'}"}
    with subprocess.Popen(
        [sys.executable, *command, "--plugin", str(HERE / "pause.py")],
        env=pause, cwd=tmp_path, preexec_fn=begin, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        while not (tmp_path / "mark").exists():
            assert process.poll() is None
            time.sleep(0.01)
        assert list((tmp_path / "new").glob(".unsnap-*")), "it is inside"
        for number in sent:
            process.send_signal(number)
            time.sleep(0.05)
        _, said = process.communicate(timeout=60)
    assert process.returncode == code
    assert "Traceback" not in said
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mark", "scene.npz"]
