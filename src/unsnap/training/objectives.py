"""What one training step learns from: Gaussian noise, an iteration of the pool, or the equilibrium itself."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from unsnap.equilibrium import DEQ
from unsnap.fixed_point import implicit
from unsnap.stability import jacobian_penalty
from unsnap.training.coding import Coded

States = tuple[Tensor, ...]


def rmse(x: Tensor, truth: Tensor) -> Tensor:
    """Mean over samples of the root mean square error: an easy and a hard sample pull equally."""
    return ((x - truth).square().mean((-3, -2, -1)) + 1e-8).sqrt().mean()


def gaussian_loss(model: DEQ, noisy: Tensor, sigma: Tensor, truth: Tensor) -> Tensor:
    return rmse(model.network(noisy, sigma), truth)


def pool_loss(model: DEQ, coded: Coded, state: States, unroll: int) -> tuple[Tensor, States]:
    """`unroll` iterations from a state, all of them scored, and the state they lead to."""
    f = model.bind(coded.y, coded.phi)
    losses = []
    for _ in range(unroll):
        state = f(state)
        losses.append(rmse(state[0], coded.truth))
    return torch.stack(losses).mean(), tuple(part.detach() for part in state)


def equilibrium_loss(
    model: DEQ, coded: Coded, state: States, tol: float, penalty: float, generator: torch.Generator
) -> tuple[Tensor, States]:
    """The error of the equilibrium, which the state is near to, with the gradient of the implicit function theorem."""
    model.backward = implicit(tol=0.01, max_iter=12)
    solution = model(coded.y, coded.phi, state=state, tol=tol, max_iter=15)
    loss = rmse(solution.x, coded.truth)
    if penalty > 0:
        f = _first(model.bind(coded.y, coded.phi), solution.state[1:])
        loss = loss + penalty * jacobian_penalty(f, solution.state[0], generator=generator)
    return loss, tuple(part.detach() for part in solution.state)


def _first(f: Callable[[States], States], others: States) -> Callable[[Tensor], Tensor]:
    rest = tuple(part.detach() for part in others)
    return lambda x: f((x, *rest))[0]
