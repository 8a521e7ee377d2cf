"""Beginning with the weights of an earlier model, and the video that a model starts from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from runs import same, tiny
from torch import nn

from laws import close
from unsnap.algorithms import GAP, Recurrent
from unsnap.errors import InputError
from unsnap.masks import bernoulli
from unsnap.methods import METHODS
from unsnap.models import Annealed, Equilibrium, LowRank, Unfolded, save
from unsnap.networks import CNN, UNet, build
from unsnap.operators import Snapshot
from unsnap.simulate import render
from unsnap.training import Trainer, resume
from unsnap.training.initial import begin, begin_with

SMALL = {"channels": [4, 4, 4], "blocks": [1, 1, 1]}
SMALLEST = LowRank().smallest


def seeded_net(seed: int, name: str = "unet", **settings: Any) -> nn.Module:
    torch.manual_seed(seed)
    return build(name, {**SMALL, **settings})


@pytest.fixture
def denoiser(tmp_path: Path) -> Path:
    return save(tmp_path / "d.safetensors", Equilibrium(GAP(), seeded_net(7, context=False)))


def test_what_is_common_is_taken_and_the_rest_named(denoiser: Path) -> None:
    network = seeded_net(8)
    nn.init.normal_(network.get_parameter("context.weight"))
    before = network.state_dict()["context.weight"].clone()
    assert begin_with(Equilibrium(GAP(), network), str(denoiser)) == ["context.weight"]
    expected = seeded_net(7, context=False).state_dict()
    assert all(torch.equal(network.state_dict()[key], value) for key, value in expected.items())
    assert torch.equal(network.state_dict()["context.weight"], before)


@pytest.mark.parametrize("name", ["unet", "shift"])
def test_a_network_that_was_made_deeper_computes_what_it_did_and_learns(name: str, tmp_path: Path) -> None:
    before = seeded_net(7, name, context=False)
    path = save(tmp_path / "d.safetensors", Equilibrium(GAP(), before))
    deeper = seeded_net(8, name, context=False, blocks=[1, 2, 3])
    missing = begin_with(Equilibrium(GAP(), deeper), str(path))
    assert {key.rpartition(".")[0].rpartition(".")[0] for key in missing} == {
        "middle_in.1", "middle_out.1", "coarse.1", "coarse.2",
    }  # fmt: skip
    video = torch.rand(8, 16, 16, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(deeper(video, 0.1), before(video, 0.1), rtol=1e-5, atol=1e-5)
    deeper(video, 0.1).square().sum().backward()
    assert all(bool(deeper.get_parameter(key).grad.any()) for key in missing if "second" in key)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("name", "settings"),
    [("shift", {**SMALL, "context": False}), ("unet", {**SMALL, "context": False}), ("stage_unet", {"channels": 2}),
     ("full_unet", {"channels": 2}), ("frame_rnn", SMALL), ("shift", SMALL), ("rnn", {"channels": 2})],
)  # fmt: skip
def test_without_weights_training_begins_at_the_start(name: str, settings: dict[str, Any]) -> None:
    phi = Snapshot(bernoulli(8, 16, 16))
    y, truth = phi.A(render(8, 16, 16, seed=1)), render(8, 16, 16, seed=2)
    start = phi.project(truth, y)
    torch.manual_seed(0)
    model = Unfolded(Recurrent() if "rnn" in name else GAP(), build(name, settings), [0.1, 0.1])
    begin(model, None)
    close(model(y, phi, start=start).x.detach(), start, 1e-5)


def test_every_stage_begins_with_the_network_of_an_equilibrium(denoiser: Path) -> None:
    model = Unfolded(GAP(), [seeded_net(seed, context=False) for seed in (1, 2, 3)], [0.1] * 3)
    assert begin_with(model, str(denoiser)) == []
    expected = seeded_net(7, context=False).state_dict()
    assert all(same(network.state_dict(), expected) for network in model.networks)


def test_every_stage_begins_with_the_same_stage_of_an_unfolded_model(tmp_path: Path) -> None:
    torch.manual_seed(0)
    source = Unfolded(GAP(), [CNN(2, 4) for _ in range(2)], [0.1] * 2)
    path = str(save(tmp_path / "u.safetensors", source))
    model = Unfolded(GAP(), [CNN(2, 4) for _ in range(3)], [0.1] * 3)
    assert begin_with(model, path) == []
    for network, expected in zip(model.networks, (*source.networks, source.networks[1]), strict=True):
        assert same(network.state_dict(), expected.state_dict())
    single = Equilibrium(GAP(), CNN(2, 4))
    begin_with(single, path)
    assert same(single.network.state_dict(), source.networks[0].state_dict())


@pytest.mark.parametrize("kind", ["equilibrium", "unfolded"])
def test_a_run_begins_there_and_only_there(denoiser: Path, clips: Path, tmp_path: Path, kind: str) -> None:
    stages = {"kind": kind, "stages": 2, "gaussian": 0.0, "blend": 0.0}
    config = tiny(clips, network="unet", settings={**SMALL, "context": False}, init=str(denoiser), steps=2, **stages)
    run = Trainer(config, tmp_path / "run")
    expected = seeded_net(7, context=False).state_dict()
    networks = run.model.networks if isinstance(run.model, Unfolded) else [run.model.network]
    assert len(networks) == (2 if kind == "unfolded" else 1)
    assert all(same(network.state_dict(), expected) for network in networks)
    run.run()
    assert not any(torch.equal(network.enter.weight, expected["enter.weight"]) for network in networks)
    denoiser.unlink()
    again = resume(tmp_path / "run", more_steps=1)  # needs it no more
    assert same(again.model.state_dict(), run.model.state_dict())


def test_an_interrupted_run_that_starts_from_videos_ends_with_the_same_bits(clips: Path, tmp_path: Path) -> None:
    config = tiny(clips, start="low_rank", start_settings={"iterations": 2, "tv_iterations": 5}, steps=8)
    whole = Trainer(config, tmp_path / "whole")
    whole.run()

    def stop(facts: dict[str, Any]) -> None:
        if facts.get("step") == 5:
            part.stop()

    part = Trainer(config, tmp_path / "part", report=stop)
    part.run()
    assert part.step == 5
    rest = resume(tmp_path / "part")
    assert rest.pool.entries
    for entry in rest.pool.entries:
        close(entry.batch.start, LowRank(iterations=2, tv_iterations=5)(entry.batch.y, entry.batch.phi), 1e-6)
    rest.run()
    assert same(whole.state()["weights"], rest.state()["weights"])


def test_another_architecture_is_refused_in_one_sentence(denoiser: Path) -> None:
    with pytest.raises(InputError, match=r"no weights in common with this network .* begin with a model of the same"):
        begin_with(Equilibrium(GAP(), CNN(2, 4)), str(denoiser))
    with pytest.raises(InputError, match="there is no shipped model 'nobody'"):
        begin_with(Equilibrium(GAP(), seeded_net(0)), "nobody")
    with pytest.raises(InputError, match="gmm is a Gaussian mixture, which has no network"):
        begin_with(Equilibrium(GAP(), seeded_net(0)), "gmm")


@pytest.mark.parametrize("side", [SMALLEST - 1, SMALLEST, 24])
def test_the_start_is_the_low_rank_video_where_patches_fit(side: int) -> None:
    video = render(4, 32, 32, seed=3)[:, :side, :side].contiguous()
    phi = Snapshot(bernoulli(4, side, side, generator=torch.Generator().manual_seed(0)))
    y = phi.A(video)
    name = "gap-wnnm" if side >= SMALLEST else "gap-tv3d"
    close(Annealed()(y, phi), METHODS[name](y, phi).x)


@torch.no_grad()
def test_a_known_start_changes_nothing_and_an_untrained_model_rests_near_it() -> None:
    video = render(8, 32, 32, seed=3)
    phi = Snapshot(bernoulli(8, 32, 32, generator=torch.Generator().manual_seed(0)))
    y = phi.A(video)[None]
    torch.manual_seed(0)
    network = UNet((4, 4, 4), (1, 1, 1))
    for part in (network.leave.weight, network.leave.bias):
        part.zero_()
    model = Equilibrium(GAP(), network, start=LowRank(), tol=1e-5)
    known = model.started(y, phi)
    first, second = model(y, phi), model(y, phi, start=known)
    assert torch.equal(first.x, second.x)
    assert bool(first.converged)
    # Φx = (Φx + (y - Φx) + Φs) / 2 at rest: half-way between the measurement and what the start would measure.
    close(phi.A(first.x), (y + phi.A(known)) / 2, 1e-3)
