"""TensorBoard is told everything, if asked and if it is there."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from runs import tiny

from unsnap.errors import InputError
from unsnap.training import Trainer, resume
from unsnap.training.log import picture


class Writer:
    """Remembers what it is told."""

    def __init__(self, folder: str, purge_step: int) -> None:
        self.folder, self.purge_step = folder, purge_step
        self.scalars: dict[str, list[int]] = {}
        self.pictures: list[torch.Tensor] = []
        self.closed = False

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self.scalars.setdefault(name, []).append(step)

    def add_image(self, name: str, image: torch.Tensor, step: int, dataformats: str) -> None:
        assert dataformats == "HW"
        self.pictures.append(image)

    def flush(self) -> None: ...

    def close(self) -> None:
        self.closed = True


def test_curves_and_pictures(tmp_path: Path, clips: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake: Any = ModuleType("torch.utils.tensorboard")
    fake.SummaryWriter = Writer
    monkeypatch.setitem(sys.modules, fake.__name__, fake)
    run = Trainer(tiny(clips, steps=20, validate_every=10), tmp_path, tensorboard=True)
    run.run()
    writer = run.log.board
    assert writer.folder == str(tmp_path / "tensorboard")
    assert writer.scalars["train/loss"] == writer.scalars["train/rate"] == [10, 20]
    assert writer.scalars["validation/psnr_fixed"] == [10, 20]
    assert [p.shape for p in writer.pictures] == [(40, 80)] * 2
    assert writer.closed
    assert resume(tmp_path, tensorboard=True).log.board.purge_step == 21


def test_without_tensorboard(tmp_path: Path, clips: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(InputError, match=r"pip install 'unsnap\[train\]'"):
        Trainer(tiny(clips), tmp_path / "run", tensorboard=True)
    assert not (tmp_path / "run").exists()


def test_the_picture_is_truth_beside_reconstruction(tmp_path: Path, clips: Path) -> None:
    run = Trainer(tiny(clips), tmp_path)
    image = picture(run.mean, run.views)
    assert torch.equal(image[:40, :40], run.views.truth[0, 0])
    assert not torch.equal(image[:40, 40:], image[:40, :40])
    assert float(image.min()) >= 0
    assert float(image.max()) <= 1
