"""Derivatives of derivatives: right by every route of torch, or refused by every route; never silently wrong."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from maps import cell_problem
from torch import Tensor, func
from torch.autograd import forward_ad, functional

from laws import close, forward_mode, normal
from unsnap.fixed_point import broyden, fixed_point, implicit, jfb, neumann, phantom, picard, unroll

Loss = Callable[[Tensor], Tensor]
NETWORK, Y, Z0 = cell_problem(batch=2, n=3, gain=0.7)
WEIGHT, U = NETWORK.weight.detach(), normal(3, 3, seed=9)
UNROLLED = unroll(40)
TWICE = {
    "anderson": implicit(tol=1e-13, order=2),
    "picard": implicit(picard(), tol=1e-13, max_iter=300, order=2),
    "broyden": implicit(broyden(), tol=1e-13, order=2),
    "more": implicit(tol=1e-13, order=3),
}


def equilibrium(weight: Tensor, backward, y: Tensor = Y) -> Tensor:
    return fixed_point(lambda z: torch.tanh(z @ weight + y), Z0, backward=backward, tol=1e-14, max_iter=300).x


def loss_of(backward) -> Loss:
    return lambda weight: (equilibrium(weight, backward).square() * torch.linspace(1, 2, 3).double()).sum()


def linear_loss_of(backward) -> Loss:
    """Its v is a constant, through which no derivative goes."""
    return lambda weight: equilibrium(weight, backward).sum()


AT_REST = equilibrium(WEIGHT, UNROLLED)

# Routes to the product of the Hessian with u.


def grad_twice(loss: Loss, w: Tensor, u: Tensor) -> Tensor:
    w = w.clone().requires_grad_()
    (first,) = torch.autograd.grad(loss(w), w, create_graph=True)
    return torch.autograd.grad((first * u).sum(), w)[0]


def backward_twice(loss: Loss, w: Tensor, u: Tensor) -> Tensor:
    w = w.clone().requires_grad_()
    (first,) = torch.autograd.grad(loss(w), w, create_graph=True)
    (first * u).sum().backward()
    return w.grad


def behind_an_operation(loss: Loss, w: Tensor, u: Tensor) -> Tensor:
    """With respect to a tensor that is no leaf of the graph."""
    w = w.clone().requires_grad_() * 1
    (first,) = torch.autograd.grad(loss(w), w, create_graph=True)
    return torch.autograd.grad((first * u).sum(), w)[0]


def func_grad_twice(loss: Loss, w: Tensor, u: Tensor) -> Tensor:
    return func.grad(lambda w: (func.grad(loss)(w) * u).sum())(w)


def func_vjp_twice(loss: Loss, w: Tensor, u: Tensor) -> Tensor:
    one = torch.ones((), dtype=w.dtype)
    return func.vjp(lambda w: func.vjp(loss, w)[1](one)[0], w)[1](u)[0]


def mixed(loss: Loss, w: Tensor, u: Tensor) -> Tensor:
    """torch.func inside, autograd outside."""
    w = w.clone().requires_grad_()
    return torch.autograd.grad((func.grad(loss)(w) * u).sum(), w)[0]


@cache
def unrolled_twice(loss: Callable[[Any], Loss]) -> Tensor:
    return grad_twice(loss(UNROLLED), WEIGHT, U)


def contract(hessian: Tensor, u: Tensor) -> Tensor:
    return (hessian * u).sum((-2, -1))


ROUTES: dict[str, Callable[[Loss, Tensor, Tensor], Tensor]] = {
    "grad": grad_twice,
    "backward": backward_twice,
    "behind": behind_an_operation,
    "func.grad": func_grad_twice,
    "func.vjp": func_vjp_twice,
    "mixed": mixed,
    "hvp": lambda loss, w, u: functional.hvp(loss, w, u)[1],
    "vhp": lambda loss, w, u: functional.vhp(loss, w, u)[1],
    "hessian": lambda loss, w, u: contract(functional.hessian(loss, w), u),
    "jacobian": lambda loss, w, u: contract(
        functional.jacobian(lambda w: functional.jacobian(loss, w, create_graph=True), w), u
    ),
    "jacrev": lambda loss, w, u: contract(func.jacrev(func.jacrev(loss, chunk_size=1), chunk_size=1)(w), u),
}
every_route = pytest.mark.parametrize("route", ROUTES)


@every_route
@pytest.mark.parametrize("loss", [loss_of, linear_loss_of])
def test_second_derivatives_are_those_of_the_unrolled_map(route: str, loss) -> None:
    close(ROUTES[route](loss(TWICE["anderson"]), WEIGHT, U), unrolled_twice(loss), 1e-9)


@every_route
def test_second_derivatives_that_were_not_recorded_are_refused(route: str) -> None:
    for loss in (loss_of(implicit()), loss_of(neumann(3)), loss_of(neumann(0)), linear_loss_of(implicit())):
        with pytest.raises(RuntimeError, match=r"recorded for derivatives of order 1, .* backward=implicit\(order=2\)"):
            ROUTES[route](loss, WEIGHT, U)


@pytest.mark.parametrize("name", TWICE)
def test_second_derivatives_are_the_dense_solution(name: str) -> None:
    """Newton's step x + (I − J(x))⁻¹(f(x) − x), made twice and differentiated as it stands."""

    def dense(weight: Tensor) -> Tensor:
        x = equilibrium(weight, UNROLLED).detach()
        for _ in range(2):
            value = torch.tanh(x @ weight + Y)
            jacobian = (1 - value.square())[:, :, None] * weight.T
            x = x + torch.linalg.solve(torch.eye(3).double() - jacobian, value - x)
        return (x.square() * torch.linspace(1, 2, 3).double()).sum()

    expected = functional.hessian(dense, WEIGHT)
    found = functional.hessian(loss_of(TWICE[name]), WEIGHT)
    close(found, expected, 1e-9)
    close(found.permute(2, 3, 0, 1), found, 1e-9)


