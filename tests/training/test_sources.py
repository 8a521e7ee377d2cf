"""A plug-in's videos and losses: trained with, resumed with, and refused in one sentence."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from runs import tiny

from unsnap.errors import InputError
from unsnap.training import DATASETS, LOSSES, Trainer, resume
from unsnap.training.sources import Checked, known

PLUGIN = """
import torch

class Ramp:
    def __init__(self, folder):
        self.folder = folder
        self.level = float(folder or 0.5)

    def draw(self, batch, frames, size, generator):
        slope = torch.rand(batch, frames, 1, 1, generator=generator) * torch.linspace(0, 1, size)
        return (self.level * slope).expand(batch, frames, size, size)

def absolute(x, truth):
    return (x - truth).abs().mean()
"""


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    path = tmp_path / "ramps.py"
    path.write_text(PLUGIN)
    return path


def test_train_and_resume_with_them(plugin: Path, tmp_path: Path) -> None:
    dataset, loss = known(DATASETS, f"{plugin}:Ramp"), known(LOSSES, f"{plugin}:absolute")
    config = tiny(Path("0.25"), dataset=dataset, loss=loss, gaussian=0.0, blend=0.0, steps=4)
    trainer = Trainer(config, tmp_path / "run")
    assert float(trainer.views.truth.max()) == pytest.approx(0.25, abs=0.15)
    assert trainer.run().is_file()
    value = trainer._learned(trainer.pool.entries[0].batch, trainer._learning(0.0, torch.Size((1,)))).value
    x = trainer.pool.entries[0].batch
    assert 0 < float(value.detach()) < 0.25, "the mean absolute error is no logarithm"
    assert float(x.truth.max()) <= 0.25
    again = resume(tmp_path / "run", more_steps=2)
    again.run()
    assert (again.step, again.config.loss) == (6, loss)


def test_a_checkpoint_loads_no_code(plugin: Path, clips: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"dataset .* is not known"):
        Trainer(tiny(clips, dataset=f"{plugin}:Other"), tmp_path / "run")
    with pytest.raises(InputError, match="loss 'none' is not known"):
        Trainer(tiny(clips, loss="none"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("draw", "words"),
    [
        (lambda *a: torch.zeros(1, 2, 3), "must draw \\(1, 2, 4, 4\\), got \\(1, 2, 3\\)"),
        (lambda *a: "video", "got 'video'"),
        (lambda *a: torch.full((1, 2, 4, 4), 255.0), "values in \\[0, 1\\]"),
        (lambda *a: torch.full((1, 2, 4, 4), math.nan), "values in \\[0, 1\\]"),
    ],
)
def test_wrong_videos(draw: Callable, words: str) -> None:
    class Videos:
        pass

    with pytest.raises(InputError, match="must have a method draw"):
        Checked(Videos(), "mine")  # type: ignore[arg-type]
    Videos.draw = lambda self, *a: draw(*a)  # type: ignore[attr-defined]
    with pytest.raises(InputError, match=words):
        Checked(Videos(), "mine").draw(1, 2, 4, torch.Generator())


def test_names_that_lead_nowhere(plugin: Path) -> None:
    with pytest.raises(InputError, match="has no 'Nothing' that can be called"):
        known(DATASETS, f"{plugin}:Nothing")
    with pytest.raises(InputError, match=r"cannot be loaded|is not a file"):
        known(LOSSES, "no_such_module_anywhere:loss")


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (lambda x, truth: (x - truth).square().mean((1, 2, 3)), r"one finite number .* got shape \(2,\)"),
        (lambda x, truth: (x - truth).detach().mean(), "got a number without a gradient"),
        (lambda x, truth: x.mean() * math.nan, "got nan for a grey"),
        (lambda x, truth: 1.0, "got float"),
        (lambda x: x.mean(), "fails with TypeError"),
    ],
)
def test_wrong_losses(loss: Callable, words: str, clips: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LOSSES, "mine", loss)
    with pytest.raises(InputError, match=f"the loss 'mine' must .*{words}"):
        Trainer(tiny(clips, loss="mine"), tmp_path / "run")
    assert not (tmp_path / "run").exists()
