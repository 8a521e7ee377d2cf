r"""Broyden's (good) method with limited memory: quasi-Newton on $g(z) = f(z) - z = 0$.

The inverse Jacobian is $B = -I + \sum_j u_j v_j^\top$, corrected after each step by
$B \leftarrow B + \frac{(\Delta z - B\Delta g)\,\Delta z^\top B}{\Delta z^\top B \Delta g}$; $z \leftarrow z - Bg$.
Broyden, Math. Comp. 1965.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Broyden:
    memory: int

    def start(self) -> _Inverse:
        return _Inverse(self.memory)


def broyden(memory: int = 20) -> Broyden:
    """Broyden's method, restarted from the plain step when `memory` corrections are full."""
    if not memory >= 1:
        raise ValueError(f"memory must be at least 1, got {memory}")
    return Broyden(memory)


class _Inverse:
    def __init__(self, memory: int) -> None:
        self._memory = memory
        self._u: list[Tensor] = []
        self._v: list[Tensor] = []
        self._last: tuple[Tensor, Tensor] | None = None

    def propose(self, z: Tensor, g: Tensor) -> Tensor:
        if len(self._u) == self._memory:
            self._u, self._v, self._last = [], [], None
        if self._last is not None:
            self._update(z - self._last[0], g - self._last[1])
        self._last = (z, g)
        return z - self._apply(g)

    def select(self, rows: Tensor) -> None:
        self._u, self._v = ([t[rows] for t in kept] for kept in (self._u, self._v))
        self._last = self._last and (self._last[0][rows], self._last[1][rows])

    def _update(self, dz: Tensor, dg: Tensor) -> None:
        # The correction depends on the ratio of dz and dg alone: steps of unit length neither under- nor overflow.
        size = dz.abs().amax(1, keepdim=True).clamp(min=torch.finfo(dz.dtype).tiny)
        dz, dg = dz / size, dg / size
        image, row = self._apply(dg), self._apply_transposed(dz)
        divisor = _dot(row, dg)
        # Relative to what it is made of: a correction that rounding alone could have made is left out.
        floor = torch.finfo(dz.dtype).eps * (_dot(row, row) * _dot(dg, dg)).sqrt()
        sound = divisor.abs() > floor
        self._u.append(torch.where(sound, (dz - image) / torch.where(sound, divisor, 1), 0))
        self._v.append(row)

    def _apply(self, g: Tensor) -> Tensor:
        """B g."""
        out = -g
        for u, v in zip(self._u, self._v, strict=True):
            out = torch.addcmul(out, u, _dot(v, g))
        return out

    def _apply_transposed(self, z: Tensor) -> Tensor:
        """Bᵀ z."""
        out = -z
        for u, v in zip(self._u, self._v, strict=True):
            out = torch.addcmul(out, v, _dot(u, z))
        return out


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return torch.einsum("bn,bn->b", a, b)[:, None]
