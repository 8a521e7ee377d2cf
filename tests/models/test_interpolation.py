"""Between what a shutter saw that is open in few frames."""

from __future__ import annotations

import pytest
import torch

from laws import close, seeded
from unsnap.masks import bernoulli
from unsnap.metrics import psnr
from unsnap.models import Interpolation, TotalVariation
from unsnap.models.interpolation import sparse
from unsnap.operators import Multishot, Snapshot
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


@pytest.mark.parametrize("gain", [1.0, 30.0])
def test_what_does_not_change_is_found_exactly(gain: float) -> None:
    phi = Snapshot(gain * one_hot(24, 40, 44))
    still = torch.full((24, 40, 44), 0.3)
    close(Interpolation()(phi.A(still), phi), still, 1e-4)


def test_pixels_that_are_left_out_do_not_count() -> None:
    weights = (torch.rand(40, 44, generator=seeded(2)) > 0.2).float()
    phi = Snapshot(one_hot(24, 40, 44)).weighted(weights)
    close(Interpolation()(phi.A(torch.full((24, 40, 44), 0.3)), phi), torch.full((24, 40, 44), 0.3), 1e-4)


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
