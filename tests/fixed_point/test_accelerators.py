"""Anderson and Broyden against their textbook forms, and the safeguard where plain Anderson fails."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from maps import affine, cell_problem
from torch import Tensor

from laws import close, normal
from unsnap.fixed_point import anderson, broyden, fixed_point, picard
from unsnap.fixed_point.anderson import _Guard

Map = Callable[[Tensor], Tensor]


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.no_grad():
        yield


def iterates(f: Map, z0: Tensor, solver, steps: int) -> list[Tensor]:
    """The points at which f is evaluated."""
    points: list[Tensor] = []
    fixed_point(lambda z: points.append(z) or f(z), z0, solver=solver, tol=0.0, max_iter=steps)
    return points


# Anderson.


def constrained_anderson(f: Map, z0: Tensor, memory: int, damping: float, steps: int) -> list[Tensor]:
    """(16) as printed, for one sample: min ‖Aα‖ subject to 1ᵀα = 1."""
    points = [z0]
    while len(points) < steps:
        recent = torch.cat(points[-memory:])
        values = torch.cat([f(z[None]) for z in recent])
        columns = (values - recent).T
        others = torch.linalg.lstsq(columns[:, 1:] - columns[:, :1], -columns[:, :1]).solution.squeeze(1)
        alpha = torch.cat([1 - others.sum()[None], others])
        points.append(((1 - damping) * alpha @ recent + damping * alpha @ values)[None])
    return points


@pytest.mark.parametrize("damping", [1.0, 0.6, 1.3])
@pytest.mark.parametrize("memory", [1, 2, 4, 6])
def test_differences_are_the_constrained_formula(memory: int, damping: float) -> None:
    network, y, z0 = cell_problem(batch=1, n=12, gain=1.5)
    f = lambda z: network(z, y)  # noqa: E731
    found = iterates(f, z0, anderson(memory, damping, ridge=0.0), 12)
    for z, expected in zip(found, constrained_anderson(f, z0, memory, damping, 12), strict=True):
        close(z, expected, 1e-10)


def test_on_a_linear_problem_it_is_gmres() -> None:
    """z_{k+1} = f(GMRES iterate k), so n + 1 steps reach the solution. Walker & Ni, theorem 2.2."""
    f, z0, n = affine([0.9], n=8), normal(1, 8), 8
    matrix, r0 = torch.eye(n, dtype=torch.float64) - f.matrices[0], (f(z0) - z0)[0]
    points = iterates(f, z0, anderson(memory=n + 1, ridge=0.0), n + 2)
    krylov = r0[:, None]
    for k in range(1, n + 1):
        weights = torch.linalg.lstsq(matrix @ krylov, r0[:, None]).solution
        best = z0 + (krylov @ weights).T
        close(points[k + 1], f(best), 1e-8)
        krylov = torch.linalg.qr(torch.cat([krylov, matrix @ krylov[:, -1:]], 1))[0]
    close(points[n + 1], f.solution, 1e-10)


def test_updated_gram_is_the_gram_recomputed() -> None:
    f, z = affine([0.9, 0.8, 0.7]), normal(3, 10)
    memory = anderson(memory=4).start()
    for k in range(8):
        z = memory.propose(z, f(z) - z)
        if k == 5:
            rows = torch.tensor([0, 2])
            memory.select(rows)
            f, z = f.select(rows), z[rows]
        if k > 0:
            used = min(k, 3)
            stored = memory._changes[:used].transpose(0, 1)
            close(memory._gram[:, :used, :used], stored @ stored.mT)


def test_half_precision_history_is_half_and_converges_all_the_same() -> None:
    f, z0 = affine([0.95, 0.99], n=30), torch.zeros(2, 30, dtype=torch.float64)
    full, half = (
        fixed_point(f, z0, solver=anderson(memory=6, history=history), tol=1e-9, max_iter=500)
        for history in (None, torch.float16)
    )
    assert half.converged.all()
    assert half.evaluations <= 1.5 * full.evaluations
    memory = anderson(history=torch.float16).start()
    for scale in (1e-9, 1e9):  # float16 alone reaches from 6e-8 to 65504
        memory.propose(scale * normal(1, 5, seed=1), scale * normal(1, 5, seed=2))
    for kept in (memory._moves, memory._changes):
        assert kept.dtype == torch.float16
        assert kept[0].abs().max() == 1


def test_without_information_it_takes_the_plain_step() -> None:
    """f(z) = z + c has residual differences of zero."""
    points = iterates(lambda z: z + 3, torch.zeros(1, 4), anderson(memory=4, ridge=0.0), 7)
    assert torch.cat(points)[:, 0].tolist() == [0, 3, 6, 9, 12, 15, 18]


def test_parallel_differences_are_no_harm() -> None:
    """All residuals lie on one line, so the second difference already adds nothing."""
    solution = fixed_point(lambda z: 0.9 * z + 1, torch.zeros(2, 5), solver=anderson(ridge=0.0), tol=1e-6)
    close(solution.x, torch.full((2, 5), 10.0), 1e-5)


def test_a_small_recent_difference_counts_beside_a_large_old_one() -> None:
    """Six eigenvalues far apart: each step removes one and shrinks the differences; the ridge must not drown them."""
    rates = torch.tensor([0.3, 0.1, 0.03, 0.01, 0.003, 0.001], dtype=torch.float64).repeat(4)
    options = {"tol": 1e-13, "max_iter": 30}
    exact, ridged = (
        fixed_point(lambda z: rates * z + 1, normal(1, 24), solver=anderson(9, ridge=ridge), **options)
        for ridge in (0.0, 1e-8)
    )
    assert ridged.converged.all()
    assert ridged.evaluations == exact.evaluations


# The safeguard. All maps here are averaged, so that the plain iteration converges from any start.


def arctan(z: Tensor) -> Tensor:
    """Firmly nonexpansive (slope in [0, 1)) with fixed point 1; the secant method overshoots and runs away."""
    return z - (z - 1).arctan()


def averaged(seed: int, n: int = 12) -> Map:
    """Compositions of projections and rotations, of which some change their active set all the way."""
    a, offset = normal(4, n, seed=seed), 0.3 * normal(4, seed=seed + 100)
    inverse = torch.linalg.pinv(a)
    rotation = torch.linalg.qr(normal(n, n, seed=seed + 200))[0]

    def project(z: Tensor) -> Tensor:
        return z - (z @ a.T - offset) @ inverse.T

    kinds: list[Map] = [
        lambda z: project(z).clamp(-0.5, 0.5),
        lambda z: 0.5 * z + 0.5 * (2 * (2 * project(z) - z).clamp(-0.5, 0.5) - (2 * project(z) - z)),
        lambda z: 0.5 * z + 0.5 * ((z @ rotation).clamp(-1, 1) + 0.1).abs(),
        lambda z: torch.nn.functional.softshrink(z - 0.05 * (z @ a.T - offset) @ a, 0.02),
    ]
    return kinds[seed % 4]


def test_safeguard_converges_where_plain_anderson_runs_away() -> None:
    z0 = torch.tensor([[9.0], [12.0], [-30.0], [101.0]], dtype=torch.float64)
    options = {"tol": 1e-10, "max_iter": 400}
    wild = fixed_point(arctan, z0, solver=anderson(memory=2), **options)
    assert ((wild.x - 1).abs() > 1e3).all()
    plain = fixed_point(arctan, z0, solver=picard(), **options)
    for factor in (0.5, 0.9, 0.99):
        safe = fixed_point(arctan, z0, solver=anderson(memory=2, safeguard=factor), **options)
        assert safe.converged.all()
        close(safe.x, torch.ones_like(z0), 1e-9)
        assert (safe.steps <= 2 * plain.steps + 10).all()


def test_safeguard_comes_back_from_outside_the_domain() -> None:
    """Accelerated points where f has no value are refused like any other that does not help."""
    z0 = torch.tensor([[9.0], [2.0], [12.0]], dtype=torch.float64)

    def bounded(z: Tensor) -> Tensor:
        return torch.where((z - 1).abs() > 20, math.nan, arctan(z))

    options = {"tol": 1e-10, "max_iter": 100}
    assert fixed_point(bounded, z0, solver=anderson(memory=4), **options).diverged.tolist() == [True, False, True]
    safe = fixed_point(bounded, z0, solver=anderson(memory=4, safeguard=0.9), **options)
    assert safe.converged.all()
    assert not safe.diverged.any()
    assert torch.isnan(safe.residual).any()
    close(safe.x, torch.ones_like(z0), 1e-9)


@pytest.mark.parametrize("history", [None, torch.float32, torch.float16])
def test_acceleration_goes_on_after_a_point_without_a_value(history: torch.dtype | None) -> None:
    """The third evaluation, the first of an accelerated point, has none; plain steps alone would take 1800."""
    slow, calls = torch.tensor([0.99, 0.9, 0.5], dtype=torch.float64), iter(range(1000))

    def f(z: Tensor) -> Tensor:
        return (1 + slow * (z - 1)) * (math.nan if next(calls) == 2 else 1)

    solver = anderson(memory=4, safeguard=0.9, history=history)
    solution = fixed_point(f, torch.zeros(1, 3, dtype=torch.float64), solver=solver, tol=1e-8, max_iter=60)
    assert torch.isnan(solution.residual).sum() == 1
    assert solution.converged.all()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("memory", "damping"), [(2, 1.0), (6, 1.9)])
def test_safeguarded_residual_never_rises_and_refusals_are_paid_once(
    seed: int, memory: int, damping: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Accepted residuals never increase; after a refusal comes a plain step, so at most every other point is lost."""
    accepted, sizes = [], []
    accepts = _Guard.accepts

    def spy(self: _Guard, size: Tensor) -> Tensor:
        counts = accepts(self, size)
        accepted.append(bool(counts))
        sizes.append(float(self._size))
        return counts

    monkeypatch.setattr(_Guard, "accepts", spy)
    f, z0, options = averaged(seed), 3 * normal(1, 12, seed=seed), {"tol": 1e-3, "max_iter": 1500}
    solution = fixed_point(f, z0, solver=anderson(memory, damping, safeguard=0.9), **options)
    assert solution.converged.all()
    assert solution.evaluations <= 2.5 * fixed_point(f, z0, solver=picard(), **options).evaluations + 10
    assert all(later <= earlier * (1 + 1e-12) for earlier, later in pairwise(sizes))
    assert not any(not a and not b for a, b in pairwise(accepted))


