"""Cameras with colour filters and dispersers: laws of all cameras, and what each of them sees, pixel by pixel."""

from __future__ import annotations

import pytest
import torch

from laws import camera, close, uniform
from unsnap import TV, InputError
from unsnap.algorithms import gap
from unsnap.operators import RGB, Bayer, CodedOperator, Dispersed, planes
from unsnap.operators import camera as make
from unsnap.operators.bayer import PATTERNS, filters, mosaic
from unsnap.operators.dispersed import DualDispersed, dual_disperser
from unsnap.priors.channels import across, basis, components, from_components

T, H, W = 2, 6, 8
CAMERAS: dict[str, CodedOperator] = {
    **{order: Bayer(mosaic(uniform(T, H, W), order)) for order in (*PATTERNS, "quad-grbg")},
    "rgb": RGB(uniform(3, T, H, W)),
    "dual": DualDispersed(dual_disperser(uniform(H, W) + 0.1, 4, (1, -1))),
    **{f"dispersed {step}": Dispersed(uniform(5, H, W), step) for step in ((0, 2), (0, -3), (1, 0), (-2, 1), (0, 0))},
}


@pytest.mark.parametrize("name", CAMERAS)
def test_laws_of_a_camera(name: str) -> None:
    phi = CAMERAS[name]
    camera(phi, uniform(2, *phi.video, seed=1), uniform(2, *phi.image, seed=2))
    gone = uniform(*phi.image[-2:], seed=3) < 0.3
    less = phi.without(gone)
    x = uniform(*phi.video, seed=4)
    close(less.A(x), torch.where(gone, 0, phi.A(x)))


@pytest.mark.parametrize("order", PATTERNS)
def test_a_pixel_behind_a_filter_sees_its_colour_alone(order: str) -> None:
    masks, x = uniform(T, H, W), uniform(3, T, H, W, seed=1)
    y = Bayer(mosaic(masks, order)).A(x.flatten(0, 1))
    quad = Bayer(mosaic(masks, f"quad-{order}")).A(x.flatten(0, 1))
    for i in range(H):
        for j in range(W):
            colour = "rgb".index(order[2 * (i % 2) + j % 2])
            larger = "rgb".index(order[2 * (i // 2 % 2) + j // 2 % 2])
            close(y[i, j], (masks[:, i, j] * x[colour, :, i, j]).sum())
            close(quad[i, j], (masks[:, i, j] * x[larger, :, i, j]).sum())
    assert float(filters(order, H, W).sum(0).min()) == float(filters(order, H, W).sum(0).max()) == 1


@pytest.mark.parametrize("name", ["rggb", "rgb"])
def test_the_colours_apart_are_grey_cameras(name: str) -> None:
    phi, x = CAMERAS[name], uniform(2, 3 * T, H, W, seed=1)
    y, grey = planes(phi.A(x), phi)
    close(grey.A(x.reshape(6, T, H, W)), y)
    close(grey.project(x.square().reshape(6, T, H, W), y).reshape(x.shape), phi.project(x.square(), phi.A(x)))


def test_openness_is_the_share_of_the_masks_that_a_usual_pixel_sees_through() -> None:
    for phi, share in (
        (RGB(torch.ones(3, 4, 2, 2)), 1),
        (RGB(torch.eye(4).reshape(4, 2, 2).expand(3, 4, 2, 2)), 1 / 4),
        (Dispersed(torch.ones(3, 4, 4), (0, 0)), 1),
        (Dispersed(torch.ones(3, 1, 2), (0, 2)), 1 / 3),  # every band lands beside the others
        (Dispersed(-torch.ones(2, 3, 1, 2), (0, -2)), torch.full((2,), 1 / 3)),
    ):
        close(phi.openness(), torch.as_tensor(share), 1e-6)


def test_contrast_is_that_of_the_codes_on_the_detector() -> None:
    apart = Dispersed(torch.ones(2, 1, 2), (0, 2))  # equal masks, but every pixel sees one band of two
    close(apart.contrast(), torch.full((1, 1), 0.5))


@pytest.mark.parametrize("step", [(0, 2), (-1, 3)])
def test_bands_land_where_the_step_takes_them(step: tuple[int, int]) -> None:
    phi, x = Dispersed(uniform(3, H, W), step), uniform(3, H, W, seed=1)
    first = [-min(0, 2 * s) for s in step]
    for band in range(3):
        one = torch.zeros_like(x)
        one[band, 1, 2] = x[band, 1, 2]
        y = phi.A(one)
        assert y.count_nonzero() == 1
        close(y[first[0] + 1 + band * step[0], first[1] + 2 + band * step[1]], phi.masks[band, 1, 2] * x[band, 1, 2])


def test_a_camera_is_made_by_its_name() -> None:
    phi = make("dispersed:-1,2", uniform(3, H, W))
    assert isinstance(phi, Dispersed)
    assert phi.step == phi.scaled(2.0).step == (-1, 2)
    for name in ("dispersed:fast", "bayer:rggb", "dispersed:1,100000"):
        with pytest.raises(InputError):
            make(name, uniform(3, H, W))


@pytest.mark.parametrize("name", ["rggb", "rgb", "dispersed (0, 2)"])
def test_components_are_those_of_an_orthonormal_basis(name: str) -> None:
    phi, x = CAMERAS[name], uniform(2, *CAMERAS[name].video, seed=1)
    rows = basis(x, phi)
    close(rows @ rows.mT, torch.eye(rows.shape[-2]).to(x).expand(*rows.shape[:-1], rows.shape[-2]), 1e-6)
    close(from_components(components(x, rows), rows), x, 1e-6)
    close(across(lambda z, sigma: z, phi)(x, 0.1), x, 1e-6)


def test_a_prior_across_colours_fills_the_mosaic_better_than_one_for_each() -> None:
    grey = torch.nn.functional.avg_pool2d(uniform(1, 1, 40, 40), 5, 1)[0].expand(3, 36, 36)
    truth = (grey - grey.min()) / (grey.max() - grey.min()) * torch.tensor([1.0, 0.8, 0.6]).reshape(3, 1, 1)
    phi = Bayer(mosaic(torch.ones(1, 36, 36).double(), "rggb"))
    y = phi.A(truth)
    apart, together = (gap(y, phi, d, [0.05] * 30, early=False).x for d in (TV(), across(TV(), phi)))
    assert (together - truth).norm() < 0.85 * (apart - truth).norm()
