r"""Deep equilibrium models: $\hat x = f_\theta(\hat x; y, \Phi)$ with f any `Iteration` of `algorithms/`.

One sigma, never a schedule: a map that changes from call to call has no equilibrium. Zhao, Zheng & Yuan, *Deep
equilibrium models for snapshot compressive imaging*, AAAI 2023.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Real
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from unsnap.algorithms.iterate import Callback, Denoiser
from unsnap.algorithms.iteration import Iteration, States
from unsnap.errors import InputError, short
from unsnap.fixed_point import FixedPoint, anderson, fixed_point, implicit
from unsnap.fixed_point.backward import Backward, Unroll
from unsnap.fixed_point.solver import Solver
from unsnap.models.base import Batch, Learning, Loss, Model, Network, check_parts, denoiser_of, given_start
from unsnap.models.starts import LeastSquares, Start
from unsnap.networks import Capture, WithFeatures
from unsnap.networks.capture import told
from unsnap.operators import CodedOperator
from unsnap.operators.base import check_given

_NO_SCHEDULE = (
    "a map whose sigma follows a schedule has no equilibrium; use `gap` with a schedule for plug-and-play instead"
)


@dataclass(frozen=True, eq=False)  # known by identity: torch.compile asks for its hash before it has any fields
class EquilibriumMap:
    """z -> f(z) for one batch; narrows itself to some samples, so that finished ones cost nothing."""

    iteration: Iteration
    network: Network
    sigma: float | Tensor
    capture: Capture
    units: tuple[Tensor, CodedOperator]
    """Snapshots and camera in the units of the iteration's step."""

    @classmethod
    def of(cls, iteration: Iteration, network: Network, sigma: float | Tensor, capture: Capture) -> EquilibriumMap:
        return cls(iteration, network, sigma, capture, iteration.prepared(capture.y, capture.phi))

    def __post_init__(self) -> None:
        _ = self._denoise  # here, where gradients are recorded, and not in the solve, where none are

    def __call__(self, state: States) -> States:
        return self.iteration.step(state, *self.units, self._denoise, self.sigma)

    def select(self, rows: Tensor) -> EquilibriumMap:
        sigma = self.sigma[rows] if isinstance(self.sigma, Tensor) and self.sigma.ndim else self.sigma
        y, phi = self.units
        return replace(self, sigma=sigma, capture=self.capture.select(rows), units=(y[rows], phi.select(rows)))

    @cached_property
    def _denoise(self) -> Denoiser:
        return denoiser_of(self.network, self.iteration, self.capture)


