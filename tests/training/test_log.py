"""TensorBoard is told everything, if asked and if it is there."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest
import torch
from runs import tiny

from unsnap.errors import InputError
from unsnap.training import Trainer, resume
from unsnap.training.log import gain_per_hour, picture


def test_curves_and_pictures_can_be_read_back(tmp_path: Path, clips: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    Trainer(tiny(clips, steps=20, validate_every=10), tmp_path, tensorboard=True).run()
    resume(tmp_path, more_steps=10, tensorboard=True).run()
    board = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    for name in ("train/loss", "train/rate", "validation/psnr_fixed"):
        assert [event.step for event in board.Scalars(name)] == [10, 20, 30]
    shapes = [(image.step, image.height, image.width) for image in board.Images("validation/picture")]
    assert shapes == [(10, 16, 32), (20, 16, 32), (30, 16, 32)]


def test_without_tensorboard(tmp_path: Path, clips: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(InputError, match=r"pip install 'unsnap\[train\]'"):
        Trainer(tiny(clips), tmp_path / "run", tensorboard=True)
    assert not (tmp_path / "run").exists()


def test_the_picture_is_truth_beside_reconstruction(tmp_path: Path, clips: Path) -> None:
    run = Trainer(tiny(clips), tmp_path)
    image = picture(run.mean, run.views)
    assert torch.equal(image[:16, :16], run.views.truth[0, 0])
    assert not torch.equal(image[:16, 16:], image[:16, :16])
    assert float(image.min()) >= 0
    assert float(image.max()) <= 1


def test_the_gain_of_a_further_hour_is_read_off_a_logarithmic_curve() -> None:
    lines = [{"step": k, "cpu_hours": 0.5 * k, "psnr_fixed": 25 + 0.7 * math.log(0.5 * k)} for k in range(1, 9)]
    assert gain_per_hour(lines) == pytest.approx(0.7 * math.log(5 / 4))
    assert gain_per_hour(lines[:2]) is None
    assert gain_per_hour([{"step": k, "psnr_fixed": 1.0} for k in range(5)]) is None
