"""What all models have in common: `model(y, phi) -> Solution`, and `model.loss(batch)` for the trainer."""

from __future__ import annotations

import copy
import inspect
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, TypeVar, cast

import torch
from torch import Tensor, nn

from unsnap.algorithms.iterate import Callback, Denoiser, Solution
from unsnap.algorithms.iteration import Iteration, States
from unsnap.errors import InputError, short
from unsnap.fixed_point.backward import Backward
from unsnap.models.starts import Iterated, Start
from unsnap.networks import NETWORKS, Capture, Conditioned, WithFeatures
from unsnap.operators import CodedOperator
from unsnap.operators.base import Rows

Module = TypeVar("Module", bound=nn.Module)


class WholeIteration(Protocol):
    """What `Recurrent` repeats, unless the network is `Conditioned`."""

    def __call__(self, x: Tensor, y: Tensor, phi: CodedOperator, /) -> Tensor: ...


Network = Denoiser | WholeIteration | Conditioned


@dataclass(frozen=True)
class Batch:
    """Samples to learn from: videos `truth` (B, T, H, W), their snapshots y (B, *image), and the camera.

    start: what the model's start gives for them, if it is known: found once, not at every step; state: what the
    iteration has come to, to go on from.
    """

    truth: Tensor
    y: Tensor
    phi: CodedOperator
    start: Tensor | None = None
    state: States | None = None

    def select(self, rows: Rows) -> Batch:
        """Some of the samples."""
        start = None if self.start is None else self.start[rows]
        state = None if self.state is None else tuple(part[rows] for part in self.state)
        return Batch(self.truth[rows], self.y[rows], self.phi.select(rows), start, state)

    def to(self, place: torch.device) -> Batch:
        start = None if self.start is None else self.start.to(place)
        state = None if self.state is None else tuple(part.to(place) for part in self.state)
        phi = self.phi.with_masks(self.phi.masks.to(place))
        return Batch(self.truth.to(place), self.y.to(place), phi, start, state)

    def started(self, model: Model) -> Batch:
        """With the model's start, as video and as state."""
        start = model.started(self.y, self.phi)
        return replace(self, start=start, state=model.iteration.start(start))


@dataclass(frozen=True)
class Learning:
    """How an equilibrium is to be differentiated in this step of training; unfolded models need none of it.

    backward: the mode (`unroll(k)`: k recorded iterations from the batch's state); tol, max_iter: of the forward solve;
    penalty: weight of the Jacobian penalty, `probe` its random direction, like the truth; slowness: weight of the same
    along the residual; score: of videos and truths.
    """

    backward: Backward | None = None
    tol: float | None = None
    max_iter: int | None = None
    penalty: float = 0.0
    slowness: float = 0.0
    probe: Tensor | None = None
    score: Callable[[Tensor, Tensor], Tensor] | None = None
    """None: `log_rmse`."""

    def error(self, x: Tensor, truth: Tensor) -> Tensor:
        return (self.score or log_rmse)(x, truth)


class Loss(NamedTuple):
    value: Tensor
    state: States
    """Where the iteration is now, without gradients."""
    iterations: int
    """Evaluations of the map that the samples went through."""


