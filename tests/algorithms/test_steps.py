"""Each step is its equation: against dense matrices and the recursion written out by hand."""

from __future__ import annotations

import itertools
import math
from functools import partial

import pytest
import torch
from problems import PHI, PRIOR, SIZE, Y
from torch import Tensor

import laws
from laws import close, each, normal, uniform
from unsnap.algorithms import (
    ITERATIONS,
    AcceleratedGAP,
    ADMMState,
    DescentState,
    FISTAState,
    GAPState,
    accelerated_gap_step,
    admm,
    admm_step,
    admm_unscaled_step,
    descent_step,
    fista,
    fista_step,
    gap,
    gap_step,
    gd_step,
    pgd,
    pgd_step,
)
from unsnap.algorithms.gd import gradient
from unsnap.algorithms.schedules import geometric
from unsnap.operators import CodedOperator, Multishot, Snapshot
from unsnap.priors import TV

OPERATORS = {"snapshot": PHI, "multishot": Multishot(normal(2, *SIZE))}
X = uniform(*SIZE, seed=5)
SCHEDULE = geometric(0.2, 0.02, 6)


phi = each(OPERATORS)


def matrix_and_data(phi: CodedOperator) -> tuple[Tensor, Tensor]:
    return laws.dense(phi, SIZE), phi.A(uniform(*SIZE, seed=6))


def quadratic(x: Tensor) -> Tensor:
    return 0.3 * x.pow(3).sum()


# One step against dense algebra


def test_gradient_step(phi: CodedOperator) -> None:
    M, y = matrix_and_data(phi)
    expected = X.flatten() + 0.1 * M.T @ (y.flatten() - M @ X.flatten()) - 0.1 * 0.9 * X.flatten() ** 2
    close(gd_step(X, y, phi, partial(gradient, quadratic), 0.1).flatten(), expected)


def test_proximal_gradient_step(phi: CodedOperator) -> None:
    M, y = matrix_and_data(phi)
    moved = X.flatten() + 0.1 * M.T @ (y.flatten() - M @ X.flatten())
    close(pgd_step(X, y, phi, PRIOR, 0.07, 0.1), PRIOR(moved.reshape(SIZE), 0.07))


def test_gap_step(phi: CodedOperator) -> None:
    M, y = matrix_and_data(phi)
    projected = X.flatten() + torch.linalg.pinv(M) @ (y.flatten() - M @ X.flatten())
    close(gap_step(X, y, phi, PRIOR, 0.07), PRIOR(projected.reshape(SIZE), 0.07), 1e-9)


def test_admm_step(phi: CodedOperator) -> None:
    M, y = matrix_and_data(phi)
    w, rho = 0.1 * normal(*SIZE), 0.4
    system = M.T @ M + rho * torch.eye(M.shape[1], dtype=M.dtype)
    x = torch.linalg.solve(system, M.T @ y.flatten() + rho * (X - w).flatten()).reshape(SIZE)
    v, new_w = admm_step(ADMMState(X, w), y, phi, PRIOR, 0.07, rho)
    close(v, PRIOR(x + w, 0.07), 1e-9)
    close(new_w, w + x - v, 1e-9)


# The recursions, by hand


def test_accelerated_gap_carries_the_misfit(phi: CodedOperator) -> None:
    y = matrix_and_data(phi)[1]
    x, carried = phi.A_dagger(y), y
    for sigma in SCHEDULE:
        carried = carried + (y - phi.A(x))
        x = PRIOR(x + phi.A_dagger(carried - phi.A(x)), sigma)
    close(gap(y, phi, PRIOR, SCHEDULE, tol=0).x, x, 1e-10)
    state = accelerated_gap_step(GAPState(X, y), y, phi, PRIOR, 0.1)
    close(state.carried, 2 * y - phi.A(X))


