r"""Broyden's (good) method with limited memory: quasi-Newton on $g(z) = f(z) - z = 0$.

The inverse Jacobian is $B = -I$ at first, corrected after each step by
$B \leftarrow B + \frac{(\Delta z - B\Delta g)\,\Delta z^\top B}{\Delta z^\top B \Delta g}$; $z \leftarrow z - Bg$.
Broyden, Math. Comp. 1965.

Every step $s_k = -B_k g_k$ is taken in full, so $B_{k+1} = (I + t_k s_{k+1} s_k^\top)B_k$ with $t_k = 1/\|s_k\|^2$: the
steps are all there is to remember, and the next one is $w / (1 - t_k s_k^\top w)$ with
$w = -B_k g_{k+1} = \prod_{j<k}(I + t_j s_{j+1} s_j^\top)\, g_{k+1}$. With the inner products of the steps at hand that
takes one pass for $s_j^\top g$ and one for the sum. Kelley, *Iterative methods for linear and nonlinear equations*,
SIAM 1995.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from unsnap.fields import Within
from unsnap.fixed_point.vectors import combine, products


@dataclass(frozen=True)
class Broyden:
    memory: int

    def start(self) -> _Inverse:
        return _Inverse(self.memory)


def broyden(memory: Annotated[int, Within(1, 1000)] = 20) -> Broyden:
    """Broyden's method, restarted from the plain step when `memory` corrections are full."""
    if not memory >= 1:
        raise ValueError(f"memory must be at least 1, got {memory}")
    return Broyden(memory)


class _Inverse:
    def __init__(self, memory: int) -> None:
        self._memory = memory
        self._count = 0
        self._steps = self._gram = torch.empty(0)  # (memory, b, n), and (b, memory, memory) their inner products
        self._inverse_squares = torch.empty(0)  # (b, memory), t_j
        self._last: Tensor | None = None

    def accepts(self, size: Tensor) -> Tensor:
        return torch.ones_like(size, dtype=torch.bool)

    def propose(self, z: Tensor, g: Tensor) -> Tensor:
        if self._count == self._memory:
            self._count, self._last = 0, None
        last, self._last = self._last, z
        if last is None:
            return z + g
        if not self._count:
            self._allocate(z)
        self._steps[self._count] = z - last
        self._count += 1
        factor, weights = self._coefficients(g)
        return combine(z, g, factor, self._steps[: self._count], weights)

    def select(self, rows: Tensor) -> None:
        self._last = self._last if self._last is None else self._last[rows]
        if self._count:
            self._steps = self._steps[:, rows]
            self._gram, self._inverse_squares = self._gram[rows], self._inverse_squares[rows]

    def _allocate(self, z: Tensor) -> None:
        self._steps = z.new_empty((self._memory, *z.shape))
        self._gram = z.new_zeros((len(z), self._memory, self._memory), dtype=torch.float64)
        self._inverse_squares = z.new_zeros((len(z), self._memory), dtype=torch.float64)

    def _coefficients(self, g: Tensor) -> tuple[Tensor, Tensor]:
        """The next step as factor · g − Σ_j weights_j s_j."""
        k = self._count
        row, against = products(self._steps[:k], self._steps[k - 1], g)
        self._gram[:, k - 1, :k], self._gram[:, :k, k - 1] = row, row
        square = row[:, -1]
        self._inverse_squares[:, k - 1] = torch.where(square > 0, 1 / square, 0)
        t = self._inverse_squares[:, :k]
        # a_j = t_j s_jᵀ(g + Σ_{i<j} a_i s_{i+1})
        system = torch.eye(k).to(t).repeat(len(t), 1, 1)
        system[:, :, :-1] -= (t[:, :, None] * self._gram[:, :k, 1:k]).tril(-1)
        a = torch.linalg.solve_triangular(system, (t * against)[:, :, None], upper=False).squeeze(2)
        rest = 1 - a[:, -1]
        # A correction that rounding alone could have made is left out.
        sound = rest.abs() > 4 * torch.finfo(g.dtype).eps * (1 + a[:, -1].abs())
        self._inverse_squares[:, k - 1] *= sound
        factor = torch.where(sound, 1 / rest, 1)
        return factor, torch.cat([torch.zeros_like(a[:, :1]), -a[:, :-1]], 1) * factor[:, None]
