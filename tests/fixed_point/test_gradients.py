"""Every backward mode against the dense (I − J)⁻ᵀ, in float64; what it keeps and frees, what it says when it fails."""

from __future__ import annotations

import gc
import math
import warnings
import weakref
from collections.abc import Callable

import pytest
import torch
from maps import Cell, cell_problem
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

import unsnap.fixed_point.backward as backward_module
from laws import close, normal, uniform
from unsnap.fixed_point import anderson, broyden, fixed_point, implicit, jfb, neumann, phantom, picard, unroll

EXACT = {
    "anderson": implicit(tol=1e-13),
    "guarded": implicit(anderson(safeguard=0.9), tol=1e-13, max_iter=300),
    "picard": implicit(picard(), tol=1e-13, max_iter=300),
    "broyden": implicit(broyden(), tol=1e-13),
    "neumann": neumann(40),
    "phantom": phantom(40),
    "unroll": unroll(40),
}
ATTACHED = {"implicit": implicit(tol=1e-12), "neumann": neumann(4), "jfb": jfb(), "phantom": phantom(3, 0.6)}
EVERY = ATTACHED | {"unroll": unroll(5), "twice": implicit(tol=1e-12, order=2)}
TIGHT = {"tol": 1e-14, "max_iter": 300}


def solve(network: Cell, y: Tensor, z0: Tensor, backward, **options):
    return fixed_point(lambda z: network(z, y), z0, backward=backward, **(TIGHT | options))


def loss_of(x: Tensor) -> Tensor:
    return (x.square() * torch.linspace(1, 2, x.shape[-1], dtype=x.dtype)).sum()


def gradients(network: Cell, y: Tensor, z0: Tensor, backward, **options) -> tuple[Tensor, Tensor]:
    y = y.detach().requires_grad_()
    found = torch.autograd.grad(loss_of(solve(network, y, z0, backward, **options).x), (network.weight, y))
    return found[0], found[1]


