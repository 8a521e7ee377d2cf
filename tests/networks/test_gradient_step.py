"""D = I − τ∇g with a proven τ: the energy falls along D and along projected descent."""

from __future__ import annotations

import pytest
import torch

from laws import close, normal, seeded, uniform
from unsnap.networks import GradientStep
from unsnap.operators import Snapshot

both = pytest.mark.parametrize("convex", [True, False])


def made(convex: bool, scale: float = 1.0, kernel: int = 5) -> GradientStep:
    torch.manual_seed(1)
    net = GradientStep(channels=6, kernel=kernel, convex=convex).double().requires_grad_(False)
    with torch.no_grad():
        net.weight.mul_(scale)
        net.bias.add_(0.3 * normal(6))
    return net


@both
@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0])
def test_the_step_is_down_the_gradient_of_the_value(convex: bool, scale: float) -> None:
    net, x = made(convex, scale), uniform(2, 3, 7, 6).requires_grad_()
    (slope,) = torch.autograd.grad(net.value(x).sum(), x)
    step = net.lipschitz_bound()["step"]
    close((x - net(x)).detach(), step * slope, 1e-10)
    assert step * float(net.curvature()) == pytest.approx(0.9)


@both
@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0])
def test_curvature_bounds_the_hessian(convex: bool, scale: float) -> None:
    net = made(convex, scale)
    for seed in range(3):
        x = (0.0 if seed == 2 else 1.0) * uniform(1, 6, 7, seed=seed)
        hessian = torch.autograd.functional.hessian(lambda z: net.value(z).sum(), x).reshape(42, 42)
        eigenvalues = torch.linalg.eigvalsh(hessian)
        assert float(eigenvalues.abs().max()) <= float(net.curvature())
        jacobian = torch.eye(42) - net.lipschitz_bound()["step"] * hessian
        assert float(torch.linalg.matrix_norm(jacobian, 2)) <= net.lipschitz_bound()["bound"] + 1e-12
        assert not convex or float(eigenvalues.min()) >= -1e-9 * float(net.curvature())


def test_the_bound_is_not_idle() -> None:
    """At the bottom of ψ the Hessian is KᵀK: for one smoothing filter the bound is nearly reached."""
    net = GradientStep(channels=1, kernel=3).double().requires_grad_(False)
    with torch.no_grad():
        net.weight.fill_(1)
        hessian = torch.autograd.functional.hessian(lambda z: net.value(z).sum(), torch.zeros(1, 16, 16).double())
    largest = float(torch.linalg.eigvalsh(hessian.reshape(256, 256)).max())
    assert 0.9 * float(net.curvature()) < largest <= float(net.curvature())


@both
@torch.no_grad()
def test_energy_falls_along_the_denoiser_and_along_projected_descent(convex: bool) -> None:
    net = made(convex, scale=3.0)
    phi = Snapshot((torch.rand(4, 8, 9, generator=seeded(3), dtype=torch.float64) > 0.5).double())
    y = phi.A(uniform(2, 4, 8, 9, seed=5))
    free, bound = uniform(2, 4, 8, 9), phi.project(uniform(2, 4, 8, 9), y)
    for _ in range(40):
        next_free, next_bound = net(free), phi.project(net(bound), y)
        for old, new in ((free, next_free), (bound, next_bound)):
            assert bool((net.value(new) < net.value(old)).all())
            # The decrease that descent with τ < 1/L guarantees.
            gain = (1 / net.lipschitz_bound()["step"] - float(net.curvature()) / 2) * (new - old).square().sum(
                (1, 2, 3)
            )
            assert bool((net.value(old) - net.value(new) >= gain * (1 - 1e-9)).all())
        free, bound = next_free, next_bound


@both
def test_value_is_one_number_per_sample(convex: bool) -> None:
    net, x = made(convex), uniform(2, 3, 4, 5, 6)
    assert net.value(x).shape == (2, 3)
    close(net.value(x)[1, 2], net.value(x[1, 2]))
    with torch.no_grad():
        z = torch.nn.functional.conv2d(x.reshape(-1, 1, 5, 6), net.weight, net.bias, padding=2)
        potential = (1 + z**2).sqrt() - 1 if convex else 0.5 * (1 + z**2).log()
        close(net.value(x), potential.reshape(2, 3, -1).sum(-1), 1e-12)


def test_no_filters_no_step() -> None:
    net = GradientStep(channels=2, kernel=3).requires_grad_(False)
    with torch.no_grad():
        net.weight.zero_()
        x = uniform(1, 4, 4).float()
        assert torch.equal(net(x), x)
    assert net.lipschitz_bound()["step"] == 0
