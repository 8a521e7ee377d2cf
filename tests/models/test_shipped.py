"""A shipped model has learned something: its video beats the start that it was given, and what is free beyond that."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from unsnap import psnr, zoo
from unsnap.masks import bernoulli
from unsnap.models import Equilibrium, Model
from unsnap.networks import Capture, Conditioned
from unsnap.networks.capture import told
from unsnap.operators import Snapshot
from unsnap.simulate import render

SEEDS = (21, 22, 23)
# dB over the model's own start projected on {Φx = y}, which costs nothing beyond the start.
MARGINS = {"de-gap": 0.3, "de-rnn": 0.3, "shift-net": 0.3, "guided-certified": 0.2}


def scene(seed: int, side: int = 32) -> tuple[Tensor, Snapshot]:
    """A clip that no training has seen, and its camera."""
    masks = bernoulli(8, side, side, generator=torch.Generator().manual_seed(seed))
    return render(8, side, side, seed=seed), Snapshot(masks)


def gains(model: Model, seed: int) -> tuple[float, float]:
    """dB over the start, and over the projected start."""
    truth, phi = scene(seed)
    y = phi.A(truth)
    start = model.started(y, phi)
    with torch.no_grad():
        solution = model(y, phi, start=start)
    assert bool(solution.converged)
    found, begun, free = (float(psnr(x, truth).mean()) for x in (solution.x, start, phi.project(start, y)))
    return found - begun, found - free


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", MARGINS)
def test_it_beats_its_own_start(name: str, seed: int) -> None:
    over_start, over_free = gains(zoo.trainable(name), seed)
    assert over_start > MARGINS[name] + 0.1
    assert over_free > MARGINS[name]


class Lazy(Conditioned):
    """Has learned nothing but to give the start back."""

    def condition(self, capture: Capture) -> Callable[[Tensor, float | Tensor], Tensor]:
        return lambda x, sigma: capture.start


def test_a_model_that_returns_its_start_would_be_found_out() -> None:
    shipped = zoo.equilibrium("guided-certified")
    lazy = Equilibrium(shipped.iteration, Lazy(), start=shipped.start)
    for seed in SEEDS:
        over_start, over_free = gains(lazy, seed)
        assert over_start == 0
        assert over_free < 0


@pytest.mark.parametrize("name", ["de-gap", "de-rnn"])
def test_the_start_decides_only_how_soon_the_equilibrium_is_reached(name: str) -> None:
    """From least squares, total variation, the truth itself and nothing at all: one video, to 0.01 dB."""
    model, (truth, phi) = zoo.equilibrium(name), scene(22, 24)
    assert not told(model.network)
    y = phi.A(truth)
    starts = torch.stack([phi.A_dagger(y), model.started(y, phi), truth, torch.zeros_like(truth)])
    with torch.no_grad():
        solution = model(y.expand(4, -1, -1), phi, start=starts, tol=1e-6, max_iter=400)
    assert bool(solution.converged.all()), solution.final
    scores = psnr(solution.x, truth.expand_as(solution.x)).reshape(4, -1).mean(1)
    assert float(scores.max() - scores.min()) < 0.01, scores