def test_plain_gap_repeats_its_step(phi: CodedOperator) -> None:
    y = matrix_and_data(phi)[1]
    x = X
    for sigma in SCHEDULE:
        x = gap_step(x, y, phi, PRIOR, sigma)
    close(gap(y, phi, PRIOR, SCHEDULE, accelerate=False, x0=X, tol=0).x, x)


def test_pgd_repeats_its_step() -> None:
    x = X
    for sigma in SCHEDULE:
        x = pgd_step(x, Y[0], PHI, PRIOR, sigma, 1 / PHI.norm() ** 2)
    close(pgd(Y[0], PHI, PRIOR, SCHEDULE, x0=X, tol=0).x, x)


def test_fista_extrapolates() -> None:
    y, alpha = Y[0], 1 / PHI.norm() ** 2
    x = z = X
    t = 1.0
    for sigma in SCHEDULE:
        new = pgd_step(z, y, PHI, PRIOR, sigma, alpha)
        later = (1 + math.sqrt(1 + 4 * t * t)) / 2
        z = new + (t - 1) / later * (new - x)
        x, t = new, later
    close(fista(y, PHI, PRIOR, SCHEDULE, x0=X, tol=0).x, x)
    first = fista_step(FISTAState(X, X, torch.ones(())), y, PHI, PRIOR, 0.1, alpha)
    close(first.z, first.x)  # no momentum yet


def test_admm_repeats_its_step() -> None:
    rho, state = 0.1 * PHI.norm() ** 2, ADMMState(X, torch.zeros_like(X))
    for sigma in SCHEDULE:
        state = admm_step(state, Y[0], PHI, PRIOR, sigma, rho)
    close(admm(Y[0], PHI, PRIOR, SCHEDULE, x0=X, tol=0).x, state.v)


@pytest.mark.parametrize("rho", [1e-2, 0.37, 20.0])
def test_scaled_and_unscaled_admm_are_the_same(phi: CodedOperator, rho: float) -> None:
    y = matrix_and_data(phi)[1]
    scaled = unscaled = ADMMState(phi.A_dagger(y), torch.zeros_like(X))
    for sigma in geometric(0.2, 0.02, 50):
        scaled = admm_step(scaled, y, phi, PRIOR, sigma, rho)
        unscaled = admm_unscaled_step(unscaled, y, phi, PRIOR, sigma, rho)
        close(unscaled.v, scaled.v, 1e-10)
        close(unscaled.w, rho * scaled.w, 1e-10, scale=rho * scaled.v)


def test_accelerated_gap_is_admm_with_vanishing_rho() -> None:
    carried, dual = GAPState(PHI.A_dagger(Y[0]), Y[0]), ADMMState(PHI.A_dagger(Y[0]), torch.zeros_like(X))
    for _ in range(20):
        carried = accelerated_gap_step(carried, Y[0], PHI, PRIOR, 0.1)
        dual = admm_step(dual, Y[0], PHI, PRIOR, 0.1, 1e-10)
        close(dual.v, carried.x, 1e-8)
        close((Y[0] + PHI.A(dual.w))[PHI.energy > 0], (carried.carried + Y[0] - PHI.A(carried.x))[PHI.energy > 0], 1e-8)


def test_the_projection_is_admms_first_step_with_vanishing_rho() -> None:
    def distance(rho: float) -> float:
        state = admm_step(ADMMState(X, torch.zeros_like(X)), Y[0], PHI, lambda x, s: x, 0.0, rho)
        return float((state.v - gap_step(X, Y[0], PHI, lambda x, s: x, 0.0)).norm())

    assert distance(1e-8) < 1e-6
    assert distance(1e-4) / distance(1e-6) == pytest.approx(100, rel=0.05)


# Plain GAP with a true prox is an averaged map


def test_residual_of_plain_gap_never_grows() -> None:
    denoise = TV(temporal=0.3, isotropic=False, iterations=1000)
    x, changes = PHI.A_dagger(Y[0]), []
    for _ in range(30):
        new = gap_step(x, Y[0], PHI, denoise, 0.02)
        changes.append(float((new - x).norm()))
        x = new
    assert all(b <= a * (1 + 1e-6) for a, b in itertools.pairwise(changes))


