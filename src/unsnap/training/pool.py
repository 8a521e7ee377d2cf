"""Partly iterated states: every step goes on from where an earlier one has left a batch, and leaves it for a later one.

No step pays for iterations it does not learn from, and every depth occurs. A batch is replaced before the run has
learned its samples by heart: `age` counts iterations, and those of a solve are many.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from unsnap.models import Batch
from unsnap.operators import Snapshot


@dataclass
class Entry:
    """A batch of samples with the state it has come to, and how old it may get."""

    batch: Batch
    age: int
    life: int


class Pool:
    """`size` entries; one that has reached its life is renewed when its turn comes."""

    def __init__(self, size: int, age: int, renew: Callable[[], Batch]) -> None:
        self.size, self.age, self.renew = size, age, renew
        self.entries: list[Entry] = []

    def take(self, generator: torch.Generator) -> Entry:
        """A random entry, fresh if the pool is not full yet or this one's life is over."""
        if len(self.entries) < self.size:
            self.entries.append(self._fresh(generator))
            return self.entries[-1]
        slot = int(torch.randint(self.size, (), generator=generator))
        if self.entries[slot].age >= self.entries[slot].life:
            self.entries[slot] = self._fresh(generator)
        return self.entries[slot]

    def _fresh(self, generator: torch.Generator) -> Entry:
        return Entry(self.renew(), 0, 1 + int(torch.randint(self.age, (), generator=generator)))

    def dump(self) -> list[dict[str, Any]]:
        """As plain tensors and numbers, for a checkpoint."""
        return [
            {
                "samples": [e.batch.truth, e.batch.y, e.batch.phi.masks, e.batch.start],
                "state": list(e.batch.state or ()),
                "age": e.age,
                "life": e.life,
            }
            for e in self.entries
        ]

    def restore(self, dumped: list[dict[str, Any]], device: torch.device) -> None:
        self.entries = []
        for d in dumped:
            truth, y, masks, start = samples = list(d["samples"]) if isinstance(d, dict) else []
            if not all(isinstance(part, torch.Tensor) for part in (*samples, *d["state"])):
                raise ValueError("the pool holds something else than tensors")
            parts = [truth, start, *d["state"]]
            if any(part.shape != truth.shape for part in parts) or len(y) != len(truth) or y.ndim != 3:
                raise ValueError(f"the pool holds tensors of shapes {[tuple(part.shape) for part in (y, *parts)]}")
            batch = Batch(truth, y, Snapshot(masks), start, tuple(d["state"])).to(device)
            self.entries.append(Entry(batch, int(d["age"]), int(d["life"])))
