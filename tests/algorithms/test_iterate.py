"""The loop: schedule, stopping, history and divergence, each sample for itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from laws import close, normal, uniform
from unsnap.algorithms.iterate import Solution, before, iterate, relative_change
from unsnap.errors import InputError

SHAPE = (2, 3, 4)
TARGET = 1 + uniform(3, *SHAPE)
RATES = torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64).reshape(3, 1, 1, 1)
START = torch.zeros(3, *SHAPE, dtype=torch.float64)


def contract(state: tuple[Tensor], _: float) -> tuple[Tensor]:
    """Sample n goes to its target at its own rate."""
    return (TARGET + RATES * (state[0] - TARGET),)


def explode(at: int, value: float, sample: int = 1):
    """`contract`, but one sample jumps to `value` in iteration `at`."""
    calls = iter(range(1, 10_000))

    def step(state: tuple[Tensor], sigma: float) -> tuple[Tensor]:
        x = contract(state, sigma)[0].clone()
        if next(calls) == at:
            x[sample] = value
        return (x,)

    return step


def test_every_sigma_of_the_schedule_is_used_in_order() -> None:
    seen: list[float] = []

    def step(state: tuple[Tensor], sigma: float) -> tuple[Tensor]:
        seen.append(sigma)
        return (state[0] + sigma,)

    solution = iterate(step, (START,), [3.0, 1.0, 0.5], tol=0.0)
    assert seen == [3.0, 1.0, 0.5]
    assert torch.equal(solution.x, START + 4.5)


@pytest.mark.parametrize("batch", [(), (1,), (3,), (2, 3), (0,)])
def test_history_has_one_relative_change_per_iteration_and_sample(batch: tuple[int, ...]) -> None:
    x = uniform(*batch, *SHAPE)
    solution = iterate(lambda s, sigma: (s[0] + sigma,), (x,), [1.0, 2.0], tol=0.0)
    assert solution.residual.shape == (solution.iterations, *batch)
    assert solution.converged.shape == solution.diverged.shape == batch
    if 0 not in batch:
        assert solution.iterations == 2
        expected = torch.stack([1.0 / (x + 1).flatten(-3).norm(dim=-1), 2.0 / (x + 3).flatten(-3).norm(dim=-1)])
        close(solution.residual, expected * x[..., 0, 0, 0].new_tensor(24.0).sqrt())


def test_a_sample_stops_for_itself_and_is_frozen() -> None:
    solution = iterate(contract, (START,), [0.0] * 500, tol=1e-4)
    assert bool(solution.converged.all())
    assert not bool(solution.diverged.any())
    lengths = []
    for n in range(3):
        history = solution.residual[:, n]
        stop = int((history <= 1e-4).nonzero()[0])
        lengths.append(stop + 1)
        assert bool((history[stop:] == history[stop]).all())
        close(solution.x[n], TARGET[n] * (1 - RATES[n] ** (stop + 1)), 1e-12)
    assert lengths == sorted(set(lengths))
    assert solution.iterations == lengths[-1]


def test_late_runs_to_the_end_and_only_judges_by_the_tolerance() -> None:
    solution = iterate(contract, (START,), [0.0] * 60, tol=1e-4, early=False)
    assert solution.iterations == 60
    assert solution.converged.tolist() == [True, True, False]
    close(solution.x, TARGET * (1 - RATES**60), 1e-12)


def test_zero_tolerance_stops_only_at_rest() -> None:
    assert iterate(contract, (START,), [0.0] * 7, tol=0.0).iterations == 7
    solution = iterate(contract, (TARGET,), [0.0] * 7, tol=0.0)
    assert solution.iterations == 1
    assert bool(solution.converged.all())


@pytest.mark.parametrize("value", [torch.nan, torch.inf, 1e200])
@pytest.mark.parametrize("early", [True, False])
def test_divergence_of_one_sample_is_flagged_and_keeps_its_last_finite_estimate(value: float, early: bool) -> None:
    solution = iterate(explode(4, value), (START,), [0.0] * 400, tol=1e-6, early=early)
    assert solution.diverged.tolist() == [False, True, False]
    assert solution.converged.tolist() == [True, False, True]
    close(solution.x[1], TARGET[1] * (1 - RATES[1] ** 3), 1e-12)
    undisturbed = iterate(contract, (START,), [0.0] * 400, tol=1e-6, early=early)
    for n in (0, 2):
        assert torch.equal(solution.x[n], undisturbed.x[n])
    assert not bool(torch.isfinite(solution.residual[-1, 1]))


def test_the_loop_ends_when_all_have_diverged() -> None:
    solution = iterate(lambda s, _: (s[0] * torch.nan,), (TARGET,), [0.0] * 50)
    assert solution.iterations == 1
    assert bool(solution.diverged.all())
    assert torch.equal(solution.x, TARGET)


def test_growth_without_bound_is_seen_before_it_overflows() -> None:
    solution = iterate(lambda s, _: (s[0] * 1e9,), (TARGET.float(),), [0.0] * 50)
    assert bool(solution.diverged.all())
    assert bool(torch.isfinite(solution.x).all())


def test_a_black_video_is_not_a_divergence() -> None:
    solution = iterate(lambda s, _: (torch.zeros_like(s[0]),), (TARGET,), [0.0] * 5)
    assert bool(solution.converged.all())
    assert solution.residual[:, 0].tolist() == [1.0, 0.0]


def test_callback_sees_every_iteration() -> None:
    seen: list[tuple[int, Tensor, Tensor]] = []
    solution = iterate(
        contract, (START,), [0.0] * 300, tol=1e-3, callback=lambda k, x, r: seen.append((k, x.clone(), r.clone()))
    )
    assert [k for k, _, _ in seen] == list(range(1, solution.iterations + 1))
    assert torch.equal(torch.stack([r for _, _, r in seen]), solution.residual)
    assert torch.equal(seen[-1][1], solution.x)
    close(seen[0][1], TARGET * (1 - RATES))


class Pair(NamedTuple):
    x: Tensor
    memory: Tensor
    count: Tensor


@pytest.mark.parametrize("kind", [tuple, Pair])
def test_whole_state_of_a_frozen_sample_is_kept(kind: type) -> None:
    """Memory of any rank travels along; a number shared by the batch goes on."""

    seen: list[tuple[Tensor, ...]] = []

    def step(state: tuple[Tensor, ...], _: float) -> tuple[Tensor, ...]:
        assert type(state) is kind
        seen.append(state)
        x, memory, count = state
        new = (*contract((x,), 0.0), memory + 1, count + 1)
        return Pair(*new) if kind is Pair else new

    start = (START, torch.zeros(3), torch.zeros(()))
    solution = iterate(step, Pair(*start) if kind is Pair else start, [0.0] * 200, tol=1e-2)
    stops = 1 + (solution.residual > 1e-2).sum(0)
    for k, (_, memory, count) in enumerate(seen):
        assert count == k
        assert torch.equal(memory, torch.minimum(torch.tensor(k), stops).float())


def test_a_sample_is_the_same_alone_and_in_company() -> None:
    together = iterate(contract, (START,), [0.0] * 500, tol=1e-4)
    for n in range(3):
        alone = iterate(
            lambda s, _, n=n: (TARGET[n] + RATES[n] * (s[0] - TARGET[n]),), (START[n],), [0.0] * 500, tol=1e-4
        )
        assert torch.equal(alone.x, together.x[n])
        assert torch.equal(alone.residual, together.residual[: alone.iterations, n])


def test_bad_arguments_are_named() -> None:
    with pytest.raises(InputError, match="schedule must hold at least one value"):
        iterate(contract, (START,), [])
    for tol in (-1.0, torch.nan):
        with pytest.raises(InputError, match="tol must be a number >= 0, got"):
            iterate(contract, (START,), [0.0], tol=tol)


def test_gradients_flow_through_the_loop() -> None:
    target = uniform(2, *SHAPE).requires_grad_()
    solution = iterate(
        lambda s, _: (s[0] + 0.5 * (target - s[0]),), (torch.zeros(2, *SHAPE).double(),), [0.0] * 3, tol=0, record=True
    )
    (slope,) = torch.autograd.grad(solution.x.sum(), target)
    close(slope, torch.full_like(target, 0.875))
    assert not solution.residual.requires_grad


def test_solution_is_frozen() -> None:
    solution = iterate(contract, (START,), [0.0])
    assert isinstance(solution, Solution)
    with pytest.raises(AttributeError):
        solution.x = START


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
def test_relative_change_is_the_quotient_of_norms(dtype: torch.dtype, batch: tuple[int, ...]) -> None:
    new, old = normal(*batch, 3, 40, 31, dtype=dtype), normal(*batch, 3, 40, 31, seed=1, dtype=dtype)
    expected = (new - old).double().flatten(-3).norm(dim=-1) / new.double().flatten(-3).norm(dim=-1)
    tol = 1e-12 if dtype == torch.float64 else 1e-6
    close(relative_change(new, old), expected, tol)
    close(relative_change(1e-6 * new, 1e-6 * old), expected, tol)
    close(relative_change(new, old.float()), expected, 1e-6)  # mixed precision keeps the kernel out


def test_a_start_counts_up_to_0_and_tells_of_cheap_iterations_together() -> None:
    told: list[int] = []
    watch = before(lambda k, x, change: told.append(k), 4, 10)
    assert watch is not None
    for k in range(1, 41):
        watch(k, START, RATES)
        assert len(told) == k // 10
    assert told == [-3, -2, -1, 0]
    assert before(None, 4) is None


def test_small_changes_of_a_dark_video_do_not_vanish_in_half_precision() -> None:
    new = torch.full((2, *SHAPE), 0.01).half()
    close(relative_change(new, (0.998 * new).half()), torch.full((2,), 0.002), 0.2)


@pytest.mark.parametrize(
    ("denoise", "found"),
    [
        (lambda x, sigma: x.mean(0), r"\(2, 3, 4\)"),
        (lambda x, sigma: x.mean(1, keepdim=True), r"\(3, 1, 3, 4\)"),
        (lambda x, sigma: x[None], r"\(1, 3, 2, 3, 4\)"),
        (lambda x, sigma: (x, sigma), "tuple"),
        (lambda x, sigma: None, "NoneType"),
    ],
)
def test_a_denoiser_that_returns_something_else_is_named(denoise: Callable, found: str) -> None:
    with pytest.raises(InputError, match=f"the denoiser must return .* and returned .*{found}"):
        iterate(lambda state, sigma: (denoise(state[0], sigma),), (START,), [0.1] * 3)


@pytest.mark.parametrize("schedule", [np.geomspace(0.4, 0.1, 3), torch.linspace(0.4, 0.1, 3)])
def test_a_schedule_may_be_an_array(schedule: Sequence[float]) -> None:
    found = iterate(contract, (START,), schedule, early=False)
    assert torch.equal(found.x, iterate(contract, (START,), list(schedule), early=False).x)


def test_one_number_is_no_schedule() -> None:
    with pytest.raises(ValueError, match="one sigma per iteration"):
        iterate(contract, (START,), 0.1)  # type: ignore[arg-type]


def test_a_solution_is_shown_in_a_line() -> None:
    assert repr(iterate(contract, (START,), [0.1] * 3, early=False)) == (
        "Solution(x: float64 (3, 2, 3, 4), 3 iterations, 0 of 3 converged)"
    )
