r"""The derivatives of $\hat z = f(\hat z)$ as part of torch's graph.

With $J = \partial f/\partial z$ at $\hat z$ and $M = (I - J)^{-1}$ held constant, the chord step of Newton's method
$x_{k+1} = x_k + M(f_\theta(x_k) - x_k)$, $x_0 = \hat z$, leaves the value alone; the derivatives of $x_k$ with respect
to $\theta$ are those of the fixed point up to the k-th: if $x_k$ is wrong by $e$ after a change $\delta$ of $\theta$,
then $x_{k+1}$ is by $O(\delta e + e^2)$. Each step records one evaluation of f.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

Map = Callable[[Tensor], Tensor]
"""f on flattened states (B, n), or a linear map of them"""
Inverse = Callable[[Map, Tensor], Tensor]
"""inverse(J, v): (I − J)⁻¹v or near it, from products with J"""
Maps = tuple[Map, Map]
"""A linear map and its transpose"""


def attach(f: Map, z: Tensor, inverse: Inverse, order: int = 1) -> Tensor:
    """z with the derivatives of the fixed point, for so many differentiations; one more is refused."""
    x = z
    for k in range(1, order + 1):
        recorded = _record(f, x)
        if recorded is None:
            return z
        value, transpose = recorded
        maps = _inverses(inverse, transpose, z)
        x = _Chord.apply(value, x, maps, order if k == order else None)  # type: ignore[no-untyped-call]
    return x


def _inverses(inverse: Inverse, transpose: Callable[[], Map], z: Tensor) -> Maps:
    """v -> Mᵀv and u -> Mu."""
    return lambda v: inverse(transpose(), v), lambda u: inverse(_transpose(transpose(), torch.zeros_like(z)), u)


class _Backwards(torch.autograd.Function):
    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        raise RuntimeError(ONE_BY_ONE)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise RuntimeError(ONE_BY_ONE)


ONE_BY_ONE = (
    "an equilibrium is differentiated backwards and one vector at a time, not by vmap or in forward mode; use "
    "torch.func.grad, torch.func.jacrev(..., chunk_size=1), torch.autograd.functional.hessian or backward=unroll(steps)"
)


class _Chord(_Backwards):
    """x + M(f(x) − x), whose value is x; backward, v becomes Mᵀv and goes on into f's own graph."""

    @staticmethod
    def forward(value: Tensor, x: Tensor, maps: Maps, order: int | None) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Maps, int | None], output: Tensor) -> None:
        ctx.maps, ctx.order = inputs[2:]
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, v: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        a = _apply(v, *ctx.maps)
        if torch.is_grad_enabled() and ctx.order is not None:
            a = a + _Limit.apply(*ctx.saved_tensors, ctx.order, 1)  # type: ignore[no-untyped-call]
        return a, v - a if ctx.needs_input_grad[1] else None, None, None


class _Linear(_Backwards):
    # The value comes as an argument: inside torch.func a forward pass must not touch tensors but its arguments.

    @staticmethod
    def forward(v: Tensor, value: Tensor, maps: Maps) -> Tensor:
        return value.view_as(value)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Maps], output: Tensor) -> None:
        ctx.maps = inputs[2]

    @staticmethod
    def backward(ctx: Any, v: Tensor) -> tuple[Tensor, None, None]:
        forward, backward = ctx.maps
        return _apply(v, backward, forward), None, None


class _Limit(_Backwards):
    """Zeros that depend on x like the k-th derivative that they are added to.

    They refuse a derivative of more than the given order: torch runs only what lies on the way to the variables that
    are asked for, and by way of x this does.
    """

    @staticmethod
    def forward(x: Tensor, order: int, k: int) -> Tensor:
        return torch.zeros_like(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, int, int], output: Tensor) -> None:
        x, ctx.order, ctx.k = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx: Any, u: Tensor) -> tuple[Tensor, None, None]:
        if ctx.k == ctx.order:
            raise RuntimeError(
                f"this equilibrium was recorded for derivatives of order {ctx.order}, and order {ctx.order + 1} was "
                f"asked for; solve with backward=implicit(order={ctx.order + 1})"
            )
        return _Limit.apply(*ctx.saved_tensors, ctx.order, ctx.k + 1), None, None  # type: ignore[no-untyped-call]


def _apply(v: Tensor, forward: Map, backward: Map) -> Tensor:
    """A linear map of v that may be differentiated, given the map and its transpose."""
    with torch.no_grad():
        _Linear.apply(v, v, None)  # type: ignore[no-untyped-call]  # says what is wrong under vmap; the solve could not
        value = forward(v.contiguous())
    return _Linear.apply(v, value, (forward, backward))  # type: ignore[no-any-return, no-untyped-call]


def _record(f: Map, x: Tensor) -> tuple[Tensor, Callable[[], Map]] | None:
    """f(x), recorded, and what makes a -> Jᵀa there; None if nothing but x could receive a gradient."""
    try:
        point = x.detach().requires_grad_()
    except RuntimeError:  # torch forbids this inside torch.func, whose maps serve only the level that they were made in
        return f(x), partial(_transpose, f, x)
    if x.requires_grad:
        point = x.view_as(x)
    else:
        # When a goes on through f's graph it arrives here too. That costs the derivative of f's first operation only,
        # all others being on the way to the parameters; the sum is not wanted.
        point.register_post_accumulate_grad_hook(_forget)  # type: ignore[no-untyped-call]
    value = f(point)
    return (value, lambda: partial(_pull, value, point)) if _has_leaf_besides(point, value) else None


def _transpose(f: Map, x: Tensor) -> Map:
    """a -> Jᵀa."""
    try:
        point = x.detach().requires_grad_()
    except RuntimeError:
        pullback = torch.func.vjp(f, x)[1]
        return lambda a: pullback(a)[0]
    with torch.enable_grad():
        return partial(_pull, f(point), point)


def _pull(value: Tensor, point: Tensor, a: Tensor) -> Tensor:
    """Jᵀa of the recorded value, itself recorded where gradients are."""
    found = None
    if value.requires_grad:
        (found,) = torch.autograd.grad(
            value, point, a, retain_graph=True, create_graph=torch.is_grad_enabled(), allow_unused=True
        )
    return torch.zeros_like(point) if found is None else found


def _forget(point: Tensor) -> None:
    point.grad = None


def _has_leaf_besides(point: Tensor, value: Tensor) -> bool:
    nodes, seen = [value.grad_fn], set()
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        if getattr(node, "variable", point) is not point:
            return True
        seen.add(node)
        nodes.extend(parent for parent, _ in node.next_functions)
    return False