def test_a_point_that_was_only_tried_is_no_solution() -> None:
    """The residual is constant away from 5, so relative to a point absurdly far away it is as small as one likes."""
    slow = lambda z: z - 0.1 * (z - 5).clamp(-1, 1)  # noqa: E731
    z0 = torch.tensor([[10.0], [4.5], [-1.0]], dtype=torch.float64)
    solution = fixed_point(slow, z0, solver=anderson(safeguard=0.9), tol=1e-6, max_iter=2000)
    assert (solution.residual < 1e-6).any(0).all()
    assert solution.converged.all()
    close(solution.x, torch.full_like(z0, 5), 1e-4)
    early = fixed_point(slow, z0, solver=anderson(safeguard=0.9), tol=1e-6, max_iter=20)
    assert early.converged.tolist() == [False, True, False]
    assert early.x.abs().max() <= 10


def test_a_tried_point_without_a_value_is_no_divergence() -> None:
    """Whenever the evaluations run out, the last accepted point stands."""
    bounded = lambda z: torch.where((z - 1).abs() > 20, math.nan, arctan(z))  # noqa: E731
    z0 = torch.full((1, 1), 9.0, dtype=torch.float64)
    seen = set()
    for count in range(1, 12):
        solution = fixed_point(bounded, z0, solver=anderson(safeguard=0.9), tol=0.0, max_iter=count)
        assert not solution.diverged.any()
        assert solution.best.isfinite().all()
        seen.add(bool(solution.residual[-1].isnan()))
    assert seen == {True, False}


