"""Maps with a known fixed point, for the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from laws import normal, uniform
from unsnap.fixed_point import anderson, broyden, picard

SOLVERS = {
    "picard": picard(),
    "damped": picard(0.7),
    "anderson": anderson(memory=5),
    "mixed": anderson(memory=5, damping=0.8),
    "guarded": anderson(memory=5, safeguard=0.9),
    "half": anderson(memory=5, history=torch.float16),
    "broyden": broyden(memory=6),
}


@dataclass
class Affine:
    """z -> Mz + b for every sample with its own M (B, n, n) and b; counts what it is asked for."""

    matrices: Tensor
    offsets: Tensor
    calls: int = 0
    samples: int = 0
    parent: Affine | None = None

    def __call__(self, z: Tensor) -> Tensor:
        top = self.parent or self
        top.calls, top.samples = top.calls + 1, top.samples + len(z)
        return torch.einsum("bij,bj->bi", self.matrices, z) + self.offsets

    def select(self, rows: Tensor) -> Affine:
        return Affine(self.matrices[rows], self.offsets[rows], parent=self)

    def plain(self) -> Callable[[Tensor], Tensor]:
        """The same map without `select`."""
        return lambda z: self(z)

    @property
    def solution(self) -> Tensor:
        eye = torch.eye(self.matrices.shape[1], dtype=self.matrices.dtype)
        return torch.linalg.solve(eye - self.matrices, self.offsets)


def affine(rates: list[float], n: int = 10, seed: int = 0) -> Affine:
    """One sample per rate, the spectral norm of its (not symmetric) matrix."""
    matrices = normal(len(rates), n, n, seed=seed)
    matrices = matrices / torch.linalg.matrix_norm(matrices, 2)[:, None, None]
    return Affine(
        matrices * torch.tensor(rates, dtype=torch.float64)[:, None, None], normal(len(rates), n, seed=seed + 1)
    )


class Cell(nn.Module):
    """z -> tanh(zW + y) on (B, n): a small equilibrium network with a weight, captured input and a known Jacobian."""

    def __init__(self, n: int = 6, gain: float = 0.8, seed: int = 3) -> None:
        super().__init__()
        weight = normal(n, n, seed=seed)
        self.weight = nn.Parameter(weight * gain / torch.linalg.matrix_norm(weight, 2))

    def forward(self, z: Tensor, y: Tensor) -> Tensor:
        return torch.tanh(z @ self.weight + y)


def cell_problem(batch: int = 3, n: int = 6, gain: float = 0.8) -> tuple[Cell, Tensor, Tensor]:
    """The network, its input y and a start."""
    return Cell(n, gain), normal(batch, n, seed=5), uniform(batch, n, seed=6)


def residual_of(f: Callable[[Tensor], Tensor], z: Tensor) -> Tensor:
    value = f(z).flatten(1)
    return (value - z.flatten(1)).norm(dim=1) / value.norm(dim=1)
