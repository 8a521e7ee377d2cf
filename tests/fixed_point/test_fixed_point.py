"""The solve itself: what is found, each sample for itself, what it costs, and what is refused."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

import pytest
import torch
from maps import SOLVERS, Affine, affine, cell_problem, residual_of
from torch import Tensor

from laws import close, normal, uniform
from unsnap.errors import InputError
from unsnap.fixed_point import anderson, broyden, fixed_point, implicit, jfb, neumann, phantom, picard, unroll
from unsnap.fixed_point.solver import relative_norm

RATES = [0.2, 0.6, 0.9, 0.0]
every_solver = pytest.mark.parametrize("name", SOLVERS)


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.no_grad():
        yield


@every_solver
def test_finds_the_solution_of_a_linear_system(name: str) -> None:
    f = affine(RATES)
    solution = fixed_point(f, torch.zeros(4, 10, dtype=torch.float64), solver=SOLVERS[name], tol=1e-10, max_iter=400)
    assert solution.converged.all()
    assert solution.reason == ["converged"] * 4
    for rate, x, expected in zip(RATES, solution.x, f.solution, strict=True):
        close(x, expected, 2 * 1e-10 / (1 - rate))


@every_solver
def test_residual_is_that_of_the_point_returned(name: str) -> None:
    f, z0 = affine([0.9, 0.95, 1.02]), normal(3, 10)
    solution = fixed_point(f, z0, solver=SOLVERS[name], tol=0.0, max_iter=12)
    close(solution.best, residual_of(f, solution.x))
    assert torch.equal(solution.best, solution.residual.amin(0))
    assert not solution.converged.any()
    assert solution.reason == ["iterations ran out"] * 3


@every_solver
def test_more_iterations_are_never_worse(name: str) -> None:
    """Also where the residual of the iterates goes up again: sample 1 expands, sample 2 rotates."""
    f = affine([0.7, 1.3, 0.0], n=4)
    f.matrices[2] = torch.tensor([[0, -1.02, 0, 0], [1.02, 0, 0, 0], [0, 0, 0, -0.9], [0, 0, 0.9, 0]])
    runs = [fixed_point(f, normal(3, 4), solver=SOLVERS[name], tol=0.0, max_iter=k) for k in (1, 2, 3, 5, 8, 13, 21)]
    for shorter, longer in pairwise(runs):
        assert (longer.best <= shorter.best).all()
        close(longer.residual[: len(shorter.residual)], shorter.residual)
    if name == "picard":
        assert (runs[-1].residual[-1] > runs[-1].best)[2]  # the last iterate would have been a worse answer


@every_solver
def test_sample_alone_is_the_sample_in_a_batch(name: str) -> None:
    """While its neighbours converge early, late, never, or blow up."""
    whole = affine([0.3, 0.95, 0.8, 3.0, 0.6, 0.0])
    z0 = normal(6, 10, seed=8)

    def spoilt(f: Affine):
        """Sample with rate 3 leaves the finite numbers once it is large."""
        return lambda z: torch.where((z.norm(dim=1) > 1e3)[:, None], torch.nan, f(z))

    options = {"solver": SOLVERS[name], "tol": 1e-7, "max_iter": 25}
    together = fixed_point(spoilt(whole), z0, **options)
    assert len(set(together.steps.tolist())) > 3
    assert bool(together.diverged[3]) == (name == "picard" or name == "damped")
    for n in range(6):
        rows = torch.tensor([n])
        alone = fixed_point(spoilt(whole.select(rows)), z0[rows], **options)
        assert alone.steps.item() == together.steps[n]
        assert alone.reason[0] == together.reason[n]
        close(alone.x[0], together.x[n], 1e-9)
        history = together.residual[: len(alone.residual), n]
        torch.testing.assert_close(alone.residual[:, 0], history, rtol=1e-5, atol=0, equal_nan=True)


@every_solver
def test_finished_samples_cost_nothing_if_the_map_can_be_narrowed(name: str) -> None:
    z0 = torch.zeros(4, 10, dtype=torch.float64)
    narrow, whole = affine(RATES), affine(RATES)
    options = {"solver": SOLVERS[name], "tol": 1e-8, "max_iter": 300}
    solution, reference = fixed_point(narrow, z0, **options), fixed_point(whole.plain(), z0, **options)
    assert narrow.samples == int(solution.steps.sum()) < whole.samples == 4 * whole.calls
    assert narrow.calls == solution.evaluations == int(solution.steps.max())
    assert torch.equal(solution.steps, reference.steps)
    close(solution.x, reference.x, 1e-9)


def test_history_repeats_the_last_value_of_a_finished_sample() -> None:
    solution = fixed_point(affine(RATES), torch.zeros(4, 10, dtype=torch.float64), solver=picard(), tol=1e-6)
    assert solution.residual.shape == (solution.iterations, 4) == (solution.evaluations, 4)
    for n, steps in enumerate(solution.steps.tolist()):
        assert (solution.residual[: steps - 1, n] > 1e-6).all()
        assert (solution.residual[steps - 1 :, n] == solution.best[n]).all()


@every_solver
@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_one_broken_sample_is_reported_and_leaves_the_others_alone(name: str, poison: float) -> None:
    f, z0 = affine([0.5, 0.5, 0.5]), normal(3, 10)

    def broken(z: Tensor) -> Tensor:
        value = f(z)
        value[1] = torch.where(residual_of(lambda _: value, z)[1] < 0.2, poison, value[1])
        return value

    options = {"solver": SOLVERS[name], "tol": 1e-8}
    solution, clean = fixed_point(broken, z0, **options), fixed_point(f.plain(), z0, **options)
    assert solution.diverged.tolist() == [False, True, False]
    assert solution.reason[1] == "diverged: values no longer finite"
    assert not solution.converged[1]
    assert torch.isfinite(solution.x).all()
    assert 0.2 <= solution.best[1] < math.inf
    for n in (0, 2):
        close(solution.x[n], clean.x[n])


def test_a_sample_broken_from_the_start_keeps_its_start() -> None:
    z0 = uniform(2, 3)
    spoil = torch.tensor([[1.0], [math.nan]], dtype=torch.float64)
    solution = fixed_point(lambda z: 0.5 * z * spoil + 1, z0, tol=1e-6)
    assert solution.diverged.tolist() == [False, True]
    assert torch.equal(solution.x[1], z0[1])
    assert solution.steps[1] == 1


class Pair(NamedTuple):
    v: Tensor
    w: Tensor


@every_solver
def test_a_tuple_is_solved_as_one_state(name: str) -> None:
    f, z0 = affine([0.8, 0.6]), normal(2, 10)

    def split(z: Tensor) -> Pair:
        return Pair(z[:, :4].reshape(2, 2, 2), z[:, 4:].reshape(2, 6))

    def paired(state: Pair) -> Pair:
        assert isinstance(state, Pair)
        return split(f(torch.cat([state.v.flatten(1), state.w], 1)))

    options = {"solver": SOLVERS[name], "tol": 1e-9, "max_iter": 200}
    pair, single = fixed_point(paired, split(z0), **options), fixed_point(f.plain(), z0, **options)
    assert isinstance(pair.state, Pair)
    assert pair.x is pair.state.v
    assert torch.equal(torch.cat([pair.state.v.flatten(1), pair.state.w], 1), single.x)
    assert torch.equal(pair.residual, single.residual)
    again = fixed_point(paired, pair.state, **options)
    assert again.evaluations == 1


@every_solver
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("power", [-60, 40])
def test_the_scale_of_the_problem_changes_no_iterate(name: str, dtype: torch.dtype, power: int) -> None:
    """By a power of two, where rounding does not change either: equality to the last bit."""
    network, y, z0 = cell_problem()
    network, y, z0, c = network.to(dtype), y.to(dtype), z0.to(dtype), 2.0**power

    def scaled(z: Tensor) -> Tensor:
        return c * network(z / c, y)

    options = {"solver": SOLVERS[name], "tol": 1e-6, "max_iter": 40}
    reference, solution = fixed_point(lambda z: network(z, y), z0, **options), fixed_point(scaled, c * z0, **options)
    assert torch.equal(solution.x / c, reference.x)
    assert torch.equal(solution.residual, reference.residual)


@every_solver
@pytest.mark.parametrize("c", [1e-6, 1e6])
def test_a_scale_that_rounds_changes_iterates_by_rounding_only(name: str, c: float) -> None:
    network, y, z0 = cell_problem()
    options = {"solver": SOLVERS[name], "tol": 0.0, "max_iter": 8}
    reference = fixed_point(lambda z: network(z, y), z0, **options)
    solution = fixed_point(lambda z: c * network(z / c, y), c * z0, **options)
    close(solution.x / c, reference.x, 1e-3 if name == "half" else 1e-11)


@every_solver
def test_max_iter_is_the_number_of_evaluations(name: str) -> None:
    for limit in (1, 2, 3, 17):
        f = affine([0.99])
        solution = fixed_point(f, normal(1, 10), solver=SOLVERS[name], tol=0.0, max_iter=limit)
        assert f.calls == solution.evaluations == solution.iterations == int(solution.steps) == limit


def test_callback_sees_every_evaluation() -> None:
    f, seen = affine([0.5, 0.9]), []
    z0 = (normal(2, 2, 3), normal(2, 4))

    def halves(z: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        value = f(torch.cat([p.flatten(1) for p in z], 1))
        return value[:, :6].reshape(2, 2, 3), value[:, 6:]

    solution = fixed_point(halves, z0, tol=1e-6, callback=lambda *args: seen.append(args))
    assert [k for k, _, _ in seen] == list(range(1, solution.evaluations + 1))
    assert torch.equal(torch.stack([r for _, _, r in seen]), solution.residual)
    assert torch.equal(seen[0][1], z0[0])
    assert torch.equal(seen[-1][1], solution.x)


@every_solver
def test_solver_is_a_value(name: str) -> None:
    """Nothing is left in it by one solve that another could find, and z0 stays as it was."""
    z0 = normal(3, 10)
    kept = z0.clone()
    first, second = (
        fixed_point(affine([0.5, 0.9, 0.1]), z0, solver=SOLVERS[name], tol=1e-8, max_iter=50) for _ in range(2)
    )
    assert torch.equal(first.x, second.x)
    assert torch.equal(first.residual, second.residual)
    assert torch.equal(z0, kept)


@every_solver
def test_maps_that_vanish(name: str) -> None:
    """f = 0 has the solution 0, whose relative residual is 0/0."""
    solution = fixed_point(torch.zeros_like, normal(2, 5), solver=SOLVERS[name], max_iter=60)
    if name not in ("damped", "mixed"):  # these approach zero, but never with a small *relative* residual
        assert solution.converged.all()
        assert (solution.x == 0).all()
    assert not solution.diverged.any()
    assert (solution.residual[0] == 1).all()


def test_relative_norm_of_small_numbers() -> None:
    g = torch.tensor([[3.0, 4.0], [0.0, 0.0], [3.0, 4.0], [math.nan, 0.0]])
    value = torch.tensor([[6.0, 8.0], [0.0, 0.0], [0.0, 0.0], [1.0, 1.0]])
    for scale in (1.0, 1e-30, 1e30):  # in float32, squares of these vanish or overflow
        assert relative_norm(scale * g, scale * value).nan_to_num(-1).tolist() == pytest.approx([0.5, 0.0, 1.0, -1.0])


def test_an_empty_batch_is_solved() -> None:
    solution = fixed_point(lambda z: 0.5 * z, torch.zeros(0, 3))
    assert solution.x.shape == (0, 3)
    assert solution.converged.shape == (0,)


@pytest.mark.parametrize("name", ["picard", "anderson", "broyden"])
def test_autocast_is_for_the_map_alone(name: str) -> None:
    """The solver's own inner products keep their digits."""
    y, z0 = normal(2, 16, dtype=torch.float32), torch.zeros(2, 16)
    options = {"solver": SOLVERS[name], "tol": 1e-6}
    reference = fixed_point(lambda z: y + 0.9 * z.sin(), z0, **options)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (y @ y.T).dtype == torch.bfloat16
        solution = fixed_point(lambda z: y + 0.9 * z.sin(), z0, **options)
    assert torch.equal(solution.x, reference.x)


