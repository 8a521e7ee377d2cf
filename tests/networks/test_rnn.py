"""The recurrence over frames: any T, any masks, both directions."""

from __future__ import annotations

import pytest
import torch
from unsnap.networks.context import guess

from laws import close, normal, uniform
from unsnap.networks import BidirectionalRNN
from unsnap.operators import Snapshot


def made() -> BidirectionalRNN:
    torch.manual_seed(0)
    net = BidirectionalRNN(channels=5).double()
    with torch.no_grad():
        net.leave.weight.mul_(10)
    return net


@pytest.mark.parametrize("frames", [1, 2, 5])
@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
@torch.no_grad()
def test_any_number_of_frames_and_samples(frames: int, batch: tuple[int, ...]) -> None:
    net, phi = made(), Snapshot(uniform(frames, 5, 7))
    x, y = uniform(*batch, frames, 5, 7, seed=1), uniform(*batch, 5, 7, seed=2)
    out = net(x, y, phi)
    assert out.shape == x.shape
    assert float((out - phi.project(x, y)).norm()) > 1e-3
    if batch == (2,):
        for n in range(2):
            close(net(x[n], y[n], phi), out[n])


@torch.no_grad()
def test_masks_of_each_sample() -> None:
    net, masks, x, y = made(), uniform(2, 3, 5, 7), uniform(2, 3, 5, 7, seed=1), uniform(2, 5, 7, seed=2)
    out = net(x, y, Snapshot(masks))
    for n in range(2):
        close(out[n], net(x[n], y[n], Snapshot(masks[n])))


@torch.no_grad()
def test_the_scale_of_the_masks_cancels() -> None:
    net, masks, x, y = made(), uniform(3, 5, 7), uniform(3, 5, 7, seed=1), uniform(5, 7, seed=2)
    close(net(x, 255 * y, Snapshot(255 * masks)), net(x, y, Snapshot(masks)), 1e-10)


@pytest.mark.parametrize("kind", ["zero", "cancelling"])
@torch.no_grad()
def test_dark_pixels_stay_finite(kind: str) -> None:
    masks = (
        torch.zeros(2, 4, 4).double() if kind == "zero" else torch.stack([torch.ones(4, 4), -torch.ones(4, 4)]).double()
    )
    out = made()(uniform(2, 4, 4), uniform(4, 4), Snapshot(masks))
    assert bool(torch.isfinite(out).all())


@torch.no_grad()
def test_information_travels_both_ways_through_time() -> None:
    net, phi = made(), Snapshot(torch.zeros(5, 6, 6).double())
    x, y = uniform(5, 6, 6), torch.zeros(6, 6).double()
    for t in (0, 2, 4):
        changed = x.clone()
        changed[t] += 0.5
        moved = (net(changed, y, phi) - net(x, y, phi)).abs().amax((-2, -1))
        assert bool((moved > 1e-12).all()), "every frame depends on every other"


def test_gradients_are_right() -> None:
    net, phi = made(), Snapshot(uniform(3, 3, 3))
    x, y = uniform(3, 3, 3, seed=1).requires_grad_(), uniform(3, 3, seed=2)  # none through y's guess
    assert torch.autograd.gradcheck(lambda x: net(x, y, phi), (x,), atol=1e-6)
    net(x, y, phi).square().sum().backward()
    assert all(p.grad is not None and bool((p.grad != 0).any()) for p in net.parameters())


def test_starts_near_the_middle_of_guess_and_projection() -> None:
    torch.manual_seed(0)
    net, phi = BidirectionalRNN(), Snapshot(uniform(4, 8, 8).float())
    x, y = normal(4, 8, 8).float(), normal(8, 8).float()
    middle = (guess(y, phi) + phi.project(x, y)) / 2
    assert (net(x, y, phi) - middle).norm() < 0.2 * x.norm()
