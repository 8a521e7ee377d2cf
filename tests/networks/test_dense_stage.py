"""Dense unfolding: stages see the features of all stages before them."""

from __future__ import annotations

from pathlib import Path

import torch

from laws import close, uniform
from unsnap import GAP, Snapshot, Unfolded
from unsnap.models import load, save
from unsnap.networks import DenseStage


def made(seed: int = 0) -> DenseStage:
    torch.manual_seed(seed)
    net = DenseStage((3, 4, 5)).double()
    torch.nn.init.normal_(net.leave.weight, std=0.1)
    return net


@torch.no_grad()
def test_any_size_and_samples_apart() -> None:
    net = made()
    for shape in ((2, 1, 9, 7), (2, 3, 8, 8)):
        x, features = uniform(*shape, seed=1), None
        for _ in range(2):
            x, features = net(x, 0.1, features)
        alone, kept = net(*(uniform(*shape, seed=1)[1:], 0.1), None)
        close(net(alone, 0.1, kept)[0][0], x[1])


def test_the_last_stage_learns_from_features_of_the_first() -> None:
    phi, truth = Snapshot(uniform(2, 8, 8)), uniform(1, 2, 8, 8, seed=1)
    model = Unfolded(GAP(), [made(k) for k in range(3)], [0.01, 0.01, 0.01]).double()
    model(phi.A(truth), phi).x.square().sum().backward()
    missing = [n for n, p in model.networks.named_parameters() if p.grad is None or not bool((p.grad != 0).any())]
    # The first stage is passed nothing, and nobody takes what the last would keep.
    assert missing == ["0.keep", "0.passed.weight", "0.passed.bias", "2.keep"]


@torch.no_grad()
def test_untrained_it_begins_at_the_start_and_its_file_gives_the_same_video(tmp_path: Path) -> None:
    phi, y = Snapshot(uniform(2, 8, 8).float()), uniform(1, 8, 8, seed=1).float()
    close(Unfolded(GAP(), DenseStage((3, 4, 5)), [0.1, 0.1])(y, phi).x, phi.A_dagger(y), 1e-5)
    model = Unfolded(GAP(), [made(k).float() for k in range(2)], [0.1, 0.1])
    again = load(save(tmp_path / "m.safetensors", model))
    assert torch.equal(again(y, phi).x, model(y, phi).x)
