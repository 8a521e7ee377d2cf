"""Wavelet shrinkage: an orthonormal transform, PyWavelets' own, and the exact prox of its l1 norm."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import pywt
import torch
from torch import Tensor

import laws
from laws import close, each, normal, uniform
from unsnap.priors import Wavelet

PRIORS = {
    "default": Wavelet(),
    "haar": Wavelet("haar", levels=1, shifts=1),
    "haar in space-time": Wavelet("haar", levels=2, temporal=True, shifts=2),
    "db4": Wavelet("db4", levels=2, shifts=1),
    "sym5": Wavelet("sym5", levels=3, temporal=True, shifts=1),
}
SINGLE = {name: replace(prior, shifts=1) for name, prior in PRIORS.items()}
EVEN, ODD = (8, 16, 8), (3, 7, 5)


prior = each(PRIORS)
single = each(SINGLE)


def coefficients(prior: Wavelet, x: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Coarsest approximation and all details of a video whose sides are divisible."""
    details: list[Tensor] = []
    for _ in range(prior.levels):
        x, found = prior._split(x)
        details += found
    return x, details


def objective(prior: Wavelet, x: Tensor, sigma: float):
    return lambda v: 0.5 * (v - x).square().sum() + sigma * prior.value(v)


# The transform


def test_transform_is_orthonormal(single: Wavelet) -> None:
    x, z = normal(*EVEN), normal(*EVEN, seed=1)
    (low_x, details_x), (low_z, details_z) = coefficients(single, x), coefficients(single, z)
    inner = (low_x * low_z).sum() + sum((a * b).sum() for a, b in zip(details_x, details_z, strict=True))
    assert abs(inner - (x * z).sum()) <= 1e-10 * x.norm() * z.norm()
    assert low_x.numel() + sum(d.numel() for d in details_x) == x.numel()


@pytest.mark.parametrize("shape", [EVEN, ODD, (1, 9, 4), (1, 1, 1), (2, 3, EVEN[0], 16, 16)])
def test_reconstruction_is_perfect(prior: Wavelet, shape: tuple[int, ...]) -> None:
    x = uniform(*shape)
    close(prior(x, 0.0), x, 1e-10)


def test_far_ends_are_mirrored() -> None:
    x = torch.arange(5.0).expand(1, 3, 5)
    wide = Wavelet(levels=2)._extend(x)
    assert wide[0, 0].tolist() == [0, 1, 2, 3, 4, 4, 3, 2]
    short = Wavelet(levels=3)._extend(torch.arange(3.0).reshape(1, 1, 3))
    assert short[0, 0].tolist() == [0, 1, 2, 2, 1, 0, 0, 1]  # there and back, and there again


@pytest.mark.parametrize("name", ["haar", "db2", "db5", "sym4", "coif1", "db38", "coif17", "sym20"])
def test_every_orthogonal_family_reconstructs(name: str) -> None:
    x = uniform(1, 16, 16)
    close(Wavelet(name, levels=2, shifts=1)(x, 0.0), x, 1e-9)


def test_haar_by_hand() -> None:
    x = torch.tensor([[[1.0, 3.0], [2.0, 8.0]]], dtype=torch.float64)
    low, details = Wavelet("haar", levels=1)._split(x)
    assert low.item() == pytest.approx(7.0)  # (1 + 3 + 2 + 8) / 2
    assert sorted(abs(d.item()) for d in details) == pytest.approx([2.0, 3.0, 4.0])


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_haar_shrinkage_agrees_with_pywavelets(levels: int) -> None:
    image, sigma = uniform(16, 24), 0.2
    tree = pywt.wavedec2(image.numpy(), "haar", mode="periodization", level=levels)
    shrunk = [tree[0], *(tuple(pywt.threshold(d, sigma, "soft") for d in level) for level in tree[1:])]
    expected = torch.from_numpy(pywt.waverec2(shrunk, "haar", mode="periodization"))
    close(Wavelet("haar", levels=levels, shifts=1)(image[None], sigma)[0], expected)
    assert Wavelet("haar", levels=levels).value(image[None]).item() == pytest.approx(
        sum(np.abs(d).sum() for level in tree[1:] for d in level)
    )


@pytest.mark.parametrize("name", ["db2", "db4", "sym4", "coif1"])
def test_coefficients_are_those_of_pywavelets(name: str) -> None:
    """The same numbers up to order: our filters run the other way, so the image is turned round."""
    image = uniform(16, 24)
    low, details = Wavelet(name, levels=1)._split(image[None])
    turned = image.flip(-2, -1).numpy()
    candidates = [
        pywt.dwt2(np.roll(turned, (i, j), (0, 1)), name, mode="periodization") for i in (0, 1) for j in (0, 1)
    ]
    ours = [np.sort(np.abs(band.numpy().ravel())) for band in (low, *details)]

    def distance(candidate: tuple[np.ndarray, tuple[np.ndarray, ...]]) -> float:
        approximation, (horizontal, vertical, diagonal) = candidate
        # PyWavelets names the band that is high across columns first.
        theirs = [np.sort(np.abs(b.ravel())) for b in (approximation, vertical, horizontal, diagonal)]
        return max(float(np.abs(a - b).max()) for a, b in zip(ours, theirs, strict=True))

    assert min(distance(c) for c in candidates) < 1e-12


# The prox


def test_one_shift_is_the_exact_prox(single: Wavelet) -> None:
    """Its coefficients are the soft-thresholded ones, so the subgradient condition holds in each."""
    x, sigma = uniform(*EVEN), 0.1
    low, details = coefficients(single, x)
    new_low, new_details = coefficients(single, single(x, sigma))
    close(new_low, low, 1e-10)
    for before, after in zip(details, new_details, strict=True):
        kept = after.abs() > 1e-10
        assert bool(((before - after)[~kept].abs() <= sigma + 1e-10).all())
        close((before - after)[kept], sigma * after[kept].sign(), 1e-8)


