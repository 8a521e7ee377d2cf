"""Samples used again: a turned sample is a sample, its start the turned start, and memory is bounded."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from runs import lasting, tiny

from laws import seeded
from unsnap.masks import gray
from unsnap.models import Batch, LeastSquares, TotalVariation
from unsnap.operators import Snapshot
from unsnap.simulate import render
from unsnap.training import Trainer
from unsnap.training.reuse import SYMMETRIES, Cache, turned


def sample(seed: int = 0) -> Batch:
    truth = render(4, 20, 20, seed=seed)[None].double()
    phi = Snapshot(gray(4, 20, 20, generator=seeded(seed)).double()[None])
    y = phi.A(truth)
    return Batch(truth, y, phi, LeastSquares()(y, phi))


def test_turned_samples_are_sixteen_samples() -> None:
    batch = sample()
    found = [turned(batch, k) for k in range(SYMMETRIES)]
    assert torch.equal(found[0].truth, batch.truth)
    for each in found:
        torch.testing.assert_close(each.phi.A(each.truth), each.y)
        torch.testing.assert_close(LeastSquares()(each.y, each.phi), each.start)
    assert len({tuple(each.truth.flatten().tolist()) for each in found}) == SYMMETRIES


@pytest.mark.parametrize("symmetry", [1, 6, 15])
def test_total_variation_shares_the_symmetries(symmetry: int) -> None:
    batch = sample()
    again = turned(Batch(batch.truth, batch.y, batch.phi, TotalVariation()(batch.y, batch.phi)), symmetry)
    torch.testing.assert_close(TotalVariation()(again.y, again.phi), again.start, rtol=0, atol=1e-9)


def test_every_symmetry_once_and_one_new_in_sixteen() -> None:
    made: list[Batch] = []

    def make() -> Batch:
        made.append(sample(len(made)))
        return made[-1]

    one = sum(part.nbytes for part in (sample().truth, sample().y, sample().phi.masks, sample().start))
    cache, generator = Cache(3.5 * one, make), seeded()
    given = []
    for _ in range(160):
        given.append(cache.take(generator).truth)
        assert cache.used <= 3 * one
    assert len(made) == pytest.approx(3 + 160 / 16, abs=3)
    assert len({tuple(x.flatten().tolist()) for x in given}) == 160, "none is given twice"


def test_without_room_all_are_new() -> None:
    made = [0]

    def make() -> Batch:
        made[0] += 1
        return sample(made[0])

    cache = Cache(10.0, make)
    for _ in range(3):
        cache.take(seeded())
    assert (made[0], cache.kept, cache.used) == (3, [], 0)


def test_a_run_pays_for_few_starts(clips: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(LeastSquares, "__call__", lambda self, y, phi: asked.append(1) or phi.A_dagger(y))
    ends = []
    for cache in (0.0, 2e-4):
        asked.clear()
        trainer = Trainer(tiny(clips, cache=cache, gaussian=0.0, blend=0.0, pool=2, age=1, steps=20, frames=(4,)),
                          tmp_path / f"{cache}")  # fmt: skip
        trainer.run()
        ends.append((len(asked), lasting(trainer.state())))
    assert ends[1][0] < ends[0][0] / 2
