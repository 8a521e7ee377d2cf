"""Samples that begin elsewhere: where, how often, and that the run really does."""

from __future__ import annotations

from pathlib import Path

import torch
from runs import tiny

from laws import seeded
from unsnap import GAP, Equilibrium
from unsnap.models import Batch
from unsnap.operators import CodedOperator
from unsnap.training import Trainer
from unsnap.training.beginnings import DISTURBED, elsewhere
from unsnap.training.coding import code
from unsnap.training.validate import validate


def kinds(batch: Batch) -> list[int]:
    """Per sample: 0 at the model's start, 1 at least squares, 2 at the adjoint, 3 near the start, -1 anywhere else."""
    assert batch.start is not None
    assert batch.state is not None
    adjoint = batch.phi.A_adjoint(batch.y) / batch.phi.squared_norms().reshape(-1, 1, 1, 1)
    places = (batch.start, batch.phi.A_dagger(batch.y), adjoint)
    found = []
    for k, video in enumerate(batch.state[0]):
        exact = [n for n, place in enumerate(places) if torch.equal(place[k], video)]
        near = float((video - batch.start[k]).square().mean().sqrt()) < 1.3 * DISTURBED
        found.append(exact[0] if exact else 3 if near else -1)
    return found


def test_shares_are_as_asked() -> None:
    batch = code(torch.rand(300, 4, 8, 8, generator=seeded()), 0.0, seeded(1))
    batch = Batch(batch.truth, batch.y, batch.phi, torch.full_like(batch.truth, 0.5), None)
    begun = kinds(elsewhere(batch, GAP(), 0.6, seeded(2)))
    assert [abs(begun.count(k) - 300 * p) < 30 for k, p in enumerate((0.4, 0.2, 0.2, 0.2))] == [True] * 4
    assert elsewhere(batch, GAP(), 0.0, seeded()) is batch


def test_the_pool_begins_there(tmp_path: Path, clips: Path) -> None:
    run = Trainer(tiny(clips, other_starts=1.0, start="adjoint", pool=16, gaussian=0, blend=0), tmp_path)
    begun = [k for _ in range(8) for k in kinds(run.pool.take(run.generator).batch)]
    assert set(begun) == {1, 2, 3}


def test_a_map_with_two_ends_is_seen(tmp_path: Path, clips: Path) -> None:
    views = Trainer(tiny(clips), tmp_path).views

    def grey(y: torch.Tensor, phi: CodedOperator) -> torch.Tensor:
        return torch.full((len(y), *phi.video), 0.5)

    one = validate(Equilibrium(GAP(), lambda x, sigma: 0.5 * x, start=grey), views)
    assert one["apart"] < 1e-3
    assert abs(one["psnr_other"] - one["psnr_fixed"]) < 0.01
    many = validate(Equilibrium(GAP(), lambda x, sigma: x, start=grey), views)
    assert many["residual"] < 1e-4
    assert many["apart"] > 0.01, "where every consistent video is at rest, the start decides"
