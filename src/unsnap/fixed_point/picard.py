r"""Plain (Krasnosel'skii–Mann) iteration: $z \leftarrow (1 - \delta) z + \delta f(z)$."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Picard:
    damping: float

    def start(self) -> Picard:
        return self  # nothing to remember

    def accepts(self, size: Tensor) -> Tensor:
        return torch.ones_like(size, dtype=torch.bool)

    def propose(self, z: Tensor, g: Tensor) -> Tensor:
        return z + self.damping * g

    def select(self, rows: Tensor) -> None:
        pass


def picard(damping: float = 1.0) -> Picard:
    """Repeat f; with damping δ < 1 only part of the way. Converges for averaged maps, from any start."""
    if not 0 < damping <= 1:
        raise ValueError(f"damping must lie in (0, 1], got {damping}")
    return Picard(damping)