def test_safeguard_does_not_test_the_first_plain_step() -> None:
    """A rotation hardly lowers the residual; going back to the start would repeat an evaluation."""
    turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)
    points = iterates(lambda z: 0.01 * z + 0.99 * z @ turn + 1, normal(1, 2), anderson(2, safeguard=0.5), 20)
    distances = torch.cdist(torch.cat(points), torch.cat(points)) + torch.eye(20)
    assert distances.min() > 0


def test_over_relaxation_with_a_safeguard_keeps_the_plain_step_that_is_proven() -> None:
    """z -> −0.9z is averaged; the plain step with δ = 1.9 multiplies by −2.61."""
    mirror, z0 = lambda z: -0.9 * z, normal(1, 4)
    assert fixed_point(mirror, z0, solver=anderson(1, 1.9), max_iter=50).best > 0.5
    first, second = iterates(mirror, z0, anderson(3, 1.9, safeguard=0.5), 2)
    close(second, mirror(first))
    for memory in (1, 2, 5):
        solver = anderson(memory, 1.9, safeguard=0.5)
        points = iterates(lambda z: mirror(z) + 1, z0, solver, 200)
        close(points[-1], torch.full_like(z0, 1 / 1.9), 1e-6)


def test_one_point_is_the_plain_iteration() -> None:
    network, y, z0 = cell_problem()
    f = lambda z: network(z, y)  # noqa: E731
    for solver in (anderson(1), anderson(1, safeguard=0.5), anderson(1, 1.4, safeguard=0.5)):
        for found, expected in zip(iterates(f, z0, solver, 9), iterates(f, z0, picard(), 9), strict=True):
            assert torch.equal(found, expected)
    z = z0
    for found in iterates(f, z0, anderson(1, 1.4), 9):
        close(found, z)
        z = -0.4 * z + 1.4 * f(z)