class Equilibrium(Model):
    """A network at rest inside an iteration: `model(y, phi)` is the equilibrium video, differentiable.

    sigma: what the network is told, one number (or a tensor of one per snapshot); an nn.Parameter is learned. start:
    where the iteration begins, and what a `Conditioned` network is handed; gradients with respect to y and the masks
    do not go through it, which matters (and is warned of) only for such networks and for `unroll`.

    >>> from unsnap import GAP, Snapshot
    >>> from unsnap.masks import bernoulli
    >>> phi = Snapshot(bernoulli(4, 16, 16, generator=torch.Generator().manual_seed(0)))
    >>> model = Equilibrium(GAP(), lambda x, sigma: 0.9 * x)               # any denoiser(x, sigma)
    >>> solution = model(phi.A(torch.rand(1, 4, 16, 16)), phi)
    >>> solution.x.shape, bool(solution.converged)
    (torch.Size([1, 4, 16, 16]), True)
    """

    def __init__(
        self,
        iteration: Iteration,
        network: Network,
        sigma: float | Tensor = 0.0,
        *,
        start: Start | None = None,
        solver: Solver | None = None,
        backward: Backward | None = None,
        tol: float = 1e-4,
        max_iter: int = 100,
        about: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(sigma, (Real, Tensor)):
            raise ValueError(f"sigma must be one number, got {type(sigma).__name__}: {_NO_SCHEDULE}")
        if isinstance(network, WithFeatures):
            raise InputError(
                f"{type(network).__name__} passes features from stage to stage, and an equilibrium has no stages; "
                "use it in an Unfolded model (`unsnap train --set kind=unfolded`)"
            )
        check_parts(iteration, start)
        if not callable(network):
            raise InputError(f"network must be a module or a function of (x, sigma), got {short(network)}")
        if not (solver is None or hasattr(solver, "start")) or isinstance(solver, type):
            raise InputError(f"solver must be a value such as anderson(), got {short(solver)}")
        if not (backward is None or hasattr(backward, "attach") or isinstance(backward, Unroll)):
            raise InputError(f"backward must be a value such as implicit() or jfb(), got {short(backward)}")
        self.iteration, self.network, self.sigma = iteration, network, sigma
        self.start = LeastSquares() if start is None else start
        self.solver = anderson() if solver is None else solver
        self.backward = implicit() if backward is None else backward
        self.tol, self.max_iter, self.about = tol, max_iter, about or {}

    def __call__(self, y: Tensor, phi: CodedOperator, *args: Any, **options: Any) -> FixedPoint:
        return cast(FixedPoint, super().__call__(y, phi, *args, **options))

    def forward(
        self,
        y: Tensor,
        phi: CodedOperator,
        *,
        start: Tensor | None = None,
        state: Tensor | States | None = None,
        tol: float | None = None,
        max_iter: int | None = None,
        callback: Callback | None = None,
        backward: Backward | None = None,
    ) -> FixedPoint:
        """The equilibrium for snapshots y (..., *image); all fields of the result have the leading axes of y.

        start: the model's start for these snapshots, if known; state: a warm start, `state` of an earlier solution or
        just a video.
        """
        check_given(y, phi)
        _warn_of_change(self.network)
        if told(self.network) or isinstance(backward or self.backward, Unroll):
            self._warn_of_lost_gradient(y, phi, start)
        lead = phi.aligned(y)[2]
        watch = callback and (lambda k, x, r: callback(k, x.reshape(*lead, *phi.video), r.reshape(lead)))
        f = self._bound(y, phi, start, watch)
        video = (len(f.capture.y), *phi.video)
        solution = fixed_point(
            f,
            self._state(f.capture.start if state is None else state, video),
            solver=self.solver,
            backward=self.backward if backward is None else backward,
            tol=self.tol if tol is None else tol,
            max_iter=self.max_iter if max_iter is None else max_iter,
            callback=watch,
        )
        return solution.shaped(lead)

    def bind(self, y: Tensor, phi: CodedOperator, start: Tensor | None = None) -> Callable[[States], States]:
        """The map state -> f(state) itself, with the weights of now; leading axes of y count as one."""
        return self._bound(y, phi, start)

    def loss(self, batch: Batch, learning: Learning = Learning()) -> Loss:
        """The error (log RMSE unless told) of what is reached from the batch's state, and penalties on the Jacobian."""
        solution = self(
            batch.y, batch.phi, start=batch.start, state=batch.state, tol=learning.tol, max_iter=learning.max_iter,
            backward=learning.backward,
        )  # fmt: skip
        value = learning.error(solution.x, batch.truth)
        if learning.penalty > 0 or learning.slowness > 0:
            bound, others = self.bind(batch.y, batch.phi, batch.start), tuple(p.detach() for p in solution.state[1:])
            f, x = (lambda x: bound((x, *others))[0]), solution.state[0]
            if learning.penalty > 0:
                value = value + learning.penalty * jacobian_penalty(f, x, probe=learning.probe)
            if learning.slowness > 0:
                value = value + learning.slowness * residual_gain(f, x)
        return Loss(value, tuple(part.detach() for part in solution.state), solution.evaluations)

    def _bound(
        self, y: Tensor, phi: CodedOperator, start: Tensor | None, callback: Callback | None = None
    ) -> EquilibriumMap:
        y, phi, lead = phi.aligned(y)
        y, phi = phi.normalised(y)
        video = self.started(y, phi, callback) if start is None else given_start(start, (y.shape[0], *phi.video))
        return EquilibriumMap.of(self.iteration, self.network, self._sigma(lead), Capture(y, phi, video))

    def _sigma(self, lead: tuple[int, ...]) -> float | Tensor:
        """A number, or (B,)."""
        sigma: float | Tensor = self.sigma
        if not isinstance(sigma, Tensor):
            return sigma
        if sigma.numel() != 1 and sigma.shape != lead:
            raise ValueError(
                f"sigma must be one number, or one per snapshot {lead}, got {tuple(sigma.shape)}: {_NO_SCHEDULE}"
            )
        return sigma.reshape(() if sigma.numel() == 1 else -1)

    def _state(self, given: Tensor | States, video: tuple[int, ...]) -> States:
        parts = self.iteration.start(given) if isinstance(given, Tensor) else given
        count = len(self.iteration.start(parts[0]))
        if len(parts) != count or any(part.numel() != math.prod(video) for part in parts):
            raise ValueError(
                f"the state of {type(self.iteration).__name__} must be a video {video} or {count} such tensors, "
                f"got {[tuple(part.shape) for part in parts]}"
            )
        return tuple(part.reshape(video) for part in parts)


def _warn_of_change(network: object) -> None:
    """Layers that give another result at every call leave a map without an equilibrium."""
    layers = network.modules() if isinstance(network, nn.Module) and network.training else ()
    for layer in layers:
        if layer.training and isinstance(layer, (_DropoutNd, _BatchNorm)):
            warnings.warn(
                f"{type(layer).__name__} in training mode changes from call to call, so that there is no equilibrium; "
                "use GroupNorm or no such layer, or set it to eval() while the rest is trained",
                RuntimeWarning,
                stacklevel=5,
            )
            return


def jacobian_penalty(
    f: Callable[[Tensor], Tensor],
    x: Tensor,
    *,
    probe: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Hutchinson's estimate of $\|J\|_F^2 / n$ at x (..., T, H, W), differentiable: add it to a training loss.

    probe: white noise like f(x), which is otherwise drawn.
    """
    with torch.enable_grad():
        point = x.detach().requires_grad_()
        value = f(point)
        if probe is None:
            device = value.device if generator is None else generator.device
            probe = torch.randn(value.shape, generator=generator, dtype=value.dtype, device=device)
        product: Tensor = torch.autograd.grad(value, point, probe.to(value), create_graph=True)[0]
    return product.square().mean()


def residual_gain(f: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    r"""$\|J^\top r\|^2 / \|r\|^2$ at x (B, T, H, W), $r = f(x) - x$, in the mean over samples: a term for training.

    What iterations leave of the residual lies along the modes of J that decay slowest, so that this makes just these
    decay faster, where `jacobian_penalty` shrinks all of them alike. Differentiable, with r held constant.
    """
    with torch.enable_grad():
        point = x.detach().requires_grad_()
        value = f(point)
        r = (value - point).detach()
        size = torch.linalg.vector_norm(r, dim=(-3, -2, -1), keepdim=True)
        probe = r / size.clamp(min=torch.finfo(r.dtype).tiny)
        product: Tensor = torch.autograd.grad(value, point, probe, create_graph=True)[0]
    return product.square().sum((-3, -2, -1)).mean()
