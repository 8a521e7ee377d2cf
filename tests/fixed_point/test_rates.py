"""The proven number of evaluations against adversaries who choose the accelerated points themselves."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from laws import seeded
from unsnap.fixed_point import anderson, broyden, fixed_point, picard, rates
from unsnap.fixed_point.anderson import Anderson
from unsnap.fixed_point.rates import Contraction, describe, evaluations, keeps_guarantees
from unsnap.fixed_point.solver import Solver

REST = torch.ones(1, 4, dtype=torch.float64)
FAR = 100.0
ANDERSON = sys.modules[Anderson.__module__]

Adversary = Callable[[Tensor, float], Tensor]


def nonsense(z: Tensor, gamma: float) -> Tensor:
    """Always rejected: two evaluations for one plain step."""
    return z + 1e6


def barely(z: Tensor, gamma: float) -> Tensor:
    """Always accepted, with the least that is."""
    return REST + gamma * (1 - 1e-6) * (z - REST)


def lost(z: Tensor, gamma: float) -> Tensor:
    return z * torch.nan


def mixed(seed: int) -> Adversary:
    generator = seeded(seed)

    def choose(z: Tensor, gamma: float) -> Tensor:
        return (barely if float(torch.rand((), generator=generator)) < 0.5 else nonsense)(z, gamma)

    return choose


def measured(solver: Solver, c: float, tol: float) -> int:
    """Evaluations until f(z) = 1 + c(z − 1) rests, from far above; its residuals shrink by c exactly."""
    solution = fixed_point(lambda z: REST + c * (z - REST), REST + FAR * REST, solver=solver, tol=tol, max_iter=100_000)
    assert bool(solution.converged)
    return solution.evaluations


def proven(solver: Solver, c: float, tol: float) -> int:
    """All values are longer than ‖1‖ = 2, and the first residual is known."""
    found = evaluations(solver, Contraction(c, shortest=2.0), tol, start=(1 - c) * FAR * 2.0)
    assert found is not None
    return found


@pytest.mark.parametrize("c", [0.2, 0.8, 0.95])
@pytest.mark.parametrize("damping", [1.0, 0.4])
def test_picard_needs_exactly_what_is_proven(c: float, damping: float) -> None:
    solver, tol = picard(damping), 1e-6
    # ‖f‖ is a little more than ‖1‖ on the way, so the last step may be spared.
    assert proven(solver, c, tol) - 1 <= measured(solver, c, tol) <= proven(solver, c, tol)


@pytest.mark.parametrize(
    ("c", "gamma", "damping"),
    [
        (0.2, 0.3, 1.0),
        (0.2, 0.9, 1.0),
        (0.8, 0.9, 1.0),
        (0.81, 0.9, 1.0),
        (0.9, 0.9, 1.0),
        (0.8, 0.5, 0.5),
        (0.2, 0.95, 0.5),
    ],
)
def test_no_adversary_makes_the_safeguard_exceed_what_is_proven(
    monkeypatch: pytest.MonkeyPatch, c: float, gamma: float, damping: float
) -> None:
    solver, found = anderson(safeguard=gamma, damping=damping), []
    for adversary in (nonsense, barely, lost, mixed(0)):
        monkeypatch.setattr(ANDERSON, "combine", lambda z, *rest, play=adversary: play(z, gamma))
        found.append(measured(solver, c, 1e-3))
    bound = proven(solver, c, 1e-3)
    assert bound - 4 <= max(found) <= bound  # and it is no more than must be allowed for


@pytest.mark.parametrize("accepted", [0.3, 0.894, 0.9, 0.99])
@pytest.mark.parametrize("rejected", [0.2, 0.8, 0.95, 0.999])
def test_the_worst_mixture_is_found(accepted: float, rejected: float) -> None:
    for orders in (0.01, 0.3, 1.0, 2.7, 3.0):
        a, b = np.ogrid[:310, : 3010 if rejected > 0.99 else 70]
        allowed = a * -math.log(accepted) + b * -math.log(rejected) < orders
        best = (a + 2 * b)[allowed].max()
        assert rates._most(orders, accepted, rejected) == best


def test_without_a_bound_on_the_start_only_full_steps_have_a_number() -> None:
    f = Contraction(0.8, shortest=0.0125, spread=0.8)
    assert evaluations(picard(), f, 1e-5) == 73
    assert evaluations(picard(0.5), f, 1e-5) is None
    assert evaluations(anderson(safeguard=0.9, damping=0.5), f, 1e-5) is None
    assert evaluations(picard(), Contraction(0.8, shortest=0.0125), 1e-5) is None
    assert evaluations(picard(0.5), f, 1e-5, start=1.0) == 2 + math.ceil(math.log(0.9 / 1.25e-7) / -math.log(0.9))
    assert evaluations(picard(), f, 1e-5, start=1e-8) == 1
    assert evaluations(picard(), f, 70.0) == 2
    assert evaluations(picard(), f, 0.0) is None
    assert evaluations(picard(), f, math.nan) is None


class Elsewhere:
    def start(self) -> None:
        raise NotImplementedError


@pytest.mark.parametrize("solver", [anderson(), anderson(damping=0.5), broyden(), Elsewhere()], ids=describe)
def test_what_has_no_safeguard_has_no_number(solver: Solver) -> None:
    assert not keeps_guarantees(solver)
    assert evaluations(solver, Contraction(0.1, shortest=1.0, spread=0.1), 0.5, start=1e-3) is None


def test_solvers_in_words() -> None:
    solvers = [picard(0.5), anderson(safeguard=0.9, damping=0.5), broyden(), Elsewhere()]
    assert [describe(solver) for solver in solvers] == [
        "the plain iteration (damping 0.5)",
        "Anderson (safeguard 0.9, damping 0.5)",
        "Broyden's method",
        "Elsewhere",
    ]


@pytest.mark.parametrize("damping", [1.0, 1.5, 4.0, 10.0])
def test_no_damping_beyond_one_makes_the_proof_better(damping: float) -> None:
    """The safeguarded solver takes plain steps of 1 at the most, and so must the count."""
    solver, f = anderson(memory=1, damping=damping, safeguard=0.1), Contraction(0.8, shortest=1.0)
    proven = evaluations(solver, f, 1e-6, start=10.0)
    z0 = torch.full((1, 3), 6.0, dtype=torch.float64)
    needed = fixed_point(lambda z: 0.8 * z + 0.2, z0, solver=solver, tol=1e-6, max_iter=500).evaluations
    assert proven is not None
    assert needed <= proven
