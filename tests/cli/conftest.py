"""Small scene files for the command line to work on."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import torch
import typer.testing
from typer.testing import CliRunner, Result

from training.conftest import short_validation
from unsnap.cli.app import app
from unsnap.masks import bernoulli
from unsnap.simulate import render

__all__ = ["short_validation"]
FRAMES, HEIGHT, WIDTH = 4, 40, 48

# The parser is built once, not for every command that is run: it takes longer than most of them.
typer.testing._get_command = functools.cache(typer.testing._get_command)


class Outcome:
    """Exit code, stdout and stderr of one command."""

    def __init__(self, result: Result) -> None:
        self.code, self.out, self.err = result.exit_code, result.stdout, result.stderr

    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def unsnap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """Run `unsnap ARGS` in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return lambda *args: Outcome(CliRunner().invoke(app, [str(a) for a in args], catch_exceptions=False))


@pytest.fixture(scope="session")
def arrays() -> dict[str, np.ndarray]:
    """A field-style file: H×W×T, 0–255 truth for the first of two snapshots."""
    masks = bernoulli(FRAMES, HEIGHT, WIDTH, generator=torch.Generator().manual_seed(0))
    video = (render(2 * FRAMES, HEIGHT, WIDTH, seed=1) * 255).round().reshape(2, FRAMES, HEIGHT, WIDTH)
    meas = (masks * video).sum(1)
    return {
        "mask": masks.permute(1, 2, 0).numpy().astype(np.uint8),
        "meas": meas.permute(1, 2, 0).numpy().astype(np.float64),
        "orig": video[0].permute(1, 2, 0).numpy().astype(np.uint8),
    }


@pytest.fixture
def scene(tmp_path: Path, arrays: dict[str, np.ndarray]) -> Path:
    path = tmp_path / "scene.mat"
    scipy.io.savemat(path, arrays)
    return path


@pytest.fixture(scope="session")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of two small videos and a broken one."""
    folder = tmp_path_factory.mktemp("clips")
    for seed in range(2):
        np.savez(folder / f"{seed}.npz", frames=(render(8, 32, 32, seed=seed).numpy() * 255).astype(np.uint8))
    (folder / "broken.gif").write_bytes(b"GIF89a")
    return folder
