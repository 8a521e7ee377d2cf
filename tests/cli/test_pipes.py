"""A pipe, whose reader waits for ever, is refused as every input."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from unsnap.cli.app import app


@pytest.mark.parametrize(
    "command",
    [
        "inspect PIPE.mat",
        "inspect scene.npz --masks PIPE.tif",
        "inspect scene.npz --plugin PIPE.py",
        "reconstruct scene.npz -m PIPE.safetensors",
        "simulate PIPE.mp4 -o out.npz",
        "import PIPE.ckpt -o out.safetensors",
        "certify PIPE.safetensors",
        "train --config PIPE.json",
        "train --resume PIPE.pt",
        "train --init PIPE.safetensors",
    ],
)
def test_pipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("scene.npz", meas=np.ones((16, 16)), mask=np.ones((2, 16, 16)))
    (pipe,) = (word for word in command.split() if word.startswith("PIPE"))
    os.mkfifo(pipe)
    result = CliRunner().invoke(app, command.split())
    assert result.exit_code == 2
    assert pipe in result.output


def test_memory_is_an_option_of_every_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("scene.npz", meas=np.ones((16, 16)), mask=np.ones((2, 16, 16)))
    for command in ("inspect scene.npz", "reconstruct scene.npz -m gap-tv -o out.npz", "bench scene.npz"):
        result = CliRunner().invoke(app, [*command.split(), "--memory", "1K"])
        assert result.exit_code == 2
        assert "would need" in result.output
        assert "--memory" in result.output
    result = CliRunner().invoke(app, ["inspect", "scene.npz", "--memory", "much"])
    assert (result.exit_code, "512M or 2G" in result.output) == (2, True)
