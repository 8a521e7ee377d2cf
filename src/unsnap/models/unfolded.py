r"""Deep unfolding: K stages of an iteration, each with weights and sigma of its own, trained through all of them.

$x_{k} = \mathrm{step}(x_{k-1};\ y, \Phi, D_{\theta_k}, \sigma_k)$ from a start: GAP-net with `GAP()`, ADMM-net with
`ADMM()`, and an end-to-end network with `Recurrent()` and one stage. Memory grows with K in training, as every stage is
recorded. Meng, Yuan & Jalali, *Deep unfolding for snapshot compressive imaging*, IJCV 2023.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from unsnap.algorithms.iterate import Callback, Denoiser, Solution, check_like, relative_change
from unsnap.algorithms.iteration import Iteration
from unsnap.errors import InputError
from unsnap.models.base import Batch, Learning, Loss, Model, check_parts, denoiser_of, given_start
from unsnap.models.starts import LeastSquares, Start
from unsnap.networks import Capture, WithFeatures
from unsnap.operators import CodedOperator
from unsnap.operators.base import check_given


class Unfolded(Model):
    """`model(y, phi)` runs len(sigmas) stages, with one network for all of them or a list of one each.

    learn_sigmas: the noise levels are weights too. A `WithFeatures` network passes features from stage to stage. The
    start is differentiated only where it is given; else a gradient with respect to y or the masks is warned of.

    >>> from unsnap import GAP, Snapshot
    >>> from unsnap.masks import bernoulli
    >>> from unsnap.networks import CNN
    >>> phi = Snapshot(bernoulli(4, 16, 16, generator=torch.Generator().manual_seed(0)))
    >>> model = Unfolded(GAP(), [CNN(2, 4) for _ in range(3)], [0.1, 0.05, 0.02])
    >>> model(phi.A(torch.rand(4, 16, 16)), phi).residual.shape
    torch.Size([3])
    """

    def __init__(
        self,
        iteration: Iteration,
        networks: nn.Module | Sequence[nn.Module],
        sigmas: Sequence[float] | Tensor,
        *,
        start: Start | None = None,
        learn_sigmas: bool = False,
        about: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        check_parts(iteration, start)
        given = [networks] if isinstance(networks, nn.Module) or callable(networks) else list(networks)
        own = [network for network in given if isinstance(network, nn.Module)]
        if len(own) < len(given):
            raise InputError("the networks of an unfolded model must be modules (nn.Module), whose weights are trained")
        levels = torch.as_tensor(sigmas, dtype=torch.float32).detach().clone()
        if levels.ndim != 1 or not len(levels) or len(own) not in (1, len(levels)):
            raise ValueError(
                f"an unfolded model needs one sigma per stage and one network or one per stage, got sigmas of shape "
                f"{tuple(levels.shape)} and {len(own)} networks"
            )
        self.iteration, self.networks = iteration, nn.ModuleList(own)
        self.sigmas = nn.Parameter(levels, requires_grad=learn_sigmas)
        self.start = LeastSquares() if start is None else start
        self.about = about or {}

    @property
    def stages(self) -> int:
        return len(self.sigmas)

    def forward(
        self,
        y: Tensor,
        phi: CodedOperator,
        *,
        start: Tensor | None = None,
        callback: Callback | None = None,
        stages: int | None = None,
    ) -> Solution:
        """The last stage's video (..., T, H, W). `residual` is each stage's relative change; a finite video counts as
        converged, as there is nothing that it would have to converge to. stages: only the first ones."""
        count = self.stages if stages is None else stages
        if not 1 <= count <= self.stages:
            raise ValueError(f"the model has {self.stages} stages, so 1 to {self.stages} can be run, not {count}")
        check_given(y, phi)
        self._warn_of_lost_gradient(y, phi, start)
        y, phi, lead = phi.aligned(y)
        y, phi = phi.normalised(y)
        watch = callback and (lambda k, x, r: callback(k, x.reshape(*lead, *phi.video), r.reshape(lead)))
        video = self.started(y, phi, watch) if start is None else given_start(start, (y.shape[0], *phi.video))
        capture, (data, camera) = Capture(y, phi, video), self.iteration.prepared(y, phi)
        state, changes, passed = self.iteration.start(video), [], _Features()
        for k, sigma in enumerate(self.sigmas[:count]):
            network = self.networks[k % len(self.networks)]
            new = self.iteration.step(state, data, camera, passed.through(network, self.iteration, capture), sigma)
            check_like(new[0], state[0])
            changes.append(relative_change(new[0], state[0]))
            state = new
            if watch is not None:
                watch(k + 1, state[0], changes[-1])
        residual = torch.stack(changes).reshape(len(changes), *lead)
        finite = torch.isfinite(residual).all(0)
        return Solution(state[0].reshape(*lead, *phi.video), residual, finite, ~finite)

    def loss(self, batch: Batch, learning: Learning = Learning()) -> Loss:
        """The error (log RMSE unless told) of the last stage; the state stays the start, as every step begins there."""
        video = self.started(batch.y, batch.phi) if batch.start is None else batch.start
        solution = self(batch.y, batch.phi, start=video)
        return Loss(learning.error(solution.x, batch.truth), self.iteration.start(video), self.stages)


class _Features:
    """What a stage leaves for the next."""

    def __init__(self) -> None:
        self.kept: object = None

    def through(self, network: nn.Module, iteration: Iteration, capture: Capture) -> Denoiser:
        if not isinstance(network, WithFeatures) or not capture.y.shape[0]:
            return denoiser_of(network, iteration, capture)
        stage = network.condition(capture)

        def denoise(x: Tensor, sigma: float | Tensor, /) -> Tensor:
            video, self.kept = stage(x, sigma, self.kept)
            return video

        return denoise
