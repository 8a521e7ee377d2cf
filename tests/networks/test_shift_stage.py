"""Our stage: a ShiftUNet at first, then told of the snapshot and of what the stage before has seen."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from laws import close, normal, seeded, uniform
from unsnap import Snapshot, Unfolded
from unsnap.algorithms import AcceleratedGAP
from unsnap.models import load, save
from unsnap.networks import Capture, ShiftStage, ShiftUNet
from unsnap.training.initial import begin_with

SIZES = {"channels": (3, 4, 5), "blocks": (1, 2, 1)}


def made(seed: int = 0) -> ShiftStage:
    torch.manual_seed(seed)
    net = ShiftStage(**SIZES).double()
    with torch.no_grad():
        for part in (net.context, *net.passed):
            part.weight.normal_(0, 0.3, generator=seeded(seed))
        net.leave.weight.mul_(5)
    return net


def test_it_begins_with_the_weights_of_a_shift_unet_and_computes_what_that_does(tmp_path: Path) -> None:
    torch.manual_seed(1)
    plain = Unfolded(AcceleratedGAP(), [ShiftUNet(**SIZES, context=False) for _ in range(2)], [0.1, 0.05])
    model = Unfolded(AcceleratedGAP(), [ShiftStage(**SIZES) for _ in range(3)], [0.1, 0.05, 0.05])
    new = begin_with(model, str(save(tmp_path / "plain.safetensors", plain)))
    assert {name.partition(".")[0] for name in new} == {"context", "passed"}
    phi, y = Snapshot(uniform(3, 10, 7).float()), uniform(2, 10, 7, seed=1).float()
    with torch.no_grad():
        close(model(y, phi, stages=2).x, plain(y, phi).x, 1e-5)


@pytest.mark.parametrize("shape", [(2, 1, 9, 7), (3, 3, 8, 8), (2, 8, 16, 3)])
@torch.no_grad()
def test_any_size_and_samples_apart(shape: tuple[int, ...]) -> None:
    net, x = made(), uniform(*shape, seed=1)
    phi = Snapshot(uniform(*shape, seed=2))  # each sample its own masks
    capture = Capture(phi.A(x), phi, x)

    def twice(x: Tensor, capture: Capture) -> Tensor:
        stage = net.condition(capture)
        first, features = stage(x, 0.1, None)
        return stage(first, 0.1, features)[0]

    together = twice(x, capture)
    assert together.shape == x.shape
    assert bool(((together - x).abs().amax((-2, -1)) > 1e-4).all()), "every frame is worked on"
    close(twice(x[1:], capture.select(slice(1, None))), together[1:])


def test_every_weight_is_learned_but_those_that_have_nothing_to_take() -> None:
    phi, truth = Snapshot(uniform(2, 8, 8)), uniform(1, 2, 8, 8, seed=1)
    model = Unfolded(AcceleratedGAP(), [made(k) for k in range(3)], [0.01, 0.01, 0.01]).double()
    noisy = phi.A(truth) + 0.1 * normal(1, 8, 8)
    model(noisy, phi).x.square().sum().backward()
    missing = {n for n, p in model.networks.named_parameters() if p.grad is None or not bool((p.grad != 0).any())}
    assert missing == {f"0.passed.{k}.weight" for k in range(3)}, "the first stage is passed nothing"


@torch.no_grad()
def test_the_stages_are_told_the_masks_the_picture_its_noise_and_the_features() -> None:
    net, x = made(), uniform(1, 2, 8, 8)
    phi, other = Snapshot(uniform(2, 8, 8, seed=1)), Snapshot(uniform(2, 8, 8, seed=2))
    y = phi.A(x)

    def seen(y: Tensor, phi: Snapshot, features: object = None) -> Tensor:
        video: Tensor = net.condition(Capture(y, phi, x))(x, 0.1, features)[0]
        return video

    usual = seen(y, phi)
    passed = net(x, 0.1, None)[1]
    for changed in (seen(y, other), seen(y + 0.1 * normal(1, 8, 8), phi), seen(y, phi, passed), net(x, 0.1, None)[0]):
        assert float((changed - usual).abs().max()) > 1e-4
    close(seen(y, Snapshot(phi.masks)), usual)
    scaled = Snapshot(255 * phi.masks)
    close(seen(255 * y, scaled), usual)  # masks in other units are the same masks


@torch.no_grad()
def test_a_file_gives_the_same_video(tmp_path: Path) -> None:
    phi, y = Snapshot(uniform(2, 8, 8).float()), uniform(1, 8, 8, seed=1).float()
    model = Unfolded(AcceleratedGAP(), [made(k).float() for k in range(2)], [0.1, 0.1])
    again = load(save(tmp_path / "m.safetensors", model))
    assert torch.equal(again(y, phi).x, model(y, phi).x)
