"""The pool of partly iterated states: how old they get, and that every depth is seen."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
import torch
from runs import same

from laws import seeded
from unsnap.models import Batch
from unsnap.operators import Snapshot
from unsnap.training.pool import Entry, Pool


class Source:
    """Fresh entries, numbered."""

    def __init__(self) -> None:
        self.made = 0

    def __call__(self) -> Batch:
        self.made += 1
        video = torch.full((1, 1, 1, 1), float(self.made))
        return Batch(video, video[:, 0], Snapshot(2 * video), 3 * video, (torch.zeros(1, 1, 1, 1), 4 * video))


def depth(entry: Entry) -> int:
    assert entry.batch.state is not None
    return int(entry.batch.state[0])


def test_ages_and_renewal() -> None:
    source = Source()
    pool, generator = Pool(4, 5, source), seeded()
    seen: Counter[int] = Counter()
    for turn in range(2000):
        entry = pool.take(generator)
        assert len(pool.entries) == min(turn + 1, 4)
        assert 0 <= entry.age < entry.life <= 5
        assert depth(entry) == entry.age, "every turn iterates once"
        seen[entry.age] += 1
        deeper = torch.full((1, 1, 1, 1), depth(entry) + 1.0)
        entry.batch, entry.age = replace(entry.batch, state=(deeper,)), entry.age + 1
    assert set(seen) == {0, 1, 2, 3, 4}, "every depth is seen"
    assert [seen[k] for k in range(5)] == sorted(seen.values(), reverse=True)
    assert abs(source.made - 2000 / 3) < 60, "lives of 1 to 5 turns last three on average"


def test_a_life_that_is_over_ends_at_the_next_turn() -> None:
    source = Source()
    pool, generator = Pool(1, 100, source), seeded()
    entry = pool.take(generator)
    entry.life = 0
    assert pool.take(generator) is not entry
    assert source.made == 2


def test_dump_and_restore() -> None:
    pool = Pool(3, 9, Source())
    for _ in range(3):
        pool.take(seeded()).age += 1
    other = Pool(3, 9, Source())
    other.restore(pool.dump(), torch.device("cpu"))
    assert same(other.dump(), pool.dump())
    for new, old in zip(other.entries, pool.entries, strict=True):
        for part in ("truth", "y", "start", "state"):
            assert same(getattr(new.batch, part), getattr(old.batch, part)), part
        assert torch.equal(new.batch.phi.masks, old.batch.phi.masks)
    assert [int(e.batch.truth) for e in other.entries] == [1, 2, 3]
    assert [e.life for e in other.entries] == [e.life for e in pool.entries]


@pytest.mark.parametrize("damage", [torch.zeros(3), {"samples": [1, 2, 3, 4], "state": []}, {"samples": torch.ones(4)}])
def test_a_damaged_pool_is_refused_without_a_warning(damage: object, recwarn: pytest.WarningsRecorder) -> None:
    with pytest.raises((ValueError, LookupError)):
        Pool(1, 1, Source()).restore([damage], torch.device("cpu"))  # type: ignore[list-item]
    assert not recwarn.list
