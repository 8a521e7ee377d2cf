"""Total variation: three implementations that agree, and a denoiser that is the prox it claims to be."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

import laws
from laws import close, each, normal, plain, uniform
from unsnap.priors import TV

PRIORS = {
    "2d isotropic": TV(),
    "2d anisotropic": TV(isotropic=False),
    "3d isotropic": TV(temporal=0.7),
    "3d anisotropic": TV(temporal=1.5, isotropic=False),
    "2d smooth": TV(smoothing=0.1),
    "3d anisotropic smooth": TV(temporal=0.5, isotropic=False, smoothing=0.05),
}
EXACT = 2000  # dual updates after which the prox is as good as exact on the small videos below


prior = each(PRIORS)


def neighbours(shape: tuple[int, ...], prior: TV) -> list[tuple[float, tuple[int, ...]]]:
    return [(1.0, (0, 1, 0)), (1.0, (0, 0, 1)), (prior.temporal, (1, 0, 0))]


def differences(u: np.ndarray, i: tuple[int, ...], prior: TV) -> np.ndarray:
    """Down, right and forward from pixel i; 0 where the next pixel is outside."""
    d = np.zeros(3)
    for k, (weight, step) in enumerate(neighbours(u.shape, prior)):
        j = tuple(np.add(i, step))
        if all(np.less(j, u.shape)):
            d[k] = weight * (u[j] - u[i])
    return d


def naive_denoise(x: np.ndarray, sigma: float, prior: TV) -> np.ndarray:
    """The iteration of priors/tv.py, pixel by pixel: the oracle."""
    tau, p = 1 / (4 + 2 * prior.temporal**2), np.zeros((*x.shape, 3))
    for n in range(prior.iterations + 1):
        u = x.copy()
        for i in np.ndindex(x.shape):
            for k, (weight, step) in enumerate(neighbours(x.shape, prior)):
                j = tuple(np.add(i, step))
                if all(np.less(j, x.shape)):
                    u[j] += weight * p[i][k]
                    u[i] -= weight * p[i][k]
        if n == prior.iterations:
            return u
        for i in np.ndindex(x.shape):
            d = differences(u, i, prior)
            length = np.full(3, np.linalg.norm(d)) if prior.isotropic else np.abs(d)
            p[i] = (p[i] - tau * d) / (1 + tau / sigma * np.maximum(length, prior.smoothing))
    raise AssertionError


def naive_value(x: np.ndarray, prior: TV) -> float:
    total = 0.0
    for i in np.ndindex(x.shape):
        d = differences(x, i, prior)
        for length in [np.linalg.norm(d)] if prior.isotropic else np.abs(d):
            small = length < prior.smoothing
            total += length**2 / (2 * prior.smoothing) if small else length - prior.smoothing / 2
    return total


def exact(prior: TV) -> TV:
    return replace(prior, iterations=EXACT)


def objective(prior: TV, x: Tensor, sigma: float):
    return lambda v: 0.5 * (v - x).square().sum() + sigma * prior.value(v)


# The three implementations


@pytest.mark.parametrize("shape", [(3, 5, 4), (1, 4, 6), (2, 1, 5), (4, 6, 1), (1, 1, 1)])
@pytest.mark.parametrize("iterations", [1, 2, 9])
def test_fused_torch_and_naive_agree(prior: TV, shape: tuple[int, ...], iterations: int) -> None:
    prior = replace(prior, iterations=iterations)
    x = uniform(*shape)
    expected = torch.from_numpy(naive_denoise(x.numpy(), 0.13, prior))
    close(prior(x, 0.13), expected)
    close(plain(lambda v: prior(v, 0.13), x), expected)


@pytest.mark.parametrize("name", ["2d isotropic", "3d anisotropic"])
def test_single_precision_agrees_with_double(name: str) -> None:
    x = uniform(2, 4, 31, 17)
    expected = PRIORS[name](x, 0.1)
    fused = PRIORS[name](x.float(), 0.1)
    assert fused.dtype == torch.float32
    close(fused, expected, 1e-6)
    close(plain(lambda v: PRIORS[name](v, 0.1), x.float()), expected, 1e-6)


def test_value_agrees_with_the_naive_sum(prior: TV) -> None:
    x = uniform(2, 3, 5, 4)
    expected = torch.tensor([naive_value(v.numpy(), prior) for v in x], dtype=torch.float64)
    close(prior.value(x), expected)
    assert prior.value(x[0]).shape == ()


# The prox


def difference_matrix(shape: tuple[int, ...], prior: TV) -> np.ndarray:
    """D of priors/tv.py as a matrix: (pixels, 3, pixels)."""
    size = int(np.prod(shape))
    rows = [[differences(e.reshape(shape), i, prior) for e in np.eye(size)] for i in np.ndindex(shape)]
    return np.array(rows).transpose(0, 2, 1)


def dual_solve(x: np.ndarray, sigma: float, prior: TV) -> tuple[np.ndarray, float]:
    """prox by accelerated projected gradient on the dual, with dense matrices; and its duality gap."""
    D = difference_matrix(x.shape, prior)
    size, flat = D.shape[0], D.reshape(-1, D.shape[2])
    curve = prior.smoothing / sigma
    step = 1 / (np.linalg.norm(flat, 2) ** 2 + curve)

    def feasible(p: np.ndarray) -> np.ndarray:
        p = p.reshape(size, 3)
        length = np.linalg.norm(p, axis=1, keepdims=True) if prior.isotropic else np.abs(p)
        return (p / np.maximum(1, length / sigma)).ravel()

    p = q = np.zeros(3 * size)
    t = 1.0
    for _ in range(6000):
        new = feasible(q - step * (flat @ (x.ravel() + flat.T @ q) + curve * q))
        later = (1 + np.sqrt(1 + 4 * t * t)) / 2
        p, q, t = new, new + (t - 1) / later * (new - p), later
    v = x.ravel() + flat.T @ p
    primal = 0.5 * np.sum((v - x.ravel()) ** 2) + sigma * naive_value(v.reshape(x.shape), prior)
    dual = 0.5 * np.sum(x**2) - 0.5 * np.sum(v**2) - curve / 2 * np.sum(p**2)
    return v.reshape(x.shape), (primal - dual) / primal


def test_many_iterations_reach_the_prox(prior: TV) -> None:
    x, sigma = uniform(2, 4, 3), 0.2
    expected, gap = dual_solve(x.numpy(), sigma, prior)
    assert abs(gap) < 1e-9
    denoised = exact(prior)(x, sigma)
    close(denoised, torch.from_numpy(expected), 1e-4)
    reached, best = (float(objective(prior, x, sigma)(v)) for v in (denoised, torch.from_numpy(expected)))
    assert reached <= best * (1 + 1e-7)


def test_more_iterations_come_closer(prior: TV) -> None:
    x = uniform(2, 9, 8)
    values = [float(objective(prior, x, 0.2)(replace(prior, iterations=n)(x, 0.2))) for n in (1, 4, 16, 64, 256)]
    assert values == sorted(values, reverse=True)


def test_no_perturbation_does_better(prior: TV) -> None:
    x = uniform(3, 6, 5)
    laws.minimises(objective(prior, x, 0.1), exact(prior)(x, 0.1), 1e-6)


def test_firmly_nonexpansive(prior: TV) -> None:
    denoise = exact(prior)
    for seed in range(3):
        x = uniform(3, 6, 5, seed=seed)
        for z in (uniform(3, 6, 5, seed=seed + 10), x + 1e-2 * normal(3, 6, 5)):
            laws.firmly_nonexpansive(lambda v: denoise(v, 0.15), x, z, 1e-5)


def test_a_strong_prior_leaves_only_the_mean() -> None:
    x = uniform(1, 5, 4)
    close(exact(TV())(x, 50.0), x.mean().expand_as(x), 1e-6)


# Laws of any number of iterations


def test_mean_is_preserved(prior: TV) -> None:
    x = uniform(3, 4, 9, 8)
    close(prior(x, 0.3).mean((-3, -2, -1)), x.mean((-3, -2, -1)))


def test_constants_are_fixed(prior: TV) -> None:
    x = torch.full((3, 6, 5), 0.7, dtype=torch.float64)
    close(prior(x, 0.5), x, 1e-15)
    assert prior.value(x) == 0


def test_adding_a_constant_commutes(prior: TV) -> None:
    x = uniform(3, 6, 5)
    close(prior(x + 3, 0.2), prior(x, 0.2) + 3)


def test_pure(prior: TV) -> None:
    laws.pure(lambda v: prior(v, 0.2), uniform(2, 3, 6, 5))
    laws.pure(lambda v: prior(v, 0.0), uniform(2, 3, 6, 5))


def test_batch_independent(prior: TV) -> None:
    laws.batch_independent(lambda v: prior(v, 0.2), uniform(3, 4, 6, 5))
    assert prior(torch.zeros(0, 4, 6, 5), 0.2).shape == (0, 4, 6, 5)


@pytest.mark.parametrize("name", [n for n, p in PRIORS.items() if p.smoothing == 0])
def test_scale_free(name: str) -> None:
    prior, x = PRIORS[name], uniform(3, 9, 8)
    laws.homogeneous(prior, x, 0.2, 1e-12)
    laws.homogeneous(lambda v, s: plain(lambda u: prior(u, s), v), x, 0.2, 1e-12)


def test_smoothing_has_the_units_of_intensity() -> None:
    x = uniform(3, 9, 8)
    close(TV(smoothing=1e-7)(1e-6 * x, 2e-7), 1e-6 * TV(smoothing=0.1)(x, 0.2))


@pytest.mark.parametrize("name", ["2d isotropic", "3d anisotropic"])
def test_scale_free_in_single_precision(name: str) -> None:
    laws.homogeneous(PRIORS[name], uniform(3, 9, 8, dtype=torch.float32), 0.2, 1e-5)


def test_two_dimensional_tv_treats_frames_alone() -> None:
    x = uniform(4, 7, 6)
    close(TV()(x, 0.2), torch.cat([TV()(frame[None], 0.2) for frame in x]))


def test_symmetries() -> None:
    """Anisotropic TV does not know directions: transposing and reversing the video commute with it."""
    prior, x = exact(TV(temporal=0.5, isotropic=False)), uniform(3, 6, 5)
    for move in (lambda v: v.mT, lambda v: v.flip(-1), lambda v: v.flip(-2), lambda v: v.flip(-3)):
        close(prior(move(x).contiguous(), 0.2), move(prior(x, 0.2)), 1e-4)


def test_not_contiguous_memory() -> None:
    x = uniform(3, 6, 5)
    close(TV()(x.mT.contiguous().mT, 0.2), TV()(x, 0.2))
    close(TV()(x.expand(2, 3, 6, 5), 0.2)[1], TV()(x, 0.2))


# Sigma


def test_zero_sigma_is_the_identity(prior: TV) -> None:
    x = uniform(2, 3, 6, 5)
    assert torch.equal(prior(x, 0.0), x)
    close(prior(x, torch.tensor([0.0, 0.0])), x, 1e-15)


@pytest.mark.parametrize("sigma", [1e-300, 1e-45, 1e-30])
def test_tiny_sigma_is_nearly_the_identity(sigma: float) -> None:
    x = uniform(2, 6, 5, dtype=torch.float32)
    x[0] = 0  # nothing to shrink: 0 / 0 must not appear
    close(TV()(x, sigma), x, 1e-7)
    close(TV()(x, torch.tensor(sigma, dtype=torch.float64)), x, 1e-7)


def test_one_sigma_per_sample(prior: TV) -> None:
    x, sigmas = uniform(3, 4, 6, 5), [0.0, 0.1, 0.4]
    together = prior(x, torch.tensor(sigmas, dtype=torch.float64))
    for n, sigma in enumerate(sigmas):
        close(together[n], prior(x[n], sigma))
    close(prior(x, torch.tensor(sigmas, dtype=torch.float64).reshape(3, 1, 1, 1)), together)


def test_sigma_as_a_tensor_of_one_number() -> None:
    x = uniform(1, 4, 6, 5)
    for sigma in (torch.tensor(0.25), torch.tensor([0.25]), torch.tensor(0.25, dtype=torch.float64)):
        close(TV()(x, sigma), TV()(x, 0.25))


@pytest.mark.parametrize("sigma", [-0.1, torch.nan])
def test_bad_sigma_is_named(sigma: float) -> None:
    for given in (sigma, torch.tensor(sigma), torch.tensor([0.1, sigma])):
        with pytest.raises(ValueError, match="sigma must be a number >= 0, got"):
            TV()(uniform(2, 1, 3, 3), given)


@pytest.mark.parametrize(
    "wrong", [{"temporal": -1.0}, {"smoothing": -0.1}, {"iterations": 0}, {"temporal": torch.nan}], ids=str
)
def test_bad_settings_are_named(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))}={next(iter(wrong.values()))}"):
        TV(**wrong)


# Derivatives, and what must not be hidden


@pytest.mark.parametrize("name", ["2d isotropic", "3d anisotropic", "2d smooth"])
def test_derivative_of_the_denoiser(name: str) -> None:
    prior = replace(PRIORS[name], iterations=3)
    x, sigma = uniform(2, 4, 3).requires_grad_(), torch.tensor(0.1, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(prior, (x, sigma))


def test_derivative_is_finite_where_the_image_is_flat(prior: TV) -> None:
    x = torch.full((2, 4, 3), 0.5, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(prior(x, 0.1).square().sum(), x)
    assert bool(torch.isfinite(slope).all())


@laws.forward_mode
def test_function_transforms(prior: TV) -> None:
    x, direction = uniform(3, 2, 4, 3), normal(3, 2, 4, 3)
    sigmas = torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64)
    close(torch.func.vmap(lambda v: prior(v, 0.1))(x), prior(x, 0.1))
    close(torch.func.vmap(prior)(x, sigmas), prior(x, sigmas))
    value, slope = torch.func.jvp(lambda v: prior(v, 0.1), (x,), (direction,))
    close(value, prior(x, 0.1))
    h = 1e-6
    close(slope, (prior(x + h * direction, 0.1) - prior(x - h * direction, 0.1)) / (2 * h), 1e-5)
    _, slope = torch.func.jvp(lambda s: prior(x, s), (sigmas[0],), (torch.ones_like(sigmas[0]),))
    close(slope, (prior(x, 0.1 + h) - prior(x, 0.1 - h)) / (2 * h), 1e-5)


@pytest.mark.parametrize("name", ["2d smooth", "3d anisotropic smooth"])
def test_smoothed_value_is_differentiable_even_where_flat(name: str) -> None:
    prior = PRIORS[name]
    x = uniform(2, 4, 3)
    x[0, :2] = 0.5
    assert torch.autograd.gradcheck(prior.value, (x.requires_grad_(),))


@pytest.mark.parametrize("name", ["2d smooth", "3d anisotropic smooth"])
def test_curvature_bounds_the_slope_of_the_gradient(name: str) -> None:
    """... and is nearly attained by a checkerboard of small contrast."""
    prior = PRIORS[name]

    def gradient(v: Tensor) -> Tensor:
        return torch.func.grad(lambda u: prior.value(u).sum())(v)

    x = uniform(6, 16, 16)
    for size in (1.0, 1e-2, 1e-4):
        z = x + size * normal(6, 16, 16)
        assert (gradient(x) - gradient(z)).norm() <= prior.curvature * (x - z).norm()
    t, i, j = torch.meshgrid(*(torch.arange(n) for n in x.shape), indexing="ij")
    board = 1e-3 * (-1.0) ** (i + j + (t if prior.temporal else 0)).double()
    assert 0.9 <= gradient(board).norm() / (prior.curvature * board.norm()) <= 1
    assert TV().curvature == float("inf")


def test_curvature_counts_what_changes_in_time() -> None:
    prior, size = TV(temporal=2.0, isotropic=False, smoothing=0.1), (16, 8, 8)
    t, i, j = torch.meshgrid(*(torch.arange(n) for n in size), indexing="ij")
    board = (1e-3 * (-1.0) ** (t + i + j).double()).requires_grad_()
    (slope,) = torch.autograd.grad(prior.value(board), board)
    assert 0.9 <= slope.norm() / (prior.curvature * board.norm()) <= 1


def test_the_gradient_at_sigma_0_is_that_of_the_identity() -> None:
    x, sigma = uniform(2, 3, 5, 4).requires_grad_(), torch.tensor([0.0, 0.1]).double().requires_grad_()
    TV()(x, sigma).square().sum().backward()
    close(x.grad[0], 2 * x.detach()[0])
    assert torch.isfinite(x.grad).all()
    assert torch.isfinite(sigma.grad).all()


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_divergence_stays_visible(prior: TV, bad: float) -> None:
    x = uniform(3, 6, 5)
    x[1, 2, 3] = bad
    for result in (prior(x, 0.1), plain(lambda v: prior(v, 0.1), x)):
        assert not bool(torch.isfinite(result[1]).all())
