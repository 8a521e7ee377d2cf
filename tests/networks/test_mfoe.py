"""Fields of experts with an explicit energy: the step is its gradient, the bound holds, and the energy never rises."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import Tensor

from laws import close, seeded
from unsnap.algorithms.descent import descent
from unsnap.masks import gray
from unsnap.networks import MFoE, build
from unsnap.networks.foreign import read_checkpoint
from unsnap.networks.mfoe import projected
from unsnap.operators import Snapshot
from unsnap.simulate import render

WEIGHTS = Path(__file__).parents[2] / "../shared/data/weights/mfoe/MFoE_groupsize_4.pth"
GENERATOR = seeded(1)
PHI = Snapshot(gray(2, 16, 18, generator=GENERATOR).double())
VIDEO = render(2, 16, 18, seed=1).double()
Y = PHI.A(VIDEO)


@pytest.fixture(scope="module")
def energy() -> MFoE:
    torch.manual_seed(0)
    net = MFoE(groups=3, size=3, channels=(2, 4)).double()
    with torch.no_grad():
        net.mu[-1].bias.fill_(1.0)  # sizes above 0, as those of trained ones
    return net


def random(*shape: int) -> Tensor:
    return torch.rand(*shape, generator=GENERATOR, dtype=torch.float64)


@pytest.mark.parametrize("size", [1, 4, 11])
def test_the_projection_on_the_ball(size: int) -> None:
    z = 3 * random(50, size) - 1.5
    p = projected(z)
    assert float(p.abs().sum(1).max()) <= 1 + 1e-12
    inside = z.abs().sum(1) <= 1
    close(p[inside], z[inside], 1e-12)
    # optimality: no vertex of the ball lies on the far side of the plane through p
    assert float(((z - p).abs().amax(1) - ((z - p) * p).sum(1))[~inside].abs().max()) < 1e-12


@pytest.mark.parametrize("sigma", [0.02, 0.3])
def test_the_step_is_the_gradient_of_the_value(energy: MFoE, sigma: float) -> None:
    x = random(2, 3, 12, 9).requires_grad_()
    (gradient,) = torch.autograd.grad(energy.value(x, sigma).sum(), x)
    close(gradient, (energy.curvature() * (x - energy(x, sigma))).detach(), 1e-8)
    assert energy.value(x, sigma).shape == (2,)


def test_the_gradient_is_lipschitz_and_flat_videos_cost_nothing_inside(energy: MFoE) -> None:
    a = random(4, 2, 14, 13)
    b = a + 1e-3 * random(4, 2, 14, 13)
    with torch.no_grad():
        moved = (a - energy(a, 0.1)) - (b - energy(b, 0.1))
        assert float((moved.flatten(1).norm(dim=1) / (a - b).flatten(1).norm(dim=1)).max()) <= 1
        flat = torch.full((1, 30, 30), 0.7, dtype=torch.float64)
        assert float((flat - energy(flat, 0.1))[..., 11:-11, 11:-11].abs().max()) < 1e-12


def test_the_energy_falls_at_every_step_and_the_snapshot_is_met(energy: MFoE) -> None:
    plain, fast = [], []

    def note(k: int, x: Tensor, change: Tensor) -> None:
        fast.append(float(energy.value(x, 0.1)))

    with torch.no_grad():
        x = PHI.A_dagger(Y)
        for _ in range(30):
            x = PHI.project(energy(x, 0.1), Y)
            plain.append(float(energy.value(x, 0.1)))
        found = descent(Y, PHI, energy, 0.1, 30, tol=0.0, callback=note).x
    for values in (plain, fast):
        assert all(b <= a * (1 + 1e-12) for a, b in pairwise(values))
        assert values[-1] < values[0]
    assert fast[-1] <= plain[-1]
    close(PHI.A(found), Y, 1e-9)


def test_sigma_per_sample_and_leading_axes(energy: MFoE) -> None:
    x = random(3, 2, 9, 8)
    sigma = torch.tensor([0.02, 0.1, 0.4], dtype=torch.float64)
    with torch.no_grad():
        together = energy(x, sigma)
        for k in range(3):
            close(together[k], energy(x[k], float(sigma[k])), 1e-12)
            close(energy.value(x, sigma)[k], energy.value(x[k], float(sigma[k])), 1e-12)


def test_a_file_of_the_published_layout(tmp_path: Path) -> None:
    torch.manual_seed(0)
    given = MFoE()
    assert sum(p.numel() for p in given.parameters()) == 13_602
    torch.save({"epoch": 3, "state_dict": given.state_dict(), "config": {"a": [1]}}, tmp_path / "mfoe.pth")
    found = read_checkpoint(tmp_path / "mfoe.pth")
    assert (found.name, found.iteration, found.facts["epoch"]) == ("mfoe", None, 3)
    again = build(found.name, found.settings)
    again.load_state_dict(found.state_dicts[0])
    x = torch.rand(1, 16, 16, generator=seeded())
    assert torch.equal(again(x, 0.1), given(x, 0.1))


@pytest.mark.skipif(not WEIGHTS.is_file(), reason="the shared data is not here")
def test_the_published_energy_is_lower_for_pictures_than_for_noisy_ones() -> None:
    found = read_checkpoint(WEIGHTS)
    net = build(found.name, found.settings)
    net.load_state_dict(found.state_dicts[0])
    clean = render(1, 48, 48, seed=2)
    noisy = clean + 0.1 * torch.randn(clean.shape, generator=seeded())
    with torch.no_grad():
        x = z = noisy
        t, scale = 1.0, float(net.curvature())  # type: ignore[operator]
        for _ in range(40):  # min ½‖x − noisy‖² + R(x), accelerated
            new = z - (z - noisy + scale * (z - net(z, 0.1))) / (1 + scale)
            longer = (1 + (1 + 4 * t * t) ** 0.5) / 2
            z, x, t = new + (t - 1) / longer * (new - x), new, longer
    assert float((x - clean).square().mean()) < 0.3 * float((noisy - clean).square().mean())