def test_no_perturbation_does_better(single: Wavelet) -> None:
    x = uniform(*EVEN)
    laws.minimises(objective(single, x, 0.1), single(x, 0.1), 1e-12, tries=20)


def test_firmly_nonexpansive(single: Wavelet) -> None:
    for seed in range(5):
        x = uniform(*EVEN, seed=seed)
        laws.firmly_nonexpansive(lambda v: single(v, 0.1), x, uniform(*EVEN, seed=seed + 10), 1e-12)
        laws.firmly_nonexpansive(lambda v: single(v, 0.1), x, x + 1e-2 * normal(*EVEN), 1e-12)


def test_cycle_spinning_is_nonexpansive(prior: Wavelet) -> None:
    x, z = uniform(*EVEN), uniform(*EVEN, seed=1)
    assert (prior(x, 0.1) - prior(z, 0.1)).norm() <= (x - z).norm()


def test_shifts_average_the_translates() -> None:
    x, alone = uniform(2, 8, 8), Wavelet("haar", levels=2, shifts=1)
    translates = [alone(x.roll((s, s), (-2, -1)), 0.1).roll((-s, -s), (-2, -1)) for s in range(3)]
    close(Wavelet("haar", levels=2, shifts=3)(x, 0.1), torch.stack(translates).mean(0))


# Laws of every prior


def test_constants_are_fixed(prior: Wavelet) -> None:
    for shape in (EVEN, ODD):
        x = torch.full(shape, 0.7, dtype=torch.float64)
        close(prior(x, 0.5), x, 1e-10)
        assert prior.value(x) < 1e-8


def test_mean_is_preserved(prior: Wavelet) -> None:
    x = uniform(3, *EVEN)
    close(prior(x, 0.3).mean((-3, -2, -1)), x.mean((-3, -2, -1)), 1e-10)


def test_pure(prior: Wavelet) -> None:
    laws.pure(lambda v: prior(v, 0.1), uniform(2, *ODD))


@pytest.mark.parametrize("shape", [EVEN, ODD, (1, 8, 8)])
def test_batch_independent_and_shape_agnostic(prior: Wavelet, shape: tuple[int, ...]) -> None:
    laws.batch_independent(lambda v: prior(v, 0.1), uniform(3, *shape))
    assert prior(torch.zeros(0, *shape), 0.1).shape == (0, *shape)


def test_scale_free(prior: Wavelet) -> None:
    laws.homogeneous(prior, uniform(*ODD), 0.1, 1e-12)


def test_single_precision_agrees_with_double(prior: Wavelet) -> None:
    x = uniform(*ODD)
    result = prior(x.float(), 0.1)
    assert result.dtype == torch.float32
    close(result, prior(x, 0.1), 1e-6)


def test_value_is_per_sample(prior: Wavelet) -> None:
    x = uniform(3, *ODD)
    close(prior.value(x), torch.stack([prior.value(v) for v in x]))


def test_one_sigma_per_sample(prior: Wavelet) -> None:
    x, sigmas = uniform(3, *ODD), [0.0, 0.1, 0.4]
    together = prior(x, torch.tensor(sigmas, dtype=torch.float64))
    for n, sigma in enumerate(sigmas):
        close(together[n], prior(x[n], sigma))


def test_frames_are_alone_unless_temporal() -> None:
    x = uniform(4, 8, 8)
    close(Wavelet()(x, 0.1), torch.cat([Wavelet()(frame[None], 0.1) for frame in x]))
    assert not torch.allclose(Wavelet(temporal=True)(x, 0.1), Wavelet()(x, 0.1))


def test_divergence_stays_visible(prior: Wavelet) -> None:
    x = uniform(*ODD)
    x[1, 2, 3] = torch.nan
    assert bool(prior(x, 0.1)[1].isnan().any())


@pytest.mark.parametrize("name", ["default", "haar in space-time"])
def test_derivative(name: str) -> None:
    x, sigma = uniform(2, 4, 3).requires_grad_(), torch.tensor(0.05, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(PRIORS[name], (x, sigma), fast_mode=True)


@laws.forward_mode
def test_function_transforms(prior: Wavelet) -> None:
    x, direction, h = uniform(3, *ODD), normal(3, *ODD), 1e-7
    close(torch.func.vmap(lambda v: prior(v, 0.1))(x), prior(x, 0.1))
    _, slope = torch.func.jvp(lambda v: prior(v, 0.1), (x,), (direction,))
    close(slope, (prior(x + h * direction, 0.1) - prior(x - h * direction, 0.1)) / (2 * h), 1e-5)


@pytest.mark.parametrize("name", ["bior2.2", "dmey", "nonsense", "mexh"])
def test_wavelets_that_are_not_orthonormal_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"name must be an orthogonal wavelet.*{name!r}"):
        Wavelet(name)


@pytest.mark.parametrize("settings", [{"levels": 0}, {"shifts": 0}], ids=str)
def test_bad_settings_are_named(settings: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="levels >= 1 and shifts >= 1, got"):
        Wavelet(**settings)


@pytest.mark.parametrize("sigma", [-0.1, math.nan])
def test_bad_sigma_is_named(sigma: float) -> None:
    for given in (sigma, torch.tensor(sigma), torch.tensor([0.1, sigma])):
        with pytest.raises(ValueError, match="sigma must be a number >= 0, got"):
            Wavelet()(uniform(2, 1, 4, 4), given)
