"""Where training samples begin: at the model's start, or elsewhere, so that the equilibrium does not depend on it."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from unsnap.algorithms.iteration import Iteration
from unsnap.models import Batch
from unsnap.operators import CodedOperator

DISTURBED = 0.2
"""Largest standard deviation of what is added to a disturbed start."""


def elsewhere(batch: Batch, iteration: Iteration, share: float, generator: torch.Generator) -> Batch:
    r"""The batch with about this share of its samples started at one of three other videos, each equally often.

    $\Phi^+y$; $\Phi^\top y/\|\Phi\|^2$; the model's own start under noise of a random level, white or, in half of the
    samples, smooth. The start itself, of which a network may be told, stays. Draws nothing if the share is 0.
    """
    if share == 0 or batch.start is None:
        return batch
    lot = torch.rand(len(batch.y), 1, 1, 1, generator=generator).to(batch.start)
    videos = (*_from_snapshot(batch.y, batch.phi), _disturbed(batch.start, generator))
    begin = batch.start
    for k, video in enumerate(videos):
        begin = torch.where((lot >= share * k / len(videos)) & (lot < share * (k + 1) / len(videos)), video, begin)
    return replace(batch, state=iteration.start(begin))


def _from_snapshot(y: Tensor, phi: CodedOperator) -> tuple[Tensor, Tensor]:
    return phi.A_dagger(y), phi.A_adjoint(y) / phi.squared_norms().reshape(-1, 1, 1, 1)


def _disturbed(video: Tensor, generator: torch.Generator) -> Tensor:
    level, smooth = torch.rand(2, len(video), 1, 1, 1, generator=generator)
    noise = torch.randn(video.shape, generator=generator)
    blurred = torch.nn.functional.avg_pool2d(noise, 5, 1, 2, count_include_pad=False) * 5  # of about the same size
    added: Tensor = DISTURBED * level * torch.where(smooth < 0.5, noise, blurred)
    return video + added.to(video)