@pytest.mark.parametrize("state", ["one", "two"])
def test_gradgradcheck(state: str) -> None:
    def one(weight: Tensor, y: Tensor) -> Tensor:
        return equilibrium(weight, TWICE["anderson"], y)

    def two(weight: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        def f(pair: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            v, w = pair
            return torch.tanh(v @ weight + y), 0.5 * w + 0.3 * v.sum(1, keepdim=True).sin()

        start = (Z0, Z0[:, :1])
        return fixed_point(f, start, backward=TWICE["anderson"], tol=1e-14, max_iter=300).state

    inputs = (WEIGHT.clone().requires_grad_(), Y.clone().requires_grad_())
    assert torch.autograd.gradgradcheck({"one": one, "two": two}[state], inputs, fast_mode=True)


def test_second_derivatives_through_two_equilibria_in_a_row() -> None:
    def loss(mode) -> Loss:
        return lambda weight: equilibrium(weight, mode, equilibrium(weight, mode).sin()).square().sum()

    expected = grad_twice(loss(UNROLLED), WEIGHT, U)
    for route in (grad_twice, func_grad_twice):
        close(route(loss(TWICE["anderson"]), WEIGHT, U), expected, 1e-9)
    with pytest.raises(RuntimeError, match="order 2 was asked for"):
        grad_twice(loss(implicit()), WEIGHT, U)


def test_second_derivatives_where_the_map_ignores_its_state() -> None:
    def loss(weight: Tensor) -> Tensor:
        return (
            fixed_point(lambda z: weight.sin(), torch.zeros_like(weight), backward=TWICE["anderson"]).x.square().sum()
        )

    close(grad_twice(loss, WEIGHT, U), 2 * (2 * WEIGHT).cos() * U)


@pytest.mark.parametrize("loss", [loss_of, linear_loss_of])
def test_third_derivatives_are_right_or_refused(loss) -> None:
    def by_autograd(mode) -> Tensor:
        w = WEIGHT.clone().requires_grad_()
        derivative = loss(mode)(w)
        for _ in range(2):
            (derivative,) = torch.autograd.grad((derivative * U).sum(), w, create_graph=True)
        return torch.autograd.grad((derivative * U).sum(), w)[0]

    def by_func(mode) -> Tensor:
        return func.grad(lambda w: (func_grad_twice(loss(mode), w, U) * U).sum())(WEIGHT)

    close(by_autograd(implicit(tol=1e-13, order=3)), by_autograd(UNROLLED), 1e-8)
    with pytest.raises(RuntimeError, match=r"of order 2, and order 3 was asked for; .*implicit\(order=3\)"):
        by_autograd(TWICE["anderson"])
    with pytest.raises(RuntimeError):  # three levels are more than torch.func itself can take here
        by_func(TWICE["anderson"])


# What one recorded evaluation is enough for.


def test_recording_a_gradient_does_not_change_it() -> None:
    w = WEIGHT.clone().requires_grad_()
    for mode in (implicit(tol=1e-13), neumann(4), TWICE["anderson"]):
        (plain,) = torch.autograd.grad(loss_of(mode)(w), w)
        (recorded,) = torch.autograd.grad(loss_of(mode)(w), w, create_graph=True)
        close(recorded.detach(), plain)
        close(func.grad(loss_of(mode))(WEIGHT), plain)


def test_directional_derivatives_are_the_gradient_times_the_direction() -> None:
    """torch.autograd makes them by differentiating the gradient with respect to v."""
    x, found = functional.jvp(lambda w: equilibrium(w, implicit(tol=1e-13)), WEIGHT, U)
    _, expected = functional.jvp(lambda w: equilibrium(w, UNROLLED), WEIGHT, U)
    close(found, expected, 1e-10)
    assert not torch.allclose(found, torch.zeros_like(x))


def test_a_gradient_may_be_differentiated_by_what_the_equilibrium_does_not_depend_on() -> None:
    def found(mode) -> Tensor:
        w, scale = WEIGHT.clone().requires_grad_(), torch.linspace(1, 2, 3).double().requires_grad_()
        (first,) = torch.autograd.grad((equilibrium(w, mode) * scale.sin()).sum(), w, create_graph=True)
        return torch.autograd.grad((first * U).sum(), scale)[0]

    close(found(implicit(tol=1e-13)), found(UNROLLED), 1e-10)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_each_order_records_one_evaluation(order: int) -> None:
    calls = []
    weight = WEIGHT.clone().requires_grad_()
    solution = fixed_point(lambda z: calls.append(1) or torch.tanh(z @ weight + Y), Z0, backward=implicit(order=order))
    solution.x.sum().backward()
    assert len(calls) == solution.evaluations + order


# Modes that are steps from a constant start.


@every_route
@pytest.mark.parametrize(("mode", "steps", "damping"), [(jfb(), 1, 1.0), (phantom(3, 0.6), 3, 0.6)])
def test_phantom_derivatives_are_those_of_its_steps(route: str, mode, steps: int, damping: float) -> None:
    start = AT_REST

    def loss(weight: Tensor) -> Tensor:
        x = start
        for _ in range(steps):
            x = (1 - damping) * x + damping * torch.tanh(x @ weight + Y)
        return (x.square() * torch.linspace(1, 2, 3).double()).sum()

    close(ROUTES[route](loss_of(mode), WEIGHT, U), grad_twice(loss, WEIGHT, U), 1e-10)


def test_many_phantom_steps_have_the_second_derivative_of_the_equilibrium() -> None:
    close(grad_twice(loss_of(phantom(40)), WEIGHT, U), grad_twice(loss_of(UNROLLED), WEIGHT, U), 1e-10)


# Transforms that cannot go through the solve.


@forward_mode
@pytest.mark.parametrize("mode", [implicit(order=1), implicit(order=2), neumann(3)], ids=["one", "two", "neumann"])
@pytest.mark.parametrize(
    "transform",
    [
        func.jacrev,
        func.hessian,
        func.jacfwd,
        lambda f: func.jacrev(func.jacrev(f)),
        lambda f: lambda w: func.jvp(f, (w,), (U,)),
        lambda f: lambda w: func.jvp(func.grad(f), (w,), (U,)),
    ],
    ids=["jacrev", "hessian", "jacfwd", "jacrev twice", "jvp", "forward over reverse"],
)
def test_vmap_and_forward_mode_are_refused(mode, transform) -> None:
    with pytest.raises(RuntimeError, match=r"one vector at a time, .* use torch.func.grad, .* or backward=unroll"):
        transform(loss_of(mode))(WEIGHT)


@pytest.mark.parametrize("start", [Z0, AT_REST], ids=["from afar", "at rest"])
@pytest.mark.parametrize("mode", [implicit(), neumann(3), jfb()], ids=["implicit", "neumann", "jfb"])
def test_dual_numbers_are_refused_wherever_the_iteration_starts(mode, start: Tensor) -> None:
    """A start at rest is not iterated: what is to come through the iteration would be nothing."""
    with forward_ad.dual_level():
        weight = forward_ad.make_dual(WEIGHT, U)
        with pytest.raises(RuntimeError, match="not by vmap or in forward mode"):
            fixed_point(lambda z: torch.tanh(z @ weight + Y), start, backward=mode)


def test_what_that_sentence_advises_works() -> None:
    found = func.jacrev(lambda w: equilibrium(w, implicit(tol=1e-13)), chunk_size=1)(WEIGHT)
    close(found, func.jacrev(lambda w: equilibrium(w, UNROLLED))(WEIGHT), 1e-10)
