"""What one training step learns from: Gaussian noise, an iteration of the pool, or the equilibrium itself."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from unsnap.equilibrium import DEQ
from unsnap.fixed_point import implicit
from unsnap.stability import jacobian_penalty
from unsnap.training.coding import Coded

States = tuple[Tensor, ...]


def rmse(x: Tensor, truth: Tensor) -> Tensor:
    """Mean over samples of the root mean square error."""
    return ((x - truth).square().mean((-3, -2, -1)) + 1e-8).sqrt().mean()


def error(x: Tensor, truth: Tensor) -> Tensor:
    """Mean over samples of log RMSE, which is PSNR in other units: an easy and a hard sample pull equally."""
    return ((x - truth).square().mean((-3, -2, -1)) + 1e-6).sqrt().log().mean()


def gaussian_loss(model: DEQ, noisy: Tensor, sigma: Tensor, truth: Tensor) -> Tensor:
    return error(model.network(noisy, sigma), truth)


def pool_loss(model: DEQ, coded: Coded, state: States, unroll: int) -> tuple[Tensor, States]:
    """The error after `unroll` iterations from a state, and that state.

    Only the last one is scored: an iteration may make things worse for the next to make them better, as
    plug-and-play does.
    """
    f = model.bind(coded.y, coded.phi, coded.guessed)
    for _ in range(unroll):
        state = f(state)
    return error(state[0], coded.truth), tuple(part.detach() for part in state)


def equilibrium_loss(
    model: DEQ, coded: Coded, state: States, tol: float, penalty: float = 0.0, probe: Tensor | None = None
) -> tuple[Tensor, States]:
    """The error of the equilibrium, which the state is near to, with the gradient of the implicit function theorem."""
    model.backward = implicit(tol=0.01, max_iter=12)
    solution = model(coded.y, coded.phi, state=state, guessed=coded.guessed, tol=tol, max_iter=15)
    loss = error(solution.x, coded.truth)
    if penalty > 0:
        f = _first(model.bind(coded.y, coded.phi, coded.guessed), solution.state[1:])
        loss = loss + penalty * jacobian_penalty(f, solution.state[0], probe=probe)
    return loss, tuple(part.detach() for part in solution.state)


def _first(f: Callable[[States], States], others: States) -> Callable[[Tensor], Tensor]:
    rest = tuple(part.detach() for part in others)
    return lambda x: f((x, *rest))[0]