# Derivatives


@pytest.mark.parametrize("name", list(OPERATORS))
def test_derivative_of_unrolled_gap(name: str) -> None:
    """With respect to the snapshot, the start, and a weight inside the denoiser."""
    shots = [2] if name == "multishot" else []
    phi = (Multishot if shots else Snapshot)(normal(*shots, 2, 3, 2))

    def unrolled(y: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        for _ in range(3):
            x = gap_step(x, y, phi, lambda v, s: v - weight * torch.tanh(v) * s, 0.5)
        return x

    inputs = (normal(*shots, 3, 2), normal(2, 3, 2, seed=1), normal(2, 1, 1, seed=2))
    assert torch.autograd.gradcheck(unrolled, tuple(t.requires_grad_() for t in inputs))


def test_derivative_with_respect_to_masks() -> None:
    y, x = normal(3, 2), normal(2, 3, 2, seed=1)
    for step in (
        lambda m: gap_step(x, y, Snapshot(m), TV(), 0.1),
        lambda m: pgd_step(x, y, Snapshot(m), TV(), 0.1, 0.2),
        lambda m: admm_step(ADMMState(x, 0.1 * x), y, Snapshot(m), TV(), 0.1, 0.3).w,
    ):
        assert torch.autograd.gradcheck(step, uniform(2, 3, 2).requires_grad_())


def test_gradient_step_can_be_differentiated_again() -> None:
    """In x, in y, and in the weights of a learned regulariser, also from a start without gradient."""
    phi = Snapshot(normal(2, 3, 2))

    def unrolled(y: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        for _ in range(2):
            x = gd_step(x, y, phi, partial(gradient, lambda v: (weight * v).tanh().square().sum()), 0.1)
        return x

    y, x, weight = normal(3, 2), normal(2, 3, 2, seed=1), normal(2, 1, 1, seed=2)
    assert torch.autograd.gradcheck(unrolled, tuple(t.clone().requires_grad_() for t in (y, x, weight)))
    assert torch.autograd.gradcheck(lambda w: unrolled(y, x, w), weight.clone().requires_grad_())


def test_gradient_records_nothing_that_nobody_asked_for() -> None:
    assert not gradient(quadratic, X).requires_grad
    learnable = X.clone().requires_grad_()
    with torch.no_grad():
        assert not gradient(quadratic, learnable).requires_grad
    assert learnable.grad is None
    assert gradient(quadratic, learnable).requires_grad


@laws.forward_mode
def test_function_transforms() -> None:
    x, y = uniform(3, *SIZE), Y
    step = lambda a, b: gap_step(a, b, PHI, PRIOR, 0.1)  # noqa: E731
    close(torch.func.vmap(step)(x, y), step(x, y))
    direction, h = normal(3, *SIZE), 1e-6
    _, slope = torch.func.jvp(lambda a: step(a, y), (x,), (direction,))
    close(slope, (step(x + h * direction, y) - step(x - h * direction, y)) / (2 * h), 1e-5)


def test_accelerated_gap_is_douglas_rachford_and_keeps_its_promise(phi: CodedOperator) -> None:
    """z <- z + P(2 D(z) - z) - D(z) in what the denoiser is given; two runs never part if D is firmly nonexpansive."""
    y = phi.A(uniform(*SIZE, seed=6))
    turn, _ = torch.linalg.qr(normal(SIZE[-1], SIZE[-1], seed=7))
    runs = []
    for seed in (8, 9):
        seen: list[Tensor] = []

        def half(x: Tensor, sigma: float | Tensor, seen: list[Tensor] = seen) -> Tensor:
            seen.append(x)
            return (x + (x @ turn).abs()) / 2  # both a rotation and the absolute value are 1-Lipschitz

        state = GAPState(normal(*SIZE, seed=seed), y)
        for _ in range(12):
            state = accelerated_gap_step(state, y, phi, half, 0.0)
        for z, after in itertools.pairwise(seen[:12]):
            x = half(z, 0.0, [])
            close(z + phi.project(2 * x - z, y) - x, after)
        runs.append(torch.stack(seen[:12]))
    apart = (runs[0] - runs[1]).flatten(1).norm(dim=1)
    assert bool((apart.diff() <= 1e-12).all())
    assert float(apart[-1]) < 0.9 * float(apart[0])


def test_accelerated_gap_as_a_map_forgets_what_is_not_in_the_range_of_the_adjoint(phi: CodedOperator) -> None:
    y, step = phi.A(uniform(*SIZE, seed=6)), AcceleratedGAP().step
    w = phi.A_dagger(normal(*phi.image, seed=7))
    hidden = normal(*SIZE, seed=8)
    hidden = hidden - phi.A_dagger(phi.A(hidden))
    expected, found = (step((X, part), y, phi, PRIOR, 0.07) for part in (w, w + hidden))
    for a, b in zip(found, expected, strict=True):
        close(a, b, 1e-9)
    carried = accelerated_gap_step(GAPState(X, y + phi.A(w)), y, phi, PRIOR, 0.07)
    close(found[0], carried.x, 1e-9)
    close(phi.A(found[1]), carried.carried - y, 1e-9)


class Bowl:
    """R(x) = ½‖x − 1‖² and half a step down; `broken` where it has no value."""

    broken = math.inf

    def __call__(self, x: Tensor, sigma: float | Tensor, /) -> Tensor:
        return x - 0.5 * (x - 1)

    def value(self, x: Tensor, sigma: float | Tensor, /) -> Tensor:
        value = 0.5 * (x - 1).square().sum((-3, -2, -1))
        return torch.where(value > self.broken, math.nan, value)


@pytest.mark.parametrize("broken", [math.inf, 1e3])
def test_descent_drops_its_momentum_where_it_would_rise(phi: CodedOperator, broken: float) -> None:
    """Of two samples the second was thrown far away by it, where the energy is larger or has no value."""
    energy, x = Bowl(), uniform(2, *SIZE, seed=6)
    energy.broken = broken
    y = phi.A(x)
    z = torch.stack([x[0], x[1] + 100])
    t = torch.full((2, 1, 1, 1), 3.0, dtype=x.dtype)
    found = descent_step(DescentState(x, z, t, energy.value(x, 0.1)[:, None, None, None]), y, phi, energy, 0.1)
    close(found.x, phi.project(energy(x, 0.1), y))
    longer = [(1 + math.sqrt(1 + 4 * n**2)) / 2 for n in (3.0, 1.0)]
    assert found.t.flatten().tolist() == pytest.approx(longer)
    close(found.z[0], found.x[0] + 2 / longer[0] * (found.x[0] - x[0]))
    close(found.z[1], found.x[1])
    close(found.value.flatten(), energy.value(found.x, 0.1))


@pytest.mark.parametrize("name", ["gap", "agap", "pgd", "gd", "admm"])
def test_a_denoiser_may_work_in_place(name: str) -> None:
    iteration, phi, x = ITERATIONS[name](), Snapshot(uniform(4, 8, 8)), uniform(4, 8, 8)
    y = phi.A(uniform(4, 8, 8, seed=1))
    usual = iteration.step(iteration.start(x), y, phi, lambda z, sigma: 0.8 * z + 0.05, 0.1)
    given = iteration.start(x.clone())
    in_place = iteration.step(given, y, phi, lambda z, sigma: z.mul_(0.8).add_(0.05), 0.1)
    for one, other, before, after in zip(usual, in_place, iteration.start(x), given, strict=True):
        close(other, one)
        assert torch.equal(before, after), "what the caller holds is the caller's"
