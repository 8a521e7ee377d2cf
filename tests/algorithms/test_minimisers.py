"""Different algorithms, one objective, one minimum: ½‖y − Φx‖² + λR(x)."""

from __future__ import annotations

import itertools
from functools import cached_property
from typing import Any

import pytest
import torch
from torch import Tensor

import laws
from laws import normal, uniform
from unsnap.algorithms import admm, fista, gd, pgd
from unsnap.algorithms.iterate import Solution
from unsnap.operators import CodedOperator, Multishot, Snapshot
from unsnap.priors import TV, Wavelet

SNAPSHOT = Snapshot(0.2 + uniform(3, 6, 5))
MULTISHOT = Multishot(0.3 * normal(4, 4, 8, 8) + 1.5 * torch.eye(4, dtype=torch.float64)[..., None, None])
HUBER = TV(temporal=0.5, smoothing=0.1, iterations=100)
CASES: dict[str, tuple[CodedOperator, Any]] = {
    "huber tv": (SNAPSHOT, HUBER),
    "tv": (SNAPSHOT, TV(temporal=0.5, iterations=300)),
    "anisotropic tv": (SNAPSHOT, TV(temporal=0.5, isotropic=False, iterations=300)),
    "wavelet": (MULTISHOT, Wavelet("haar", levels=2, temporal=True, shifts=1)),
}
WEIGHT = 0.1


class Problem:
    def __init__(self, phi: CodedOperator, prior: Any) -> None:
        self.phi, self.prior, self.alpha = phi, prior, 1 / phi.norm() ** 2
        # A small rho is faster, but asks a stronger prox, for which TV would need more inner iterations.
        self.rho = (0.3 if isinstance(prior, Wavelet) else 1.0) / self.alpha
        self.y = phi.A(uniform(*phi.masks.shape[-3:], seed=1).cumsum(-1) / 6)

    def objective(self, x: Tensor) -> Tensor:
        return 0.5 * (self.y - self.phi.A(x)).square().sum() + WEIGHT * self.prior.value(x)

    def solve(self, name: str, n: int, **watch: Any) -> Solution:
        watch = {"tol": 0.0, **watch}
        y, phi, prior, sigma = self.y, self.phi, self.prior, WEIGHT * self.alpha
        if name == "gd":
            alpha = 1.8 / (1 / self.alpha + WEIGHT * prior.curvature)
            return gd(y, phi, lambda x: WEIGHT * prior.value(x), n, alpha=alpha, **watch)
        if name == "admm":
            rho = self.rho
            return admm(y, phi, prior, [WEIGHT / rho] * n, rho=rho, **watch)
        return {"pgd": pgd, "fista": fista}[name](y, phi, prior, [sigma] * n, **watch)

    @cached_property
    def minimum(self) -> Tensor:
        return self.solve("fista", 200).x

    def course(self, name: str, n: int) -> list[float]:
        values: list[float] = []
        self.solve(name, n, callback=lambda k, x, r: values.append(float(self.objective(x))))
        return values


@pytest.fixture(params=list(CASES), scope="module")
def problem(request: pytest.FixtureRequest) -> Problem:
    return Problem(*CASES[request.param])


def test_all_reach_the_same_objective(problem: Problem) -> None:
    names = ["pgd", "admm"] + (["gd"] if problem.prior is HUBER else [])
    found = {name: problem.solve(name, 200).x for name in names} | {"fista": problem.minimum}
    values = {name: float(problem.objective(x)) for name, x in found.items()}
    best = min(values.values())
    assert max(values.values()) <= best * (1 + 1e-6), values


def test_the_minimum_is_one(problem: Problem) -> None:
    laws.minimises(problem.objective, problem.minimum, 1e-6, tries=20)


def test_pgd_never_climbs(problem: Problem) -> None:
    values = problem.course("pgd", 60)
    assert all(b <= a * (1 + 1e-7) for a, b in itertools.pairwise(values))
    assert values[-1] < values[0]


def test_gd_never_climbs() -> None:
    values = Problem(SNAPSHOT, HUBER).course("gd", 200)
    assert all(b <= a * (1 + 1e-12) for a, b in itertools.pairwise(values))
    assert values[-1] < 0.9 * values[0]


def test_momentum_pays() -> None:
    """Where the data leave more open (2-D TV, frames not tied together), FISTA needs far fewer iterations than PGD."""
    problem = Problem(SNAPSHOT, TV(iterations=200))
    level = float(problem.objective(problem.solve("pgd", 200).x))
    assert min(problem.course("fista", 69)) <= level


def test_solutions_are_reported_as_converged(problem: Problem) -> None:
    for name in ("pgd", "fista", "admm"):
        solution = problem.solve(name, 2000, tol=1e-4)
        assert bool(solution.converged)
        assert solution.iterations < 2000
