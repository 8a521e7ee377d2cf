r"""Anderson acceleration: the next point from the last s residuals, weighted so that they nearly cancel.

$z_{k+1} = (1 - \delta)\sum_{i<s} \alpha_i z_{k-i} + \delta\sum_{i<s} \alpha_i f(z_{k-i})$ with
$\alpha = \arg\min \|\sum_i \alpha_i g_{k-i}\|^2$ s.t. $\sum\alpha_i = 1$ and $g_i = f(z_i) - z_i$. With the $s - 1$
differences $\Delta z_j, \Delta g_j$ of consecutive points and residuals this is the same as
$z_{k+1} = z_k + \delta g_k - \sum_j \gamma_j(\Delta z_j + \delta\Delta g_j)$,
$\gamma = \arg\min\|g_k - \sum_j\gamma_j\Delta g_j\|^2$, which rounds better and whose memory can be kept in half
precision. Walker & Ni, SIAM J. Numer. Anal. 2011.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from unsnap.fields import Positive, Size, Within
from unsnap.fixed_point.picard import Picard
from unsnap.fixed_point.solver import Accelerator
from unsnap.fixed_point.vectors import State, combine, products, remember_differences


@dataclass(frozen=True)
class Anderson:
    memory: int
    damping: float
    ridge: float
    safeguard: float | None
    history: torch.dtype | None

    def start(self) -> Accelerator:
        return Picard(self.plain) if self.memory == 1 else _Memory(self)

    @property
    def plain(self) -> float:
        """Damping of the plain step: the guarantee that a safeguard keeps is proven up to 1."""
        return self.damping if self.safeguard is None else min(self.damping, 1.0)


def anderson(
    memory: Annotated[int, Within(1, 1000)] = 6,
    damping: Positive = 1.0,
    ridge: Size = 1e-8,
    safeguard: float | None = None,
    history: torch.dtype | None = None,
) -> Anderson:
    """Anderson acceleration with `memory` points, the s of the formula; 1 is the plain iteration.

    The default of 6 points keeps 5 differences, which used to be called a memory of 5;
    damping: δ > 0, at 1 the combination of the f(z_i) alone. Above 1 the step goes further than that, which may be
    faster for slow maps and diverge for others;
    ridge: relative to the squared length of each residual difference in memory, so that the problem's scale does not
    matter; never less than the rounding of the inner products;
    safeguard: accept an accelerated point only if it brings the residual to at most this fraction of the last accepted
    one, otherwise take the plain step from there, with min(δ, 1). The residual of a nonexpansive
    map then goes to 0, and that of a contraction at its rate per accepted step. None: always accept;
    history: dtype of the stored differences, e.g. torch.float16 to halve the memory.
    """
    if not isinstance(memory, int) or not memory >= 1 or not 0 < damping < math.inf or not ridge >= 0:
        raise ValueError(f"anderson needs memory >= 1, damping > 0 and ridge >= 0, got {memory}, {damping}, {ridge}")
    if safeguard is not None and not 0 < safeguard < 1:
        raise ValueError(f"safeguard must lie in (0, 1) or be None, got {safeguard}")
    if history is not None and not history.is_floating_point:
        raise ValueError(f"history must be a floating-point dtype or None, got {history}")
    return Anderson(memory, damping, ridge, safeguard, history)


class _Memory:
    def __init__(self, settings: Anderson) -> None:
        self._settings, self._columns = settings, settings.memory - 1
        self._count = 0  # steps remembered so far; the slots of the history are filled in turn
        self._moves = self._changes = torch.empty(0)  # (columns, b, n): Δz + δΔg and Δg
        self._ratios = torch.empty(0)  # (b, columns), scale of the move over that of the change, where they are scaled
        self._gram = torch.empty(0)  # (b, columns, columns) of the changes; a step renews one row
        self._last: State | None = None
        self._guard = None if settings.safeguard is None else _Guard(settings.safeguard, settings.plain)

    def accepts(self, size: Tensor) -> Tensor:
        return torch.ones_like(size, dtype=torch.bool) if self._guard is None else self._guard.accepts(size)

    def propose(self, z: Tensor, g: Tensor) -> Tensor:
        if self._last is None:
            self._last = (z, g)
            return z + self._settings.damping * g if self._guard is None else self._guard.begin(z, g)
        weights = self._weights(z, g, self._last)
        self._last = (z, g)
        factor = torch.full((len(z),), self._settings.damping, dtype=torch.float64, device=z.device)
        if self._guard is None:
            return combine(z, g, factor, self._moves[: weights.shape[1]], weights)
        return self._guard.choose(z, g, lambda: combine(z, g, factor, self._moves[: weights.shape[1]], weights))

    def select(self, rows: Tensor) -> None:
        if self._count:
            self._moves, self._changes = self._moves[:, rows], self._changes[:, rows]
            self._ratios, self._gram = self._ratios[rows], self._gram[rows]
        self._last = self._last and (self._last[0][rows], self._last[1][rows])
        if self._guard is not None:
            self._guard.select(rows)

    def _weights(self, z: Tensor, g: Tensor, last: State) -> Tensor:
        """(b, m) what each remembered move is to be taken back by."""
        slot = self._remember((z, g), last)
        used = min(self._count, self._columns)
        row, against = products(self._changes[:used], self._changes[slot], g)
        lost = ~torch.isfinite(row[:, slot])
        if bool(lost.any()):  # a point without a value teaches nothing
            self._moves[slot, lost], self._changes[slot, lost], row[lost] = 0, 0, 0
            self._ratios[lost, slot], against[lost, slot] = 1, 0
        self._gram[:, slot, :used], self._gram[:, :used, slot] = row, row
        gram = self._gram[:, :used, :used]
        # Columns of unit length: a small recent difference counts as much as a large old one.
        lengths = gram.diagonal(dim1=1, dim2=2).sqrt()
        lengths = torch.where(lengths > 0, lengths, 1.0)
        ridge = max(self._settings.ridge, torch.finfo(torch.promote_types(g.dtype, torch.float32)).eps)
        system = gram / (lengths[:, :, None] * lengths[:, None, :]) + ridge * torch.eye(used).to(gram)
        gamma: Tensor = torch.linalg.solve(system, against / lengths) / lengths
        return gamma * self._ratios[:, :used]

    def _remember(self, new: State, last: State) -> int:
        """The slot that the step from the last point to the new one is written to."""
        s, g, m = self._settings, new[1], self._columns
        if not self._count:
            self._moves, self._changes = (g.new_empty((m, *g.shape), dtype=s.history) for _ in range(2))
            self._ratios = g.new_ones((len(g), m), dtype=torch.float64)
            self._gram = g.new_zeros((len(g), m, m), dtype=torch.float64)
        slot = self._count % m
        self._count += 1
        if s.history is None:
            remember_differences(new, last, s.damping, self._moves[slot], self._changes[slot])
        else:
            dg = new[1] - last[1]
            self._changes[slot], size = _pack(dg)
            self._moves[slot], length = _pack(new[0] - last[0] + s.damping * dg)
            self._ratios[:, slot] = length / size
        return slot


class _Guard:
    """Remembers the last accepted point and the size of its residual, to take the plain step from there if need be."""

    def __init__(self, factor: float, damping: float) -> None:
        self._factor, self._damping = factor, damping
        self._size: Tensor | None = None
        self._point: State
        self._due: Tensor  # is the point under test a plain step?

    def accepts(self, size: Tensor) -> Tensor:
        """A plain step is always accepted: it is what the guarantee is about."""
        if self._size is None:
            self._size, self._due = size, torch.ones_like(size, dtype=torch.bool)
            return self._due
        accepted = self._due | (size <= self._factor * self._size)
        self._size = torch.where(accepted, size, self._size)
        self._due = ~accepted
        return accepted

    def begin(self, z: Tensor, g: Tensor) -> Tensor:
        self._point = (z, g)
        return z + self._damping * g

    def choose(self, z: Tensor, g: Tensor, step: Callable[[], Tensor]) -> Tensor:
        """The accelerated step where the point was accepted, elsewhere the plain one from the last that was."""
        if not bool(self._due.any()):
            self._point = (z, g)
            return step()
        back = self._due[:, None]
        self._point = (torch.where(back, self._point[0], z), torch.where(back, self._point[1], g))
        plain = self._point[0] + self._damping * self._point[1]
        return plain if bool(back.all()) else torch.where(back, plain, step())

    def select(self, rows: Tensor) -> None:
        self._point = (self._point[0][rows], self._point[1][rows])
        self._size, self._due = self._size if self._size is None else self._size[rows], self._due[rows]


def _pack(t: Tensor) -> tuple[Tensor, Tensor]:
    """The rows scaled to largest value 1, for dtypes that reach less far; and the scales (b,)."""
    scale = t.abs().amax(1)
    scale = torch.where(scale == 0, 1, scale)
    return t / scale[:, None], scale
