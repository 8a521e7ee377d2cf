"""Beginning with the weights of an earlier model, and the guess that a model starts from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from runs import same, tiny
from unsnap.networks.context import SMALLEST, guess

from laws import close
from unsnap.errors import InputError
from unsnap.masks import bernoulli
from unsnap.methods import METHODS
from unsnap.models.equilibrium import Equilibrium
from unsnap.models.file import Recipe, save_model
from unsnap.networks import UNet, build
from unsnap.operators import Snapshot
from unsnap.simulate import render
from unsnap.training import Trainer, resume
from unsnap.training.initial import begin_with

SMALL = {"channels": [4, 4, 4], "blocks": [1, 1, 1]}


@pytest.fixture
def denoiser(tmp_path: Path) -> Path:
    torch.manual_seed(7)
    settings = {**SMALL, "look": False}
    return save_model(tmp_path / "d.safetensors", Recipe("unet", settings), build("unet", settings).state_dict())


def test_what_is_common_is_taken_and_the_rest_named(denoiser: Path) -> None:
    torch.manual_seed(8)
    network = build("unet", SMALL)
    before = network.state_dict()["look.weight"].clone()
    assert begin_with(network, str(denoiser)) == ["look.weight"]
    torch.manual_seed(7)
    expected = build("unet", {**SMALL, "look": False}).state_dict()
    assert all(torch.equal(network.state_dict()[key], value) for key, value in expected.items())
    assert torch.equal(network.state_dict()["look.weight"], before)


def test_a_run_begins_there_and_only_there(denoiser: Path, clips: Path, tmp_path: Path) -> None:
    config = tiny(clips, network="unet", settings=SMALL, init=str(denoiser), steps=2)
    run = Trainer(config, tmp_path / "run")
    torch.manual_seed(7)
    expected = build("unet", {**SMALL, "look": False}).state_dict()
    assert all(torch.equal(run.model.network.state_dict()[key], value) for key, value in expected.items())
    run.run()
    assert not torch.equal(run.model.network.enter.weight, expected["enter.weight"])


def test_an_interrupted_run_that_starts_from_guesses_ends_with_the_same_bits(clips: Path, tmp_path: Path) -> None:
    config = tiny(clips, start="guess", steps=8)
    whole = Trainer(config, tmp_path / "whole")
    whole.run()

    def stop(facts: dict[str, Any]) -> None:
        if facts.get("step") == 5:
            part.stop()

    part = Trainer(config, tmp_path / "part", report=stop)
    part.run()
    assert part.step == 5
    rest = resume(tmp_path / "part")
    assert any(entry.coded.guessed is not None for entry in rest.pool.entries)
    rest.run()
    assert same(whole.state()["weights"], rest.state()["weights"])


def test_another_architecture_is_refused_in_one_sentence(denoiser: Path) -> None:
    with pytest.raises(InputError, match=r"no weights in common with this network .* begin with a model of the same"):
        begin_with(build("cnn", {"layers": 2, "channels": 4}), str(denoiser))
    with pytest.raises(InputError, match="there is no shipped model 'nobody'"):
        begin_with(build("unet", SMALL), "nobody")


@pytest.mark.parametrize("side", [SMALLEST - 1, SMALLEST, 24])
def test_the_guess_is_the_low_rank_video_where_patches_fit(side: int) -> None:
    video = render(4, 32, 32, seed=3)[:, :side, :side].contiguous()
    phi = Snapshot(bernoulli(4, side, side, generator=torch.Generator().manual_seed(0)))
    y = phi.A(video)
    name = "gap-wnnm" if side >= SMALLEST else "gap-tv3d"
    close(guess(y, phi), METHODS[name](y, phi).x)


@torch.no_grad()
def test_a_known_guess_changes_nothing_and_an_untrained_model_rests_near_it() -> None:
    video = render(8, 32, 32, seed=3)
    phi = Snapshot(bernoulli(8, 32, 32, generator=torch.Generator().manual_seed(0)))
    y = phi.A(video)[None]
    torch.manual_seed(0)
    network = UNet((4, 4, 4), (1, 1, 1))
    for part in (network.leave.weight, network.leave.bias):
        part.zero_()
    model = Equilibrium(GAP(), network, start=guess, tol=1e-5)
    known = model.guess(y, phi)
    assert known is not None
    first, second = model(y, phi), model(y, phi, guessed=known)
    assert torch.equal(first.x, second.x)
    assert bool(first.converged)
    # Φx = (Φx + (y - Φx) + Φg) / 2 at rest: half-way between the measurement and what the guess would measure.
    close(phi.A(first.x), (y + phi.A(known)) / 2, 1e-3)
    assert Equilibrium(GAP(), network).guess(y, phi) is None
