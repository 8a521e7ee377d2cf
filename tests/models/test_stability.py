"""Measured constants against dense linear algebra."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from laws import forward_mode, normal, seeded, uniform
from unsnap.models.equilibrium import jacobian_penalty, residual_gain
from unsnap.models.stability import Map, lipschitz, spectral_radius
from unsnap.networks import CNN

pytestmark = forward_mode
SHAPE = (1, 2, 3, 2)
SIZE = 12


def rotation(angle: float) -> Tensor:
    c, s = math.cos(angle), math.sin(angle)
    return torch.tensor([[c, -s], [s, c]], dtype=torch.float64)


def _complex() -> Tensor:
    """The largest eigenvalues are a pair 1.3 e^{±i}."""
    basis = normal(SIZE, SIZE, seed=5)
    blocks = torch.block_diag(1.3 * rotation(1.0), 0.9 * rotation(2.0), torch.diag(0.5 * uniform(8)))
    return basis @ blocks @ torch.linalg.inv(basis)


def _triangular() -> Tensor:
    """Far from normal: the norm is large, the eigenvalues are not."""
    return torch.diag(torch.linspace(0.1, 0.9, SIZE, dtype=torch.float64)) + 3 * normal(SIZE, SIZE).triu(1)


MATRICES = {
    "random": normal(SIZE, SIZE),
    "symmetric": normal(SIZE, SIZE) + normal(SIZE, SIZE).T,
    "complex pair": _complex(),
    "not normal": _triangular(),
    "rank 2": normal(SIZE, 2) @ normal(2, SIZE, seed=1),
    "rotation": torch.block_diag(*[rotation(0.3)] * 6),
    "identity": torch.eye(SIZE, dtype=torch.float64),
    "zero": torch.zeros(SIZE, SIZE, dtype=torch.float64),
    "tiny": 1e-12 * normal(SIZE, SIZE),
    "large": 1e12 * normal(SIZE, SIZE),
}
each = pytest.mark.parametrize("name", MATRICES)


def linear(matrix: Tensor) -> Map:
    return lambda x: (matrix.to(x) @ x.flatten()).reshape(x.shape)


def bent(matrix: Tensor) -> Map:
    """Its Jacobian depends on the point."""
    return lambda x: (matrix @ (x + 0.3 * x.square()).sin().flatten()).reshape(x.shape)


def jacobian(f: Map, x: Tensor) -> Tensor:
    return torch.autograd.functional.jacobian(f, x).reshape(x.numel(), x.numel())


@each
@pytest.mark.parametrize("kind", [linear, bent])
def test_lipschitz_is_the_largest_singular_value(name: str, kind: object) -> None:
    f, x = kind(MATRICES[name]), normal(*SHAPE, seed=3)
    expected = float(torch.linalg.matrix_norm(jacobian(f, x), 2))
    assert lipschitz(f, x, iterations=150, generator=seeded()) == pytest.approx(expected, rel=1e-3, abs=1e-300)
    few = lipschitz(f, x, iterations=3, generator=seeded())
    assert few <= expected * (1 + 1e-12)  # always from below


@each
@pytest.mark.parametrize("kind", [linear, bent])
@pytest.mark.parametrize("iterations", [SIZE, 50])
def test_spectral_radius_is_the_largest_eigenvalue(name: str, kind: object, iterations: int) -> None:
    f, x = kind(MATRICES[name]), normal(*SHAPE, seed=3)
    dense = jacobian(f, x)
    expected = float(torch.linalg.eigvals(dense).abs().max())
    slack = 1e-8 * float(torch.linalg.matrix_norm(dense, 2))
    measured = spectral_radius(f, x, iterations=iterations, generator=seeded())
    assert measured == pytest.approx(expected, rel=1e-5, abs=slack)


@pytest.mark.parametrize("name", ["random", "complex pair", "rank 2", "rotation", "identity", "zero"])
def test_single_precision_invents_no_eigenvalues(name: str) -> None:
    """Far more steps than the space has dimensions."""
    f, x = linear(MATRICES[name]), normal(*SHAPE, seed=3).float()
    expected = float(torch.linalg.eigvals(MATRICES[name]).abs().max())
    assert spectral_radius(f, x, iterations=60, generator=seeded()) == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_few_steps_find_a_leading_eigenvalue_in_a_large_space() -> None:
    x = normal(1, 4, 16, 16)
    gains = torch.linspace(0, 0.8, x.numel(), dtype=torch.float64).reshape(x.shape).clone()
    gains.view(-1)[77] = 1.7
    assert spectral_radius(lambda z: gains * z, x, generator=seeded()) == pytest.approx(1.7, rel=1e-6)
    assert lipschitz(lambda z: gains * z, x, generator=seeded()) == pytest.approx(1.7, rel=1e-6)


def test_the_value_of_x_matters_only_through_the_jacobian() -> None:
    f = linear(MATRICES["random"])
    points = [1e-8 * normal(*SHAPE), 1e8 * normal(*SHAPE), torch.zeros(SHAPE, dtype=torch.float64)]
    for measure in (lipschitz, spectral_radius):
        values = [measure(f, x, generator=seeded()) for x in points]
        assert values == pytest.approx([values[0]] * 3, rel=1e-9)
    penalties = [float(jacobian_penalty(f, x, generator=seeded())) for x in points]
    assert penalties == pytest.approx([penalties[0]] * 3, rel=1e-9)


def test_only_the_generator_decides() -> None:
    f, x = bent(MATRICES["random"]), normal(*SHAPE)
    before, state = x.clone(), torch.get_rng_state()
    for measure in (lipschitz, spectral_radius, jacobian_penalty):
        assert measure(f, x, generator=seeded(1)) == measure(f, x, generator=seeded(1))
    assert lipschitz(f, x, iterations=1, generator=seeded(1)) != lipschitz(f, x, iterations=1, generator=seeded(2))
    assert jacobian_penalty(f, x, generator=seeded(1)) != jacobian_penalty(f, x, generator=seeded(2))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(x, before)


def test_a_constant_map_and_a_broken_one() -> None:
    x = normal(*SHAPE)
    assert lipschitz(lambda z: torch.ones_like(z), x) == 0
    assert spectral_radius(lambda z: torch.ones_like(z), x) == 0
    assert math.isnan(lipschitz(lambda z: z * torch.nan, x))
    assert math.isnan(spectral_radius(lambda z: z * torch.nan, x))
    for measure in (lipschitz, spectral_radius):
        with pytest.raises(ValueError, match="iterations must be at least 1, got 0"):
            measure(lambda z: z, x, iterations=0)


def test_networks_with_weights_are_measured_without_recording() -> None:
    torch.manual_seed(0)
    net, x = CNN(2, 3).double(), uniform(1, 1, 5, 4)
    dense = jacobian(net, x)
    expected = float(torch.linalg.matrix_norm(dense.detach(), 2))
    assert lipschitz(net, x, iterations=100, generator=seeded()) == pytest.approx(expected, rel=1e-3)
    assert all(p.grad is None for p in net.parameters())
    with torch.no_grad():
        assert lipschitz(net, x, iterations=100, generator=seeded()) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("kind", [linear, bent])
def test_the_penalty_is_unbiased(kind: object) -> None:
    """The mean over many probes is ‖J‖²_F / n within four of its own standard errors."""
    f, x, generator = kind(MATRICES["random"]), normal(*SHAPE, seed=3), seeded()
    probes = torch.stack([jacobian_penalty(f, x, generator=generator).detach() for _ in range(1000)])
    expected = float(jacobian(f, x).square().sum()) / SIZE
    error = float(probes.std()) / math.sqrt(len(probes))
    assert error < 0.05 * expected
    assert abs(float(probes.mean()) - expected) < 4 * error


def test_the_penalty_can_be_trained() -> None:
    """Its gradient is that of the same quadratic form by hand, and following it shrinks the Jacobian."""
    matrix, x = normal(SIZE, SIZE).requires_grad_(), normal(*SHAPE, seed=3)
    (slope,) = torch.autograd.grad(jacobian_penalty(linear(matrix), x, generator=seeded()), matrix)
    v = torch.randn(SHAPE, generator=seeded(), dtype=torch.float64).flatten()
    by_hand = 2 * torch.outer(v, matrix.detach().T @ v) / SIZE
    assert torch.allclose(slope, by_hand, rtol=1e-10)

    torch.manual_seed(0)
    net, video = CNN(2, 3).double(), uniform(1, 2, 5, 5)
    sizes, generator = [float(jacobian(net, video).norm().detach())], seeded()
    optimiser = torch.optim.SGD(net.parameters(), lr=0.05)
    for _ in range(20):
        optimiser.zero_grad()
        jacobian_penalty(net, video, generator=generator).backward()
        optimiser.step()
    sizes.append(float(jacobian(net, video).norm().detach()))
    assert sizes[1] < 0.95 * sizes[0]


def test_the_gain_along_the_residual_finds_the_slowest_mode() -> None:
    """‖Jᵀr‖²/‖r‖² at any scale; after many iterations of a symmetric map, its largest eigenvalue squared."""
    values = torch.linspace(-0.5, 0.97, SIZE, dtype=torch.float64)
    basis = torch.linalg.qr(normal(SIZE, SIZE)).Q
    f, x = linear(basis @ values.diag() @ basis.T), normal(*SHAPE, seed=3)
    for point in (x, 1e-9 * x):
        r = (f(point) - point).flatten()
        expected = float(((basis @ values.diag() @ basis.T) @ r).square().sum() / r.square().sum())
        assert float(residual_gain(f, point)) == pytest.approx(expected, rel=1e-9)
    for _ in range(400):
        x = f(x)
    assert float(residual_gain(f, x)) == pytest.approx(0.97**2, rel=1e-3)


def test_the_penalty_can_be_trained_without_recording_around_it() -> None:
    net, video = CNN(2, 3).double(), uniform(1, 2, 5, 5)
    with torch.no_grad():
        assert float(jacobian_penalty(net, video).detach()) > 0
