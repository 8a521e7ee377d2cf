r"""Deep equilibrium models: $\hat x = f_\theta(\hat x; y, \Phi)$ with f made from the very steps of `algorithms/`.

DEQ = step + network + solver + backward. One sigma, never a schedule: a map that changes from call to call has no
equilibrium. Zhao, Zheng & Yuan, *Deep equilibrium models for snapshot compressive imaging*, AAAI 2023.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn

from unsnap.algorithms import ADMMState, admm_step, gap_step, gd_step, pgd_step
from unsnap.fixed_point import FixedPoint, anderson, fixed_point, implicit
from unsnap.fixed_point.backward import Backward
from unsnap.fixed_point.solver import Solver
from unsnap.iterate import Denoiser
from unsnap.networks.context import guess, total_variation
from unsnap.operators import Snapshot

Start = Callable[[Tensor, Snapshot], Tensor]
States = tuple[Tensor, ...]


@dataclass(frozen=True)
class Step:
    """Which iteration to bring to rest. `strength` is relative to ‖Φ‖² of each sample: the masks' scale cancels."""

    name: str
    strength: float = 1.0

    def __post_init__(self) -> None:
        if self.name not in _MOVES:
            raise ValueError(f"step must be one of {', '.join(_MOVES)}, got {self.name!r}")
        if not self.strength > 0:
            raise ValueError(f"strength must be a number > 0, got {self.strength}")

    def start(self, x: Tensor) -> States:
        """What is iterated, from a video."""
        return (x, torch.zeros_like(x)) if self.name == "admm" else (x,)

    def bind(
        self, y: Tensor, phi: Snapshot, network: Any, sigma: float | Tensor, guessed: Tensor | None = None
    ) -> _Map:
        """The map for snapshots y (B, H, W), whose `guess` may be known already."""
        if self.name in ("gap", "rnn"):  # these feel no scale
            return _Map(self, y, phi, network, sigma, guessed)
        peak = phi.energy.amax((-2, -1), keepdim=True)
        norm = torch.where(peak > 0, peak, 1).sqrt()
        return _Map(self, y / norm, Snapshot(phi.masks / norm.unsqueeze(-3)), network, sigma, guessed)


def de_gap() -> Step:
    r"""$f(x) = D(x + \Phi^\top(\Phi\Phi^\top)^{-1}(y - \Phi x))$."""
    return Step("gap")


def de_pgd(alpha: float = 1.0) -> Step:
    r"""$f(x) = D(x + \frac{\alpha}{\|\Phi\|^2}\Phi^\top(y - \Phi x))$."""
    return Step("pgd", alpha)


def de_gd(alpha: float = 1.0) -> Step:
    r"""$f(x) = x + \frac{\alpha}{\|\Phi\|^2}\Phi^\top(y - \Phi x) - \alpha(x - D(x))$: what D removes is the slope."""
    return Step("gd", alpha)


def de_admm(rho: float = 0.1) -> Step:
    r"""ADMM's $(v, w)$ with penalty $\rho\|\Phi\|^2$ and D for the proximal step."""
    return Step("admm", rho)


def de_rnn() -> Step:
    r"""$f(x) = \mathrm{RNN}(x, y, \Phi)$: the network is the whole map, called as `network(x, y, phi)`."""
    return Step("rnn")


@dataclass(frozen=True)
class _Map:
    """The bound map z -> f(z); narrows itself to some samples, so that finished ones cost nothing."""

    step: Step
    y: Tensor
    phi: Snapshot
    network: Any
    sigma: float | Tensor
    guessed: Tensor | None = None

    def __call__(self, state: States) -> States:
        return _MOVES[self.step.name](self, *state)

    @cached_property
    def denoise(self) -> Denoiser:
        """The network, shown the measurement if it has a method `given(y, phi)`."""
        given = getattr(self.network, "given", None)
        known = () if self.guessed is None else (self.guessed,)
        return self.network if given is None else given(self.y, self.phi, *known)  # type: ignore[no-any-return]

    def select(self, rows: Tensor) -> _Map:
        phi = Snapshot(self.phi.masks[rows]) if self.phi.masks.ndim == 4 else self.phi
        sigma = self.sigma[rows] if isinstance(self.sigma, Tensor) and self.sigma.ndim else self.sigma
        narrow = getattr(self.denoise, "select", None)  # what was made from all snapshots need not be made again
        network = self.network if narrow is None else narrow(rows)
        guessed = None if self.guessed is None else self.guessed[rows]
        return replace(self, y=self.y[rows], phi=phi, network=network, sigma=sigma, guessed=guessed)


def _gap(m: _Map, x: Tensor) -> States:
    return (gap_step(x, m.y, m.phi, m.denoise, m.sigma),)


def _pgd(m: _Map, x: Tensor) -> States:
    return (pgd_step(x, m.y, m.phi, m.denoise, m.sigma, m.step.strength),)


def _gd(m: _Map, x: Tensor) -> States:
    return (gd_step(x, m.y, m.phi, lambda z: z - m.denoise(z, m.sigma), m.step.strength),)


def _admm(m: _Map, v: Tensor, w: Tensor) -> States:
    return admm_step(ADMMState(v, w), m.y, m.phi, m.denoise, m.sigma, m.step.strength)


def _rnn(m: _Map, x: Tensor) -> States:
    return (m.denoise(x, m.sigma) if hasattr(m.network, "given") else m.network(x, m.y, m.phi),)


_MOVES: dict[str, Callable[..., States]] = {"gap": _gap, "pgd": _pgd, "gd": _gd, "admm": _admm, "rnn": _rnn}


