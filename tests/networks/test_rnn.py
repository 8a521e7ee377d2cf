"""The recurrence over frames: any T, any masks, both directions."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from laws import close, normal, right_gradients, uniform
from unsnap.networks import BidirectionalRNN, Capture
from unsnap.operators import Snapshot


def made() -> BidirectionalRNN:
    torch.manual_seed(0)
    net = BidirectionalRNN(channels=5).double()
    with torch.no_grad():
        net.leave.weight.mul_(10)
    return net


def capture(y: Tensor, masks: Tensor) -> Capture:
    """Snapshots (B, H, W), from the least-squares video."""
    phi = Snapshot(masks)
    return Capture(y, phi, phi.A_dagger(y))


@pytest.mark.parametrize("frames", [1, 2, 5])
@torch.no_grad()
def test_any_number_of_frames_and_samples(frames: int) -> None:
    net, masks = made(), uniform(frames, 5, 7)
    x, y = uniform(2, frames, 5, 7, seed=1), uniform(2, 5, 7, seed=2)
    out = net(x, capture(y, masks))
    assert out.shape == x.shape
    assert float((out - Snapshot(masks).project(x, y)).norm()) > 1e-3
    for n in range(2):
        close(net(x[n : n + 1], capture(y[n : n + 1], masks))[0], out[n])


@torch.no_grad()
def test_masks_of_each_sample() -> None:
    net, masks, x, y = made(), uniform(2, 3, 5, 7), uniform(2, 3, 5, 7, seed=1), uniform(2, 5, 7, seed=2)
    out = net(x, capture(y, masks))
    for n in range(2):
        close(out[n], net(x[n : n + 1], capture(y[n : n + 1], masks[n]))[0])


@torch.no_grad()
def test_the_scale_of_the_masks_cancels() -> None:
    net, masks, x, y = made(), uniform(3, 5, 7), uniform(1, 3, 5, 7, seed=1), uniform(1, 5, 7, seed=2)
    close(net(x, capture(255 * y, 255 * masks)), net(x, capture(y, masks)), 1e-10)


@pytest.mark.parametrize("kind", ["zero", "cancelling"])
@torch.no_grad()
def test_dark_pixels_stay_finite(kind: str) -> None:
    masks = (
        torch.zeros(2, 4, 4).double() if kind == "zero" else torch.stack([torch.ones(4, 4), -torch.ones(4, 4)]).double()
    )
    out = made()(uniform(1, 2, 4, 4), capture(uniform(1, 4, 4), masks))
    assert bool(torch.isfinite(out).all())


@torch.no_grad()
def test_information_travels_both_ways_through_time() -> None:
    net, x = made(), uniform(1, 5, 6, 6)
    dark = capture(torch.zeros(1, 6, 6).double(), torch.zeros(5, 6, 6).double())
    for t in (0, 2, 4):
        changed = x.clone()
        changed[:, t] += 0.5
        moved = (net(changed, dark) - net(x, dark)).abs().amax((-2, -1))
        assert bool((moved > 1e-12).all()), "every frame depends on every other"


@torch.no_grad()
def test_the_start_is_seen() -> None:
    net, phi, x, y = made(), Snapshot(uniform(3, 5, 7)), uniform(1, 3, 5, 7), uniform(1, 5, 7, seed=1)
    starts = [uniform(1, 3, 5, 7, seed=k) for k in (2, 3)]
    first, second = (net(x, Capture(y, phi, start)) for start in starts)
    assert float((first - second - (starts[0] - starts[1]) / 2).norm()) > 1e-3, "by more than the middle it adds to"


def test_gradients_are_right() -> None:
    net, seen = made(), capture(uniform(1, 3, 3, seed=2), uniform(3, 3, 3))
    right_gradients(net, lambda x: net(x, seen), uniform(1, 3, 3, 3, seed=1))


@torch.no_grad()
def test_untrained_it_stays_near_the_middle_of_start_and_projection() -> None:
    torch.manual_seed(0)
    net, phi = BidirectionalRNN(), Snapshot(uniform(4, 8, 8).float())
    x, y, start = normal(1, 4, 8, 8).float(), normal(1, 8, 8).float(), normal(1, 4, 8, 8, seed=1).float()
    middle = (start + phi.project(x, y)) / 2
    assert (net(x, Capture(y, phi, start)) - middle).norm() < 0.2 * x.norm()
