"""A shipped model has learned something: its video beats the start that it was given, and what is free beyond that."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
import torch
from torch import Tensor

from unsnap import psnr, zoo
from unsnap.masks import bernoulli
from unsnap.models import Annealed, Equilibrium, Model
from unsnap.networks import Capture, Conditioned
from unsnap.networks.capture import told
from unsnap.operators import Snapshot
from unsnap.simulate import render

SEEDS = (21, 22, 23)
# dB over the model's own start projected on {Φx = y}, which costs nothing beyond the start.
MARGINS = {
    "de-gap": 0.3, "de-agap": 0.3, "de-agap-certified": 0.3, "de-rnn": 0.3, "shift-net": 0.3, "guided-certified": 0.2
}  # fmt: skip


@cache
def scenes(seeds: tuple[int, ...], *shape: int) -> tuple[Tensor, Snapshot]:
    """Clips that no training has seen, each with a camera of its own, in one batch."""
    masks = [bernoulli(*shape, generator=torch.Generator().manual_seed(seed)) for seed in seeds]
    return torch.stack([render(*shape, seed=seed) for seed in seeds]), Snapshot(torch.stack(masks))


def quality(x: Tensor, truth: Tensor) -> Tensor:
    """dB of each video, (..., T, H, W) -> (...)."""
    return psnr(x, truth.expand_as(x)).mean(-1)


def gains(model: Model) -> tuple[Tensor, Tensor]:
    """For each scene: dB over the start, and over the projected start."""
    truth, phi = scenes(SEEDS, 8, 24, 24)
    y = phi.A(truth)
    start = model.started(y, phi)
    with torch.no_grad():
        solution = model(y, phi, start=start)
    assert bool(solution.converged.all())
    found, begun, free = (quality(x, truth) for x in (solution.x, start, phi.project(start, y)))
    return found - begun, found - free


@pytest.mark.parametrize("name", MARGINS)
def test_it_beats_its_own_start(name: str) -> None:
    over_start, over_free = gains(zoo.trainable(name))
    assert bool((over_start > MARGINS[name] + 0.1).all()), over_start
    assert bool((over_free > MARGINS[name]).all()), over_free


class Lazy(Conditioned):
    """Has learned nothing but to give the start back."""

    def condition(self, capture: Capture) -> Callable[[Tensor, float | Tensor], Tensor]:
        return lambda x, sigma: capture.start


def test_a_model_that_returns_its_start_would_be_found_out() -> None:
    shipped = zoo.equilibrium("guided-certified")
    over_start, over_free = gains(Equilibrium(shipped.iteration, Lazy(), start=shipped.start))
    assert bool((over_start == 0).all())
    assert bool((over_free < 0).all())


@pytest.mark.parametrize("name", ["de-gap", "de-agap", "de-rnn", "de-agap-certified"])
def test_the_start_decides_only_how_soon_the_equilibrium_is_reached(name: str) -> None:
    """From least squares, total variation, gap-wnnm, the truth and nothing at all: one video, to 0.01 dB."""
    model, (truth, phi) = zoo.equilibrium(name), scenes(SEEDS[:2], 8, 16, 16)
    assert not told(model.network)
    y = phi.A(truth)
    starts = torch.stack([phi.A_dagger(y), model.started(y, phi), Annealed()(y, phi), truth, torch.zeros_like(truth)])
    with torch.no_grad():
        solution = model(y.expand(5, -1, -1, -1), phi, start=starts, tol=1e-6, max_iter=400)
    assert bool(solution.converged.all()), solution.final
    scores = quality(solution.x, truth)
    assert scores.shape == (5, 2)
    assert bool((scores.amax(0) - scores.amin(0) < 0.01).all()), scores
