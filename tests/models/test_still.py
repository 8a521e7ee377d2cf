"""What a snapshot says of a scene at rest, and what stands in where it says nothing."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from laws import close, normal, uniform
from unsnap import psnr, reconstruct
from unsnap.masks import bernoulli
from unsnap.models import TotalVariation
from unsnap.models.still import LITTLE, still
from unsnap.operators import RGB, Bayer, CodedOperator, Dispersed, DualDispersed, Multishot, Snapshot
from unsnap.operators.bayer import mosaic
from unsnap.simulate import render

OPEN = uniform(4, 33, 26)
SIGNED = 2 * (OPEN > 0.5).double() - 1


def with_hole(masks: Tensor) -> Tensor:
    holed = masks.clone()
    holed[..., 8:20, 5:17] = 0
    return holed


CAMERAS: dict[str, CodedOperator] = {
    "snapshot": Snapshot(with_hole(OPEN)),
    "masks of each sample": Snapshot(with_hole(uniform(2, 4, 33, 26))),
    "signed masks": Snapshot(with_hole(SIGNED)),
    "multishot": Multishot(with_hole(uniform(3, 4, 33, 26))),
    "bayer": Bayer(mosaic(with_hole(uniform(4, 33, 26)), "rggb")),
    "rgb": RGB(with_hole(uniform(3, 4, 33, 26))),
    "dispersed": Dispersed(with_hole(OPEN)),
    "dual": DualDispersed(with_hole(OPEN)),
}
each = pytest.mark.parametrize("name", CAMERAS)


@each
def test_a_grey_wall_is_found_exactly_in_holes_too(name: str) -> None:
    phi = CAMERAS[name]
    wall = torch.full((2, *phi.video), 0.3, dtype=torch.float64)
    close(still(phi.A(wall), phi), wall, 1e-12)


@each
@pytest.mark.parametrize("gain", [1e-3, 255.0])
def test_units_do_not_matter(name: str, gain: float) -> None:
    phi = CAMERAS[name]
    y = phi.A(uniform(2, *phi.video))
    close(still(gain * y, phi.with_masks(gain * phi.masks)), still(y, phi), 1e-12)
    close(still(gain * y, phi), gain * still(y, phi), 1e-12)


def test_much_light_is_divided_and_little_is_filled_in() -> None:
    """By hand, on a row of two pixels: the second sees nothing, and gets what both see together."""
    phi = Snapshot(torch.tensor([[[1.0, 0.0]], [[2.0, 0.0]]], dtype=torch.float64))
    y = torch.tensor([[6.0, 0.0]], dtype=torch.float64)
    seen, light, usual = 18.0, 9.0, 4.5  # (Σm) y and (Σm)² of the first pixel; usual is the mean of the light
    among = (seen / 2 + LITTLE * usual * 2) / (light / 2 + LITTLE * usual)
    first = (seen + LITTLE * usual * among) / (light + LITTLE * usual)
    close(still(y, phi), torch.tensor([[[first, among]]] * 2, dtype=torch.float64), 1e-12)


def test_samples_do_not_know_of_one_another() -> None:
    phi, y = CAMERAS["masks of each sample"], normal(2, 33, 26)
    for k in range(2):
        close(still(y, phi)[k], still(y[k], phi.select([k]))[0], 1e-12)


def test_nothing_seen_at_all_is_black() -> None:
    phi = Snapshot(torch.zeros(2, 5, 3))
    assert torch.equal(still(torch.zeros(5, 3), phi), torch.zeros(2, 5, 3))


@pytest.mark.parametrize("turned", [lambda z: z.flip(-1), lambda z: z.flip(-2), lambda z: z.mT])
def test_it_shares_the_symmetries_of_total_variation(turned: object) -> None:
    assert callable(turned)
    phi, y = CAMERAS["snapshot"], uniform(33, 26)
    close(still(turned(y), Snapshot(turned(phi.masks).contiguous())), turned(still(y, phi)), 1e-12)


@torch.no_grad()
@pytest.mark.parametrize("shape", ["hole", "round aperture", "border"])
def test_what_was_not_seen_is_no_longer_dark(shape: str) -> None:
    truth, masks = render(4, 64, 64, seed=1), bernoulli(4, 64, 64, generator=torch.Generator().manual_seed(0))
    down, right = torch.meshgrid(torch.arange(64), torch.arange(64), indexing="ij")
    if shape == "hole":
        masks[:, 20:44, 20:44] = 0
    elif shape == "border":
        masks[:, :8], masks[..., :8] = 0, 0
    else:
        masks *= (down - 32).square() + (right - 32).square() < 30**2
    phi = Snapshot(masks)
    y = phi.A(truth)
    dark = TotalVariation().solve(y, phi, x0=phi.A_dagger(y)).x
    assert psnr(TotalVariation()(y, phi), truth).mean() > psnr(dark, truth).mean() + 2
    assert psnr(reconstruct(y, phi).x, truth).mean() > psnr(dark, truth).mean() + 2


BALANCED = 2.0 * (uniform(8, 24, 22).argsort(0) < 4) - 1
CENTRED = uniform(8, 24, 22) - uniform(8, 24, 22).mean(0)
GAUSSIAN = normal(8, 24, 22)
CANCELLING: dict[str, CodedOperator] = {
    "balanced": Snapshot(0.1 * BALANCED),
    "without their mean": Snapshot(CENTRED),
    "one and the other": Snapshot(torch.stack([BALANCED, BALANCED.abs()])),
    "gaussian": Snapshot(GAUSSIAN),
    "multishot": Multishot(torch.stack([BALANCED, GAUSSIAN])),
    "dispersed": Dispersed(GAUSSIAN, (0, 1)),
    "dual": DualDispersed(GAUSSIAN),
}


@pytest.mark.parametrize("name", CANCELLING)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_masks_that_cancel_leave_total_variation_where_it_was(name: str, dtype: torch.dtype) -> None:
    """What is left of their sums is rounding, or small by chance: nothing to divide by."""
    phi = CANCELLING[name].with_masks(CANCELLING[name].masks.to(dtype))
    truth = render(8, 24, 22, seed=0).to(dtype).expand(*phi.samples, -1, -1, -1)
    y = phi.A(truth)
    assert float(still(y, phi).abs().max()) < 3
    usual = TotalVariation().solve(y, phi, x0=phi.A_dagger(y)).x
    assert psnr(TotalVariation()(y, phi), truth).min() > psnr(usual, truth).min() - 0.2
