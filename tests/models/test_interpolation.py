"""Between what a shutter saw that is open in few frames."""

from __future__ import annotations

import math

import pytest
import torch

from laws import close, seeded
from unsnap.masks import bernoulli
from unsnap.metrics import psnr
from unsnap.models import Interpolation, TotalVariation
from unsnap.models.interpolation import sparse
from unsnap.operators import RGB, Dispersed, Multishot, Snapshot
from unsnap.run import reconstruct
from unsnap.simulate import render

VIDEO = render(24, 40, 44, seed=3)


def one_hot(frames: int, *size: int, seed: int = 0) -> torch.Tensor:
    order = torch.randint(frames, size, generator=seeded(seed))
    return torch.nn.functional.one_hot(order, frames).movedim(-1, 0).float()


def test_shutters_that_are_open_in_few_frames_are_told_from_codes() -> None:
    assert sparse(Snapshot(one_hot(24, 40, 44)))
    assert sparse(Snapshot(7 * one_hot(24, 40, 44)))
    assert not sparse(Snapshot(bernoulli(24, 40, 44, generator=seeded())))
    assert not sparse(Snapshot(2 * bernoulli(24, 40, 44, generator=seeded()) - 1))
    assert not sparse(Snapshot(torch.zeros(24, 40, 44)))


def test_the_answer_lies_where_the_masks_do() -> None:
    """It chooses between tensors there, also of a camera that is never sparse."""
    for phi in (Snapshot(one_hot(4, 6, 6)), RGB(torch.ones(3, 2, 6, 6)), Dispersed(torch.ones(3, 6, 6))):
        assert sparse(phi).shape == (1, 1, 1)
        assert sparse(phi.to("meta")).device.type == "meta"


@pytest.mark.parametrize("gain", [1.0, 30.0])
def test_what_does_not_change_is_found_exactly(gain: float) -> None:
    phi = Snapshot(gain * one_hot(24, 40, 44))
    still = torch.full((24, 40, 44), 0.3)
    close(Interpolation()(phi.A(still), phi), still, 1e-4)


def test_pixels_that_are_left_out_do_not_count() -> None:
    weights = (torch.rand(40, 44, generator=seeded(2)) > 0.2).float()
    phi = Snapshot(one_hot(24, 40, 44)).weighted(weights)
    close(Interpolation()(phi.A(torch.full((24, 40, 44), 0.3)), phi), torch.full((24, 40, 44), 0.3), 1e-4)


@pytest.mark.parametrize("unit", [1.0, 0.1, 0.7, 255.0])
def test_masks_of_both_signs_in_any_units(unit: float) -> None:
    """Sums that cancel but for rounding say nothing, and those that nearly do say little."""
    signs = torch.where(torch.rand(8, 40, 44, generator=seeded(1)) < 0.5, 1.0, -1.0)
    found = [Interpolation()(Snapshot(m).A(VIDEO[:8]), Snapshot(m)) for m in (signs, unit * signs)]
    close(found[1], found[0], 1e-5)
    noisy = signs + 0.3 * torch.randn(8, 40, 44, generator=seeded(2))
    assert float(Interpolation()(Snapshot(noisy).A(VIDEO[:8]), Snapshot(noisy)).abs().max()) < 1.5


def by_hand(y: torch.Tensor, masks: torch.Tensor, width: float, samples: float) -> torch.Tensor:
    """With the Gaussian of every axis as a matrix; `openness` of one-hot shutters is 1 / T."""
    frames, far = len(masks), 1e-6 * masks.square().mean()
    length = samples * frames / ((2 * math.pi) ** 1.5 * width**2)

    def smooth(video: torch.Tensor) -> torch.Tensor:
        for axis, sigma in enumerate((min(max(length, 0.5), frames), width, width)):
            count = video.shape[axis]
            reach = min(math.ceil(3 * sigma), count - 1)
            apart = torch.arange(count)[:, None] - torch.arange(count)
            kernel = torch.where(apart.abs() <= reach, torch.exp(-0.5 * (apart.double() / sigma) ** 2), 0)
            whole = torch.exp(-0.5 * (torch.arange(-reach, reach + 1).double() / sigma) ** 2).sum()
            video = torch.tensordot(kernel / whole, video, ([1], [axis])).movedim(0, axis)
        return video

    total = masks.sum(0)
    seen = masks.square() * torch.where(total == 0, 0, y / total.clamp(min=1e-9))
    mean = seen.sum() / masks.square().sum()
    return (smooth(seen) + far * mean) / (smooth(masks.square()) + far)


@pytest.mark.parametrize(("width", "samples"), [(1.5, 1.0), (1.0, 3.0), (0.3, 0.05)])
def test_it_is_normalised_convolution(width: float, samples: float) -> None:
    """Also of shutters that are not all alike; where nothing was seen it is the mean."""
    masks = one_hot(12, 14, 9).double() * (0.2 + torch.rand(14, 9, generator=seeded(1)).double())
    masks[:, 3:9] = 0
    y = Snapshot(masks).A(VIDEO[:12, :14, :9].double())
    close(Interpolation(width, samples)(y, Snapshot(masks)), by_hand(y, masks, width, samples), 1e-6)


def test_every_sample_has_a_width_in_time_of_its_own() -> None:
    half = one_hot(24, 40, 44) + one_hot(24, 40, 44, seed=1)  # twice as often open
    phi = Snapshot(torch.stack([one_hot(24, 40, 44), half]))
    y = phi.A(VIDEO)
    both = Interpolation()(y, phi)
    for n in range(2):
        close(both[n], Interpolation()(y[n], Snapshot(phi.masks[n])), 1e-6)


@pytest.mark.parametrize("method", ["interpolation", "gap-wnnm"])
def test_it_is_better_than_the_long_exposure_and_than_total_variation(method: str) -> None:
    phi = Snapshot(one_hot(24, 40, 44))
    y = phi.A(VIDEO)
    quality = [
        float(psnr(x.clamp(0, 1), VIDEO).mean())
        for x in (y.expand_as(VIDEO), TotalVariation()(y, phi), reconstruct(y, phi, method).x)
    ]
    assert quality[2] > max(quality[:2]) + 1


def test_two_shots_see_more_than_one() -> None:
    codes = torch.stack([one_hot(24, 40, 44, seed=k) for k in range(2)])
    one, two = Snapshot(codes[0]), Multishot(codes)
    both = reconstruct(two.A(VIDEO), two, "interpolation").x
    assert psnr(both, VIDEO).mean() > psnr(reconstruct(one.A(VIDEO), one, "interpolation").x, VIDEO).mean() + 0.5
