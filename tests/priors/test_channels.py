"""Priors across colours and bands: what the basis keeps, and what a network of pictures is shown."""

from __future__ import annotations

import torch
from torch import Tensor

from laws import close, normal, uniform
from unsnap import TV
from unsnap.operators import RGB, Bayer, Dispersed
from unsnap.operators.bayer import mosaic
from unsnap.priors.channels import COMPONENTS, across, across_pictures, basis

BAYER = Bayer(mosaic(uniform(2, 6, 8), "rggb"))
BANDS = Dispersed(uniform(12, 6, 8), (0, 1))


def same(x: Tensor, sigma: float | Tensor) -> Tensor:
    return x


def test_the_strongest_components_of_many_bands_are_kept() -> None:
    simple = torch.einsum("nck,nkhw->nchw", normal(2, 12, 3), uniform(2, 3, 6, 8))
    close(across(same, BANDS)(simple, 0.1), simple, 1e-9)
    cube = simple + 1e-3 * normal(2, 12, 6, 8, seed=1)
    values = torch.linalg.eigvalsh(cube.flatten(-2) @ cube.flatten(-2).mT)
    lost = (across(same, BANDS)(cube, 0.1) - cube).square().sum((-3, -2, -1))
    close(lost, values[:, :-COMPONENTS].sum(-1), 1e-6)
    assert basis(cube, BANDS).shape == (2, COMPONENTS, 12)


def faded(x: Tensor, sigma: float | Tensor) -> Tensor:
    """Its sigma fits all leading axes, those of components as well."""
    return (1 - torch.as_tensor(sigma).expand(x.shape[:-3]))[..., None, None, None] * x


def test_one_sigma_per_sample() -> None:
    sigma = torch.tensor([0.3, 0.0, 0.1, 0.2], dtype=torch.float64)
    for phi in (BAYER, BANDS, RGB(uniform(3, 2, 6, 8))):
        for prior in (TV(), faded):
            x, denoise = uniform(4, *phi.video, seed=2), across(prior, phi)
            together = denoise(x, sigma)
            for n in range(4):
                close(together[n], denoise(x[n], float(sigma[n])), 1e-6)


def test_a_network_of_pictures_is_shown_brightness_and_differences_around_grey() -> None:
    shown: list[tuple[Tensor, float | Tensor]] = []

    def network(x: Tensor, sigma: float | Tensor) -> Tensor:
        shown.append((x, sigma))
        return x

    red, green, blue = (uniform(2, 6, 8, seed=k) for k in range(3))
    video = torch.cat([red, green, blue])
    close(across_pictures(network, BAYER)(video, 0.3), video, 1e-6)
    (brightness, first, second), sigma = shown[0]
    close(brightness, (red + green + blue) / 3, 1e-6)
    close(first, 0.5 + (red - blue) / 6**0.5, 1e-6)
    close(second, 0.5 + (red - 2 * green + blue) / 18**0.5, 1e-6)
    assert abs(float(sigma) - 0.3 / 3**0.5) < 1e-6, "the noise of a mean of three is less"
    assert across_pictures(network, BANDS) is network
