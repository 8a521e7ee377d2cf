"""What rounding leaves of a residual: the floor that a certificate states, against iterations that stall."""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from laws import forward_mode, seeded
from unsnap import zoo
from unsnap.algorithms import GAP, gap_step
from unsnap.fixed_point import picard
from unsnap.models import Equilibrium
from unsnap.models.stability import certify, rounding_floor
from unsnap.networks import Capture, Certified, Conditioned
from unsnap.operators import Snapshot
from unsnap.simulate import render

C, SIZE = 0.8, 24
OUTLIERS = (0.0, 1e10)
KINDS = ("binary", "0 to 255", "either sign")


class Shown(Conditioned):
    """A denoiser with an anchor that does not depend on the snapshot, so that single and double have the same."""

    def __init__(self, network: Certified, anchor: Tensor) -> None:
        super().__init__()
        self.network, self.anchor = network, anchor

    def condition(self, capture: Capture) -> Any:
        return anchored(self.network, self.anchor)

    def lipschitz_bound(self) -> dict[str, object]:
        return self.network.lipschitz_bound()


def anchored(network: Certified, anchor: Tensor) -> Any:
    return lambda x, sigma: network.towards(anchor, x, sigma)


@cache
def trained(dtype: torch.dtype) -> Certified:
    return deepcopy(zoo.equilibrium("guided-certified").network).to(dtype).requires_grad_(False)


@cache
def problem(outlier: float, kind: str = "binary", frames: int = 8, size: int = SIZE) -> tuple[Tensor, Snapshot, Tensor]:
    """A snapshot with two pixels beyond all measure, its camera, and the video."""
    r = torch.rand(frames, size, size, generator=seeded())
    masks = {"binary": (r > 0.5).float(), "0 to 255": (255 * r).round(), "either sign": 2 * r - 1}[kind]
    phi, video = Snapshot(masks), render(frames, size, size, seed=0)[None]
    y = phi.A(video)
    if outlier:
        y[0, 5, 6], y[0, 11, 9] = outlier, -outlier
    return y, phi, video


@cache
def stalled(outlier: float, kind: str, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Where 60 plain steps end, and the smallest relative residual of the last 20."""
    y, phi, video = problem(outlier, kind)
    denoise, y, phi = anchored(trained(dtype), video.to(dtype)), y.to(dtype), Snapshot(phi.masks.to(dtype))
    x, sizes = phi.A_dagger(y), []
    with torch.no_grad():
        for _ in range(60):
            new = gap_step(x, y, phi, denoise, 0.0)
            sizes.append((new - x).double().norm() / new.double().norm())
            x = new
    return x, torch.stack(sizes[-20:]).min()


@pytest.mark.parametrize(
    ("outlier", "kind"), [(0.0, "binary"), (1e10, "binary"), (0.0, "0 to 255"), (1e10, "either sign")]
)
def test_no_iteration_stalls_above_the_floor(outlier: float, kind: str) -> None:
    y, phi, _ = problem(outlier, kind)
    x, residual = stalled(outlier, kind, torch.float32)
    assert float(residual) <= rounding_floor(x, y, phi, C, spread=C)


def test_the_floor_is_that_of_the_formula_and_counts_the_snapshot() -> None:
    """Double precision lowers it by 2^29; a snapshot alone can raise it, and iterations do stall higher for it."""
    floors, residuals = [], []
    for outlier in OUTLIERS:
        y, phi, _ = problem(outlier)
        x, residual = stalled(outlier, "binary", torch.float32)
        floor = rounding_floor(x, y, phi, C)
        expected = 2**-23 * (float(phi.A_dagger(y).double().norm() / x.double().norm()) + 2) / (1 - C)
        assert floor == pytest.approx(expected, rel=1e-6)
        double = rounding_floor(x.double(), y.double(), Snapshot(phi.masks.double()), C)
        assert double == pytest.approx(expected / 2**29, rel=1e-5)
        floors.append(floor)
        residuals.append(float(residual))
    assert floors[0] < 3e-6  # an ordinary snapshot leaves room for a tolerance of 1e-5
    assert floors == sorted(floors)
    assert max(residuals) > 2 * floors[0]  # without the snapshot's size the floor would be wrong


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("frames", [1, 8])
def test_the_map_is_computed_to_one_rounding_of_the_sizes_involved(kind: str, frames: int) -> None:
    r"""E = u(‖Φ⁺y‖ + 2‖x‖), the model behind the floor, against the same map in double precision."""
    for outlier in OUTLIERS:
        y, phi, video = problem(outlier, kind, frames)
        values, x = [], phi.project(video, y).clamp(0, 1)
        for dtype in (torch.float32, torch.float64):
            camera, anchor = Snapshot(phi.masks.to(dtype)), video.to(dtype)
            with torch.no_grad():
                denoise = anchored(trained(dtype), anchor)
                values.append(gap_step(x.to(dtype), y.to(dtype), camera, denoise, 0.0).double())
        data = Snapshot(phi.masks.double()).A_dagger(y.double()).norm()
        size = 2**-24 * float(data + 2 * values[1].norm())
        assert float((values[0] - values[1]).norm()) <= size


@forward_mode
def test_the_certificate_says_when_rounding_keeps_the_tolerance_out_of_reach() -> None:
    shown = [Shown(trained(dtype), problem(0.0, size=16)[2].to(dtype)) for dtype in (torch.float32, torch.float64)]
    single, double = (Equilibrium(GAP(), net, solver=picard(), tol=1e-5, max_iter=100) for net in shown)
    assert certify(single).evaluations(1e-5) == 73
    assert "rounding may leave more beyond" in certify(single).statement
    y, phi, _ = problem(0.0, size=16)
    ordinary = certify(single, y, phi, iterations=1)
    assert ordinary.rounding is not None
    assert ordinary.evaluations(1e-5) in (73, 74, 75)
    assert f"rounding in float32 may leave {ordinary.rounding:.1e}" in ordinary.statement
    y, phi, _ = problem(1e10, size=16)
    broken = certify(single, y, phi, iterations=1)
    assert broken.rounding is not None
    assert 1e-5 < broken.rounding < 10  # two values of a clamped map cannot be further apart
    assert broken.evaluations(1e-5) is None
    assert "more than the tolerance 1e-05: compute in float64" in broken.statement  # some processors arrive by luck
    remedied = certify(double, y.double(), Snapshot(phi.masks.double()), iterations=1)
    enough = remedied.evaluations(1e-5)
    assert enough is not None
    with torch.no_grad():
        assert double(y.double(), Snapshot(phi.masks.double()), max_iter=enough).converged.all()


@pytest.mark.parametrize("power", [-100, 100])
def test_the_floor_does_not_depend_on_the_units_of_masks_and_snapshot(power: int) -> None:
    y, phi, video = problem(1e3)
    floor = rounding_floor(video, y, phi, C)
    assert rounding_floor(video, y * 2.0**power, Snapshot(phi.masks * 2.0**power), C) == floor
