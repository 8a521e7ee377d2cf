"""Unfolded models train, go on, are judged, written and used like equilibria."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from runs import finished, lasting, resumed, same

from unsnap.algorithms import GAP
from unsnap.models import LeastSquares, Unfolded, load
from unsnap.run import reconstruct
from unsnap.training import Config, Trainer, preset
from unsnap.training.validate import validate


def small(clips: Path, **changes: Any) -> Config:
    size = {"settings": {"layers": 3, "channels": 8}, "stages": 3, "batch": 4, "crop": 24, "frames": (8,), "pool": 4}
    pace = {"steps": 30, "warmup": 5, "rate": 5e-3, "noise": 0.02, "checkpoint_every": 4}
    return preset("gap-net", "cnn", clips=str(clips), **{**size, **pace, **changes})


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, clips: Path) -> Trainer:
    return finished(small(clips), tmp_path_factory.mktemp("whole"))


def test_it_learns_and_is_judged_by_what_it_gives(whole: Trainer, clips: Path, tmp_path: Path) -> None:
    before = validate(Trainer(small(clips), tmp_path).mean, whole.views)
    (after,) = whole.log.lines
    assert set(before) == {"psnr_start", "psnr_fixed"} == set(after) - {"step", "minutes", "skipped", "cpu_hours"}
    assert after["psnr_start"] == before["psnr_start"]
    assert after["psnr_fixed"] > before["psnr_fixed"] + 5
    assert whole.best == after["psnr_fixed"]
    assert whole.skipped == 0


def test_its_file_gives_the_videos_that_were_judged(whole: Trainer) -> None:
    model = load(whole.folder / "best.safetensors")
    assert isinstance(model, Unfolded)
    assert (model.iteration, model.start, model.stages, len(model.networks)) == (GAP(), LeastSquares(), 3, 3)
    assert same(model.state_dict(), whole.mean.state_dict())
    assert model.about["psnr_fixed"] == whole.best
    views = whole.views
    with torch.no_grad():
        expected = whole.mean(views.y, views.phi).x
    solution = reconstruct(views.y, views.phi, whole.folder / "best.safetensors")
    assert torch.equal(solution.x, expected)
    assert bool(solution.converged.all())
    error = (solution.x.clamp(0, 1) - views.truth).square().mean((-2, -1))
    assert float((-10 * error.log10()).mean()) == pytest.approx(whole.best, abs=1e-3)


@pytest.mark.parametrize("stop", [3, 17])
def test_resuming_is_bit_identical(whole: Trainer, clips: Path, tmp_path: Path, stop: int) -> None:
    assert same(lasting(resumed(small(clips), tmp_path, stop).state()), lasting(whole.state()))


def test_shared_weights_are_one_network_and_other_weights(clips: Path, tmp_path: Path) -> None:
    run = Trainer(small(clips, shared=True, steps=2), tmp_path)
    best = run.run()
    model = load(best)
    assert isinstance(model, Unfolded)
    assert (model.stages, len(model.networks)) == (3, 1)
    with torch.no_grad():
        assert torch.equal(model(run.views.y, run.views.phi).x, run.mean(run.views.y, run.views.phi).x)