def dense(network: Cell, y: Tensor, z0: Tensor, adjoint: Callable[[Tensor, Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    """The gradients that follow from a = adjoint(J, v), sample by sample."""
    with torch.no_grad():
        z = solve(network, y, z0, jfb()).x
    y = y.detach().requires_grad_()
    a = []
    for n, sample in enumerate(z):
        jacobian = torch.autograd.functional.jacobian(lambda s, n=n: network(s, y[n]), sample)
        sample = sample.clone().requires_grad_()
        (v,) = torch.autograd.grad(loss_of(sample), sample)
        a.append(adjoint(jacobian, v))
    found = torch.autograd.grad(network(z, y), (network.weight, y), torch.stack(a))
    return found[0], found[1]


def exactly(jacobian: Tensor, v: Tensor) -> Tensor:
    return torch.linalg.solve((torch.eye(len(v), dtype=v.dtype) - jacobian).T, v)


def geometric(terms: int, damping: float = 1.0) -> Callable[[Tensor, Tensor], Tensor]:
    """λ Σ_{p < terms} ((1 − λ)I + λJᵀ)^p v."""

    def adjoint(jacobian: Tensor, v: Tensor) -> Tensor:
        step = (1 - damping) * torch.eye(len(v), dtype=v.dtype) + damping * jacobian.T
        return damping * sum(torch.linalg.matrix_power(step, p) @ v for p in range(terms))

    return adjoint


# The numbers.


@pytest.mark.parametrize("name", EXACT)
def test_exact_modes_are_the_dense_solve(name: str) -> None:
    problem = cell_problem()
    for found, expected in zip(gradients(*problem, EXACT[name]), dense(*problem, exactly), strict=True):
        close(found, expected, 1e-10)


@pytest.mark.parametrize("terms", [0, 1, 2, 7])
def test_neumann_is_its_series(terms: int) -> None:
    problem = cell_problem()
    expected = dense(*problem, geometric(terms + 1))
    for found, wanted in zip(gradients(*problem, neumann(terms)), expected, strict=True):
        close(found, wanted)


@pytest.mark.parametrize(("steps", "damping"), [(1, 1.0), (4, 1.0), (1, 0.3), (5, 0.6)])
def test_phantom_is_its_series(steps: int, damping: float) -> None:
    problem = cell_problem()
    expected = dense(*problem, geometric(steps, damping))
    for found, wanted in zip(gradients(*problem, phantom(steps, damping)), expected, strict=True):
        close(found, wanted, 1e-11)


def test_neumann_of_nothing_more_is_jfb_is_phantom_of_one() -> None:
    """To the last bit, and also where the forward solve was stopped early."""
    for options in ({}, {"tol": 1e-2}):
        first, *others = (gradients(*cell_problem(), mode, **options) for mode in (jfb(), neumann(0), phantom(1)))
        for other in others:
            assert all(torch.equal(a, b) for a, b in zip(first, other, strict=True))


def test_neumann_converges_at_the_rate_of_the_spectral_radius() -> None:
    network, y, z0 = cell_problem(batch=1)
    weight = network.weight.detach()
    weight = weight + weight.T
    network.weight.data = 0.8 * weight / torch.linalg.matrix_norm(weight, 2)
    y = 0.1 * y
    with torch.no_grad():
        z = solve(network, y, z0, jfb()).x[0]
    jacobian = torch.autograd.functional.jacobian(lambda s: network(s, y[0]), z)
    radius = float(torch.linalg.eigvals(jacobian).abs().max())
    assert 0.3 < radius < 0.95
    exact = gradients(network, y, z0, implicit(tol=1e-14))[0]
    terms = torch.arange(30, 60, 2, dtype=torch.float64)
    errors = [(gradients(network, y, z0, neumann(int(k)))[0] - exact).norm() for k in terms]
    slopes = torch.linalg.lstsq(torch.stack([terms, torch.ones_like(terms)], 1), torch.stack(errors).log()[:, None])
    assert math.exp(slopes.solution[0]) == pytest.approx(radius, rel=0.01)


@pytest.mark.parametrize("mode", [implicit(tol=1e-13), unroll(12)], ids=["implicit", "unroll"])
def test_gradcheck(mode) -> None:
    """One output, part of it, and a tuple of outputs of which some receive no gradient."""
    network, y, z0 = cell_problem(batch=2, n=2, gain=0.6)

    def single(weight: Tensor, y: Tensor) -> Tensor:
        return fixed_point(lambda z: torch.tanh(z @ weight + y), z0, backward=mode, **TIGHT).x

    def pair(weight: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        def f(state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            v, w = state
            return torch.tanh(v @ weight + y), 0.5 * w + 0.3 * v.sum(1, keepdim=True).sin()

        return fixed_point(f, (z0, z0[:, :1]), backward=mode, **TIGHT).state

    inputs = (network.weight.detach().requires_grad_(), y.requires_grad_())
    for f in (single, lambda *a: single(*a)[:, 1:], lambda *a: single(*a)[0], pair, lambda *a: pair(*a)[1]):
        assert torch.autograd.gradcheck(f, inputs)


def test_a_map_that_ignores_its_state() -> None:
    theta = uniform(2, 3).requires_grad_()
    for mode in (implicit(), neumann(3), jfb(), unroll(2)):
        (found,) = torch.autograd.grad(fixed_point(lambda z: theta.sin(), normal(2, 3), backward=mode).x.sum(), theta)
        close(found, theta.detach().cos())


@pytest.mark.parametrize("name", ["implicit", "neumann", "jfb", "phantom"])
def test_the_value_is_the_solution_itself(name: str) -> None:
    """Not one step further: training and evaluation see the same video, and `best` is its residual."""
    problem = cell_problem()
    recorded = solve(*problem, ATTACHED[name], tol=1e-2)
    with torch.no_grad():
        assert torch.equal(recorded.x, solve(*problem, ATTACHED[name], tol=1e-2).x)
    assert recorded.x.requires_grad


@pytest.mark.parametrize("name", EXACT)
def test_sample_alone_has_the_gradient_it_has_in_a_batch(name: str) -> None:
    """With neighbours whose adjoint equation is harder, easier or trivial."""
    weight, y, z0 = cell_problem(batch=4)[0].weight.detach(), normal(4, 6, seed=5), uniform(4, 6, seed=6)
    gains = torch.tensor([[0.1], [1.1], [0.0], [0.8]], dtype=torch.float64)

    def gradient(rows: slice) -> Tensor:
        leaf = y[rows].clone().requires_grad_()
        f = lambda z: torch.tanh(gains[rows] * (z @ weight) + leaf)  # noqa: E731
        return torch.autograd.grad(loss_of(fixed_point(f, z0[rows], backward=EXACT[name], **TIGHT).x), leaf)[0]

    together = gradient(slice(None))
    for n in range(4):
        close(gradient(slice(n, n + 1))[0], together[n], 1e-10)


@pytest.mark.parametrize("name", [*ATTACHED, "broyden"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("power", [-60, 20])
def test_scale_of_loss_and_problem_changes_no_gradient(name: str, dtype: torch.dtype, power: int) -> None:
    """By a power of two: equal to the last bit, in as many products."""
    modes = ATTACHED | {"implicit": implicit(tol=1e-5), "broyden": implicit(broyden(), tol=1e-5)}
    network, y, z0 = cell_problem()
    weight, y, z0, c = network.weight.detach().to(dtype), y.to(dtype), z0.to(dtype), 2.0**power

    def run(loss_scale: float, scale: float) -> tuple[Tensor, int]:
        leaf = weight.clone().requires_grad_()
        f = lambda z: scale * torch.tanh(z / scale @ leaf + y)  # noqa: E731
        solution = fixed_point(f, scale * z0, backward=modes[name], tol=1e-5)
        (loss_scale * loss_of(solution.x / scale)).backward()
        return leaf.grad / loss_scale, solution.backward.evaluations

    expected = run(1.0, 1.0)
    for found in (run(c, 1.0), run(1.0, c)):
        assert torch.equal(found[0], expected[0])
        assert found[1] == expected[1]


# What it costs and what it keeps.


@pytest.mark.parametrize(("name", "more"), [("implicit", 1), ("neumann", 1), ("jfb", 1), ("phantom", 3)])
def test_evaluations_of_f_for_the_gradient(name: str, more: int) -> None:
    network, y, z0 = cell_problem()
    calls = []
    solution = fixed_point(lambda z: calls.append(1) or network(z, y), z0, backward=ATTACHED[name])
    assert len(calls) == solution.evaluations + more
    loss_of(solution.x).backward()
    assert len(calls) == solution.evaluations + more


@pytest.mark.parametrize("mode", [implicit(tol=1e-10), neumann(5), neumann(0)], ids=["implicit", "neumann", "none"])
def test_one_product_for_each_evaluation_reported_and_one_to_the_parameters(mode) -> None:
    network, y, z0 = cell_problem()
    products = []

    def f(z: Tensor) -> Tensor:
        value = network(z, y)
        if value.requires_grad and torch.is_grad_enabled():
            value.register_hook(lambda _: products.append(1))
        return value

    solution = fixed_point(f, z0, backward=mode)
    loss_of(solution.x).backward()
    assert len(products) == solution.backward.evaluations + 1


def test_report_is_filled_in_by_the_backward_pass() -> None:
    solution = solve(*cell_problem(), implicit(tol=1e-9))
    report = solution.backward
    assert (report.evaluations, report.residual, report.converged) == (0, None, None)
    loss_of(solution.x).backward()
    assert report.evaluations > 3
    assert report.residual.shape == (3,)
    assert (report.residual <= 1e-9).all()
    assert report.converged is True


class Box:
    """A saved tensor that can be watched."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor.detach()


def saved(run: Callable[[], Tensor]) -> tuple[Tensor, list[weakref.ref[Box]], int]:
    boxes, size = [], 0

    def pack(tensor: Tensor) -> Box:
        nonlocal size
        box = Box(tensor)
        boxes.append(weakref.ref(box))
        size += tensor.numel() * tensor.element_size()
        return box

    with saved_tensors_hooks(pack, lambda box: box.tensor):
        return run(), boxes, size


@pytest.mark.parametrize("name", ATTACHED)
def test_what_is_recorded_does_not_depend_on_the_number_of_iterations(name: str) -> None:
    def recorded(limit: int) -> tuple[int, int]:
        problem = cell_problem()
        _, boxes, size = saved(lambda: solve(*problem, ATTACHED[name], tol=0.0, max_iter=limit, solver=picard()).x)
        return len(boxes), size

    count, size = recorded(2)
    assert count > 0
    assert recorded(60) == (count, size)
    longer, shorter = (saved(lambda k=k: solve(*cell_problem(), unroll(k)).x)[2] for k in (20, 10))
    assert longer > 1.9 * shorter  # while unrolling does grow


@pytest.mark.parametrize("name", EVERY)
def test_graph_is_freed_without_the_garbage_collector(name: str) -> None:
    """By the backward pass itself, or with the solution; a reference cycle would outlive both."""
    mode = EVERY[name]
    gc.disable()
    try:
        problem = cell_problem()
        x, boxes, _ = saved(lambda: solve(*problem, mode).x)
        assert any(box() is not None for box in boxes)
        loss = loss_of(x)
        loss.backward()
        assert all(box() is None for box in boxes)
        x, boxes, _ = saved(lambda: solve(*problem, mode).x)
        del x
        assert all(box() is None for box in boxes)
    finally:
        gc.enable()


@pytest.mark.parametrize("name", EVERY)
def test_second_backward_needs_retain_graph(name: str) -> None:
    network, y, z0 = cell_problem()
    mode = EVERY[name]
    loss = loss_of(solve(network, y, z0, mode).x)
    first = torch.autograd.grad(loss, network.weight, retain_graph=True)[0]
    assert torch.equal(torch.autograd.grad(loss, network.weight)[0], first)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        torch.autograd.grad(loss, network.weight)


@pytest.mark.parametrize("name", EVERY)
def test_no_leaf_is_touched_that_was_not_asked_for(name: str) -> None:
    network, y, z0 = cell_problem()
    y.requires_grad_(), z0.requires_grad_()
    mode = EVERY[name]
    x = solve(network, y, z0, mode).x
    leaves, nodes = [], [x.grad_fn]
    while nodes:
        node = nodes.pop()
        leaves += [node.variable] if hasattr(node, "variable") else []
        nodes += [parent for parent, _ in node.next_functions if parent is not None]
    (found,) = torch.autograd.grad(loss_of(x), network.weight, retain_graph=True)
    assert all(leaf.grad is None for leaf in leaves)
    loss_of(x).backward()
    close(network.weight.grad, found)
    assert {id(leaf) for leaf in leaves if leaf.grad is not None} <= {id(network.weight), id(y), id(z0)}
    assert (z0.grad is None) == (name != "unroll")


def test_nothing_is_recorded_where_nothing_asks_for_a_gradient() -> None:
    network, y, z0 = cell_problem()
    network.weight.requires_grad_(False)
    for mode in (*ATTACHED.values(), unroll(3)):
        assert not solve(network, y, z0, mode).x.requires_grad
    y.requires_grad_()
    for mode in (*ATTACHED.values(), unroll(3)):
        assert solve(network, y, z0, mode).x.requires_grad


def test_inputs_behind_other_operations_receive_their_gradient() -> None:
    network, y, z0 = cell_problem()
    y.requires_grad_()
    (direct,) = torch.autograd.grad(loss_of(solve(network, y.sin(), z0, implicit(tol=1e-13)).x), y)
    (unrolled,) = torch.autograd.grad(loss_of(solve(network, y.sin(), z0, unroll(40)).x), y)
    close(direct, unrolled, 1e-10)


def test_the_result_may_be_used_twice() -> None:
    network, y, z0 = cell_problem()
    modes = (implicit(tol=1e-13), unroll(40))
    found = []
    for mode in modes:
        solution = solve(network, y, z0, mode)
        loss = loss_of(solution.x) + solution.x.sin().sum() + (solution.state[0] * solution.x).sum()
        found.append(torch.autograd.grad(loss, network.weight)[0])
    close(*found, 1e-10)


def test_two_equilibria_in_a_row() -> None:
    network, y, z0 = cell_problem()
    found = []
    for mode in (implicit(tol=1e-13), unroll(40)):
        first = solve(network, y, z0, mode)
        second = solve(network, first.x, first.state[0], mode)
        found.append(torch.autograd.grad(loss_of(second.x), network.weight)[0])
    close(*found, 1e-9)


# Company: checkpointing, functional calls, torch.func.


@pytest.mark.parametrize("name", EVERY)
def test_checkpointing_changes_nothing(name: str) -> None:
    """Around the equilibrium, and inside its map."""
    network, y, z0 = cell_problem()
    mode = EVERY[name]
    expected = torch.autograd.grad(loss_of(solve(network, y, z0, mode, tol=1e-8).x), network.weight)[0]
    around = checkpoint(lambda y: solve(network, y, z0, mode, tol=1e-8).x, y, use_reentrant=False)
    close(torch.autograd.grad(loss_of(around), network.weight)[0], expected)
    inside = fixed_point(
        lambda z: checkpoint(network, z, y, use_reentrant=False), z0, backward=mode, **(TIGHT | {"tol": 1e-8})
    )
    close(torch.autograd.grad(loss_of(inside.x), network.weight)[0], expected)


@pytest.mark.parametrize("name", EVERY)
def test_functional_call_and_torch_func_grad(name: str) -> None:
    network, y, z0 = cell_problem()
    mode = EVERY[name]
    expected = gradients(network, y, z0, mode)

    def loss(weight: Tensor, y: Tensor) -> Tensor:
        f = lambda z: torch.func.functional_call(network, {"weight": weight}, (z, y))  # noqa: E731
        return loss_of(fixed_point(f, z0, backward=mode, **TIGHT).x)

    leaf = network.weight.detach().clone().requires_grad_()
    close(torch.autograd.grad(loss(leaf, y), leaf)[0], expected[0])
    for found, wanted in zip(torch.func.grad(loss, argnums=(0, 1))(leaf.detach(), y), expected, strict=True):
        close(found, wanted)


def test_vmap_says_that_it_cannot() -> None:
    network, y, z0 = cell_problem()
    with pytest.raises(RuntimeError, match="vmap"):
        torch.func.vmap(lambda y, z0: solve(network, y[None], z0[None], jfb()).x)(y, z0)


# Failure.


@pytest.fixture
def _may_warn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backward_module, "_warned", False)


@pytest.mark.usefixtures("_may_warn")
def test_a_failed_solve_warns_once_and_uses_the_best_adjoint() -> None:
    problem = cell_problem()
    short = implicit(picard(), tol=1e-12, max_iter=4)
    with pytest.warns(RuntimeWarning, match=r"relative residual \d\.\de-\d+ > 1.0e-12 after 4 products") as caught:
        found = gradients(*problem, short)
    assert len(caught) == 1
    for a, b in zip(found, gradients(*problem, neumann(3)), strict=True):
        close(a, b)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        solution = solve(*problem, short)
        loss_of(solution.x).backward()
    assert solution.backward.converged is False
    assert (solution.backward.residual > 1e-12).all()


@pytest.mark.usefixtures("_may_warn")
def test_a_report_is_of_all_backward_passes() -> None:
    solution = solve(*cell_problem(), implicit(picard(), tol=1e-12, max_iter=4))
    with pytest.warns(RuntimeWarning, match="after 4 products"):
        loss_of(solution.x).backward(retain_graph=True)
    solution.x.backward(torch.zeros_like(solution.x))  # which nothing could fail at
    assert (solution.backward.residual == 0).all()
    assert solution.backward.evaluations == 4 + 1
    assert solution.backward.converged is False, "one of the solves did not"


@pytest.mark.usefixtures("_may_warn")
def test_an_adjoint_that_runs_away_does_no_worse_than_its_best_point() -> None:
    """Spectral radius above one, reached by Anderson: Picard's adjoint diverges, and the best it saw is used."""
    network, y, z0 = cell_problem(gain=3.0)
    y = 0.01 * y
    solution = solve(network, y, 0.01 * z0, implicit(picard(), max_iter=30), tol=1e-10)
    with pytest.warns(RuntimeWarning, match="best adjoint found is used"):
        loss_of(solution.x).backward()
    assert network.weight.grad.isfinite().all()
    assert solution.backward.residual.isfinite().all()


@pytest.mark.usefixtures("_may_warn")
def test_without_a_finite_adjoint_the_gradient_is_jacobian_free() -> None:
    """The root has slope NaN at its fixed point 0: that sample alone falls back to a = v."""
    theta = torch.tensor([[0.0], [0.3]], dtype=torch.float64, requires_grad=True)
    solution = fixed_point(lambda z: theta + 0.25 * z.abs().sqrt(), theta.detach(), tol=1e-12)
    assert solution.x[0] == 0
    with pytest.warns(RuntimeWarning, match="residual inf"):
        (2 * solution.x).sum().backward()
    slope = 0.125 / solution.x[1].detach().sqrt()
    close(theta.grad[:, 0], torch.stack([torch.tensor(2.0, dtype=torch.float64), 2 / (1 - slope[0])]), 1e-6)