class Model(nn.Module, ABC):
    """A reconstruction with weights, and with the start that it needs."""

    iteration: Iteration
    start: Start
    about: dict[str, Any]
    """Where the weights come from, for people; travels in the file."""

    @abstractmethod
    def forward(
        self, y: Tensor, phi: CodedOperator, *, start: Tensor | None = None, callback: Callback | None = None
    ) -> Solution:
        """Videos (..., T, H, W) from snapshots y (..., *image); start: the model's start for them, if known."""

    @abstractmethod
    def loss(self, batch: Batch, learning: Learning = Learning()) -> Loss:
        """What training makes small."""

    def __call__(self, y: Tensor, phi: CodedOperator, *args: Any, **options: Any) -> Solution:
        try:
            found: Solution = super().__call__(y, phi, *args, **options)
            return found
        except RuntimeError as error:
            known = isinstance(phi, CodedOperator) and [w for w in self.parameters() if w.is_floating_point()]
            weights = next((w for w in known or () if not _alike(w, y, phi.masks)), None)
            if weights is None:
                raise
            raise InputError(
                f"weights of {weights.dtype} on {weights.device} do not go with a snapshot of {y.dtype} on {y.device} "
                f"and masks of {phi.masks.dtype} on {phi.masks.device}; bring all three to one, as by model.to(y)"
            ) from error

    def started(self, y: Tensor, phi: CodedOperator, callback: Callback | None = None) -> Tensor:
        """The video that the iteration starts from, without gradients; `callback` is told of the way there."""
        with torch.no_grad():
            if callback is not None and isinstance(self.start, Iterated):
                return self.start(y, phi, callback)
            return self.start(y, phi)

    def _warn_of_lost_gradient(self, y: Tensor, phi: CodedOperator, start: Tensor | None) -> None:
        recorded = start is not None and start.requires_grad
        if torch.is_grad_enabled() and (y.requires_grad or phi.masks.requires_grad) and not recorded:
            warnings.warn(
                "the gradient with respect to y or the masks leaves out the way through the start, which this model's "
                "result depends on; it is not the derivative that finite differences show. A start that is "
                "differentiated is given as model(y, phi, start=phi.A_dagger(y))",
                RuntimeWarning,
                stacklevel=6,
            )


def _alike(*tensors: Tensor) -> bool:
    return len({(t.dtype, t.device) for t in tensors}) == 1


def check_parts(iteration: object, start: object) -> None:
    """An InputError unless they are values, and not names or classes of them."""
    if not isinstance(iteration, Iteration):
        raise InputError(f"iteration must be a value such as GAP(), got {short(iteration)}")
    if start is not None and (isinstance(start, type) or not callable(start)):
        raise InputError(f"start must be a value such as LeastSquares(), got {short(start)}")


def given_start(start: Tensor, video: tuple[int, ...]) -> Tensor:
    """A start that was given, as videos (B, T, H, W)."""
    if start.numel() != math.prod(video):
        raise InputError(f"the start must hold videos {video}, got shape {tuple(start.shape)}")
    return start.reshape(video)


def denoiser_of(network: Network, iteration: Iteration, capture: Capture) -> Denoiser:
    """The network as the iteration calls it; of no snapshots nothing is asked."""
    if not capture.y.shape[0]:  # no `len`, which exporters take for a constant
        return lambda x, sigma: x.clone()
    if isinstance(network, Conditioned):
        return network.condition(capture)
    if iteration.whole:
        whole = cast(WholeIteration, network)
        return lambda x, sigma: whole(x, capture.y, capture.phi)
    return cast(Denoiser, network)


def check_calls(iteration: Iteration, network: nn.Module) -> None:
    """Can the iteration call the network? A whole one calls `network(x, y, phi)`, unless it is handed the capture."""
    if isinstance(network, (Conditioned, WithFeatures)):
        return
    words = ("x", "y", "phi") if iteration.whole else ("x", "sigma")
    try:
        inspect.signature(network.forward).bind(*words)
    except TypeError as error:
        name = NETWORKS.name_of(type(network))
        if iteration.whole:
            raise InputError(
                f"the network {name!r} is no whole iteration, called as network(x, y, phi); choose another network, "
                "such as rnn, or another iteration than recurrent"
            ) from error
        raise InputError(
            f"the network {name!r} is no denoiser, called as network(x, sigma); if it is the whole iteration, called "
            "as network(x, y, phi), say so with the iteration recurrent (`--set iteration=recurrent`)"
        ) from error


def log_rmse(x: Tensor, truth: Tensor) -> Tensor:
    """Mean over samples of log RMSE, which is PSNR in other units: an easy and a hard sample pull equally."""
    return ((x - truth).square().mean((-3, -2, -1)) + 1e-6).sqrt().log().mean()


def fitted(module: Module, like: Tensor) -> Module:
    """The module in the dtype and on the device of a tensor: itself if it is, else a copy. Weights are never changed.

    >>> net = nn.Linear(2, 2)
    >>> fitted(net, torch.zeros(1)) is net, fitted(net, torch.zeros(1, dtype=torch.float64)).weight.dtype
    (True, torch.float64)
    """
    weights = [*module.parameters(), *module.buffers()]
    fits = all(w.device == like.device and (w.dtype == like.dtype or not w.is_floating_point()) for w in weights)
    if fits:
        return module
    return copy.deepcopy(module).to(like)