def test_unroll_is_so_many_plain_steps_whatever_the_solver() -> None:
    f, z0 = affine([0.5, 0.9]), normal(2, 10)
    solution = fixed_point(f, z0, backward=unroll(7), solver=broyden(), tol=1e-3)
    z = z0
    for _ in range(7):
        last, z = z, f(z)
    assert torch.equal(solution.x, z)
    assert f.calls == 14
    assert solution.evaluations == solution.iterations == 7
    close(solution.best, residual_of(f, last))
    assert solution.converged.tolist() == (solution.best <= 1e-3).tolist()


# Bad input: what and why.


def shaped(z: Tensor) -> Tensor:
    return 0.5 * z


@pytest.mark.parametrize(
    ("f", "words"),
    [
        (lambda z: z[:, :2], r"f must return .*float32 \(2, 3\), but returned torch.float32 \(2, 2\)"),
        (lambda z: z[:1], r"\(1, 3\)"),
        (lambda z: z.double(), r"but returned torch.float64 \(2, 3\)"),
        (lambda z: (z, z), r"but returned torch.float32 \(2, 3\), torch.float32 \(2, 3\)"),
        (lambda z: None, "but returned NoneType"),
        (lambda z: (z, 1), "but returned .*, int"),
        (lambda z: z * math.nan, "f returned NaN or infinite values at z0"),
        (lambda z: torch.where(z[0] == z[0, 0], math.inf, z), "f returned NaN or infinite values at z0"),
    ],
)
@pytest.mark.parametrize("backward", [implicit(), unroll(3)], ids=["implicit", "unroll"])
def test_a_map_that_is_none_is_refused(f, words: str, backward) -> None:
    with pytest.raises(ValueError, match=words):
        fixed_point(f, torch.zeros(2, 3), backward=backward)


