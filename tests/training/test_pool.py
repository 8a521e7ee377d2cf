"""The pool of partly iterated states: how old they get, and that every depth is seen."""

from __future__ import annotations

from collections import Counter

import torch
from runs import same

from laws import seeded
from unsnap.training.coding import Coded
from unsnap.training.pool import Pool


class Source:
    """Fresh entries, numbered."""

    def __init__(self) -> None:
        self.made = 0

    def __call__(self) -> tuple[Coded, tuple[torch.Tensor, ...]]:
        self.made += 1
        return Coded(*[torch.full((1,), float(self.made))] * 3), (torch.zeros(1),)


def test_ages_and_renewal() -> None:
    source = Source()
    pool, generator = Pool(4, 5, source), seeded()
    seen: Counter[int] = Counter()
    for turn in range(2000):
        entry = pool.take(generator)
        assert len(pool.entries) == min(turn + 1, 4)
        assert 0 <= entry.age < entry.life <= 5
        assert int(entry.state[0]) == entry.age, "every turn iterates once"
        seen[entry.age] += 1
        entry.state, entry.age = (entry.state[0] + 1,), entry.age + 1
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
    assert [e.life for e in other.entries] == [e.life for e in pool.entries]
