"""Partly iterated states: every step learns from one iteration and leaves the result for a later step.

No step pays for iterations it does not learn from, and every depth is seen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from unsnap.training.coding import Coded


@dataclass
class Entry:
    """A batch of samples, the states they have come to, and how old they may get."""

    coded: Coded
    state: tuple[Tensor, ...]
    age: int
    life: int


class Pool:
    """`size` entries; one that has reached its life is renewed when its turn comes."""

    def __init__(self, size: int, age: int, renew: Callable[[], tuple[Coded, tuple[Tensor, ...]]]) -> None:
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
        coded, state = self.renew()
        return Entry(coded, state, 0, 1 + int(torch.randint(self.age, (), generator=generator)))

    def dump(self) -> list[dict[str, Any]]:
        """As plain tensors and numbers, for a checkpoint."""
        return [{"coded": list(e.coded), "state": list(e.state), "age": e.age, "life": e.life} for e in self.entries]

    def restore(self, dumped: list[dict[str, Any]], device: torch.device) -> None:
        self.entries = [
            Entry(
                Coded(*d["coded"]).to(device),
                tuple(part.to(device) for part in d["state"]),
                int(d["age"]),
                int(d["life"]),
            )
            for d in dumped
        ]