def test_a_narrowed_map_is_checked_too() -> None:
    f = affine([0.1, 0.9])
    f.select = lambda rows: lambda z: z[:, :1]  # type: ignore[method-assign]
    with pytest.raises(ValueError, match=r"\(1, 10\), but returned torch.float64 \(1, 1\)"):
        fixed_point(f, torch.zeros(2, 10, dtype=torch.float64), tol=1e-6)


@pytest.mark.parametrize(
    ("z0", "words"),
    [
        (torch.tensor(1.0), r"share their first axis, got torch.float32 \(\)"),
        ((torch.zeros(2, 3), torch.zeros(3, 3)), r"share their first axis, got .*\(2, 3\), .*\(3, 3\)"),
        ((), "share their first axis, got tuple"),
        (None, "got NoneType"),
        ((torch.zeros(2, 3), 1.0), "got torch.float32 .*, float"),
        (torch.zeros(2, 3, dtype=torch.long), "floating-point dtype, got torch.int64"),
        (torch.zeros(2, 3, dtype=torch.complex64), "floating-point dtype, got torch.complex64"),
        ((torch.zeros(2, 3), torch.zeros(2, 3).double()), "one real floating-point dtype, got .*32.*64"),
        (torch.tensor([[1.0, math.nan]]), "z0 holds NaN"),
    ],
)
def test_a_wrong_start_is_refused(z0, words: str) -> None:
    with pytest.raises(InputError, match=words):
        fixed_point(shaped, z0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_iter": 0}, "max_iter .* got 0"),
        ({"max_iter": -3}, "max_iter .* got -3"),
        ({"max_iter": 2.5}, "max_iter .* got 2.5"),
        ({"max_iter": math.nan}, "max_iter .* got nan"),
        ({"tol": -1e-3}, "tol must be a number >= 0, got -0.001"),
        ({"tol": math.nan}, "tol .* got nan"),
    ],
)
def test_wrong_limits_are_refused(options: dict[str, float], words: str) -> None:
    with pytest.raises(InputError, match=words):
        fixed_point(shaped, torch.zeros(2, 3), **options)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: picard(0.0), r"damping must lie in \(0, 1\], got 0.0"),
        (lambda: picard(math.nan), "damping"),
        (lambda: anderson(memory=0), "memory >= 1.* got 0"),
        (lambda: anderson(damping=0.0), "damping > 0 .*got 6, 0.0"),
        (lambda: anderson(damping=math.inf), "got 6, inf"),
        (lambda: anderson(ridge=-1), "ridge >= 0"),
        (lambda: anderson(ridge=math.nan), "ridge >= 0"),
        (lambda: anderson(safeguard=1.0), r"safeguard must lie in \(0, 1\) or be None, got 1.0"),
        (lambda: anderson(history=torch.int8), "history .* got torch.int8"),
        (lambda: broyden(memory=0), "memory must be at least 1, got 0"),
        (lambda: implicit(max_iter=0), "max_iter >= 1"),
        (lambda: implicit(tol=-1.0), "tol >= 0.* -1.0"),
        (lambda: implicit(order=0), "order >= 1, got 100, 1e-06 and 0"),
        (lambda: neumann(-1), "terms must be at least 0, got -1"),
        (lambda: phantom(0), "steps >= 1"),
        (lambda: phantom(1, damping=0.0), r"damping in \(0, 1\]"),
        (lambda: unroll(0), "steps must be at least 1, got 0"),
    ],
)
def test_wrong_settings_are_refused(make, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


@pytest.mark.parametrize("backward", [implicit(), neumann(3), jfb(), phantom(2), None], ids=repr)
@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_without_gradients_the_backward_mode_costs_nothing(backward, context) -> None:
    network, y, z0 = cell_problem()
    calls = []
    with context():
        solution = fixed_point(lambda z: calls.append(1) or network(z, y), z0, backward=backward, tol=1e-8)
    assert len(calls) == solution.evaluations
    assert not solution.x.requires_grad
    assert solution.x.grad_fn is None


def test_a_map_that_changes_its_argument_is_refused() -> None:
    """It would compare the new point with itself: 1.5 where 2 is the fixed point, called converged."""
    for solver in (picard(), anderson()):
        with torch.no_grad(), pytest.raises(ValueError, match="in place"):
            fixed_point(lambda z: z.mul_(0.5).add_(1), torch.ones(2, 3), solver=solver)
    with torch.inference_mode():  # no record of changes there
        assert fixed_point(lambda z: 0.5 * z + 1, torch.ones(2, 3)).converged.all()


def test_a_solution_says_in_a_line_what_it_is() -> None:
    found = fixed_point(lambda z: 0.5 * z + 1, torch.zeros(2, 3, 4))
    assert repr(found) == f"FixedPoint(x: float32 (2, 3, 4), {found.iterations} iterations, 2 of 2 converged)"


def test_samples_without_values_are_at_rest() -> None:
    assert fixed_point(lambda z: 0.5 * z, torch.ones(2, 0)).x.shape == (2, 0)