# Broyden.


def test_broyden_is_its_dense_formula() -> None:
    network, y, z0 = cell_problem(batch=1, n=7, gain=1.2)
    points = iterates(lambda z: network(z, y), z0, broyden(memory=20), 10)
    inverse, z = -torch.eye(7, dtype=torch.float64), z0[0]
    g = network(z, y[0]) - z
    for point in points:
        close(point[0], z, 1e-9)
        new = z - inverse @ g
        new_g = network(new, y[0]) - new
        dz, dg = new - z, new_g - g
        image = inverse @ dg
        inverse = inverse + torch.outer(dz - image, dz @ inverse) / (dz @ image)
        close(inverse @ dg, dz, 1e-9)
        z, g = new, new_g


def test_broyden_ends_on_a_linear_problem() -> None:
    """In at most 2n steps. Gay, SIAM J. Numer. Anal. 1979."""
    f = affine([0.9], n=6)
    solution = fixed_point(f, normal(1, 6), solver=broyden(memory=30), tol=1e-9, max_iter=13)
    assert solution.converged.all()


def test_broyden_restarts_with_the_plain_step() -> None:
    network, y, z0 = cell_problem(batch=2, n=7)
    f = lambda z: network(z, y)  # noqa: E731
    points = iterates(f, z0, broyden(memory=3), 13)
    plain = [torch.equal(later, z + (f(z) - z)) for z, later in pairwise(points)]
    assert [k for k, same in enumerate(plain) if same] == [0, 4, 8]
    inverse = broyden(memory=3).start()
    for z in points:
        inverse.propose(z, f(z) - z)
        assert len(inverse._steps) <= 3
    assert fixed_point(f, z0, solver=broyden(memory=3), tol=1e-10).converged.all()


def test_broyden_without_information_takes_the_plain_step() -> None:
    points = iterates(lambda z: z + 3, torch.zeros(1, 4), broyden(memory=3), 7)
    assert torch.cat(points)[:, 0].tolist() == [0, 3, 6, 9, 12, 15, 18]