def least_squares(y: Tensor, phi: Snapshot) -> Tensor:
    """Start from Φ⁺y."""
    return phi.A_dagger(y)


def adjoint(y: Tensor, phi: Snapshot) -> Tensor:
    """Start from Φᵀy, as the paper does."""
    return phi.A_adjoint(y)


STARTS: dict[str, Start] = {start.__name__: start for start in (least_squares, adjoint, total_variation, guess)}


_NO_SCHEDULE = (
    "a map whose sigma follows a schedule has no equilibrium; use `gap` with a schedule for plug-and-play instead"
)


class DEQ(nn.Module):
    """A network at rest inside an algorithm: `model(y, phi)` is the equilibrium video, differentiable.

    sigma: what the network is told, one number (or a tensor of one per snapshot); an nn.Parameter is learned.

    >>> from unsnap.masks import bernoulli
    >>> phi = Snapshot(bernoulli(4, 16, 16, generator=torch.Generator().manual_seed(0)))
    >>> model = DEQ(de_gap(), lambda x, sigma: 0.9 * x)                    # any denoiser(x, sigma)
    >>> solution = model(phi.A(torch.rand(1, 4, 16, 16)), phi)
    >>> solution.x.shape, bool(solution.converged)
    (torch.Size([1, 4, 16, 16]), True)
    """

    def __init__(
        self,
        step: Step,
        network: Any,
        sigma: float | Tensor = 0.0,
        *,
        solver: Solver | None = None,
        backward: Backward | None = None,
        start: Start = least_squares,
        tol: float = 1e-4,
        max_iter: int = 100,
    ) -> None:
        super().__init__()
        if not isinstance(sigma, (Real, Tensor)):
            raise ValueError(f"sigma must be one number, got {type(sigma).__name__}: {_NO_SCHEDULE}")
        self.step, self.network, self.sigma = step, network, sigma
        self.solver = anderson() if solver is None else solver
        self.backward = implicit() if backward is None else backward
        self.start, self.tol, self.max_iter = start, tol, max_iter

    def forward(
        self,
        y: Tensor,
        phi: Snapshot,
        *,
        state: Tensor | States | None = None,
        guessed: Tensor | None = None,
        tol: float | None = None,
        max_iter: int | None = None,
        callback: Callable[[int, Tensor, Tensor], None] | None = None,
    ) -> FixedPoint:
        """The equilibrium for snapshots y (..., H, W).

        state: a warm start, `state` of an earlier solution or just a video; guessed: what `guess` gives, if known. Of
        the result, x has the leading axes of y and everything else one entry per snapshot, in their order.
        """
        y, phi, sigma, lead = _aligned(y, phi, self.sigma)
        video = (len(y), *phi.masks.shape[-3:])
        guessed = self.guess(y, phi) if guessed is None else guessed
        if state is None:
            with torch.no_grad():
                state = self.start(y, phi) if guessed is None else guessed
        watch = callback and (lambda k, x, r: callback(k, x.reshape(*lead, *video[1:]), r))
        solution = fixed_point(
            self.step.bind(y, phi, self.network, sigma, guessed),
            self._state(state, video),
            solver=self.solver,
            backward=self.backward,
            tol=self.tol if tol is None else tol,
            max_iter=self.max_iter if max_iter is None else max_iter,
            callback=watch,
        )
        return replace(solution, x=solution.x.reshape(*lead, *video[1:]))

    def guess(self, y: Tensor, phi: Snapshot) -> Tensor | None:
        """What the iteration starts from and the network is shown, where these are one: worth finding only once."""
        return guess(y, phi) if self.start is guess else None

    def bind(self, y: Tensor, phi: Snapshot, guessed: Tensor | None = None) -> Callable[[States], States]:
        """The map state -> f(state) itself; leading axes of y count as one."""
        y, phi, sigma, _ = _aligned(y, phi, self.sigma)
        return self.step.bind(y, phi, self.network, sigma, guessed)

    def _state(self, given: Tensor | States, video: tuple[int, ...]) -> States:
        parts = self.step.start(given) if isinstance(given, Tensor) else given
        count = len(self.step.start(parts[0]))
        if len(parts) != count or any(part.numel() != math.prod(video) for part in parts):
            raise ValueError(
                f"the state of {self.step.name} must be a video {video} or {count} such tensors, "
                f"got {[tuple(part.shape) for part in parts]}"
            )
        return tuple(part.reshape(video) for part in parts)


def _aligned(
    y: Tensor, phi: Snapshot, sigma: float | Tensor
) -> tuple[Tensor, Snapshot, float | Tensor, tuple[int, ...]]:
    """y as (B, H, W), phi with one mask set or B, sigma a number or (B,); and the leading axes that became B."""
    masks = phi.masks
    try:
        lead: torch.Size = torch.broadcast_shapes(y.shape[:-2], masks.shape[:-3])  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        raise ValueError(
            f"masks must be one set for all snapshots or one for each, got {tuple(masks.shape)} for {tuple(y.shape)}"
        ) from error
    if masks.ndim == 4 and masks.shape[:-3] != lead:
        phi = Snapshot(masks.expand(*lead, *masks.shape[1:]).reshape(-1, *masks.shape[1:]))
    if isinstance(sigma, Tensor):
        if sigma.numel() != 1 and sigma.shape != lead:
            raise ValueError(
                f"sigma must be one number, or one per snapshot {tuple(lead)}, got {tuple(sigma.shape)}: {_NO_SCHEDULE}"
            )
        sigma = sigma.reshape(() if sigma.numel() == 1 else -1)
    return y.expand(*lead, *y.shape[-2:]).reshape(-1, *y.shape[-2:]), phi, sigma, tuple(lead)
