r"""Anderson acceleration: the next point from the last residuals, weighted so that they nearly cancel.

$z_{k+1} = (1 - \delta)\sum_i \alpha_i z_{k-i} + \delta\sum_i \alpha_i f(z_{k-i})$ with
$\alpha = \arg\min \|\sum_i \alpha_i g_{k-i}\|^2$ s.t. $\sum\alpha_i = 1$ and $g_i = f(z_i) - z_i$. With the differences
$\Delta z_j, \Delta g_j$ of consecutive points and residuals this is the same as
$z_{k+1} = z_k + \delta g_k - \sum_j \gamma_j(\Delta z_j + \delta\Delta g_j)$,
$\gamma = \arg\min\|g_k - \sum_j\gamma_j\Delta g_j\|^2$, which rounds better and whose memory can be kept in half
precision. Walker & Ni, SIAM J. Numer. Anal. 2011.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Anderson:
    memory: int
    damping: float
    ridge: float
    safeguard: float | None
    history: torch.dtype | None

    def start(self) -> _Memory:
        return _Memory(self)


def anderson(
    memory: int = 5,
    damping: float = 1.0,
    ridge: float = 1e-8,
    safeguard: float | None = None,
    history: torch.dtype | None = None,
) -> Anderson:
    """Anderson acceleration with `memory` + 1 points.

    ridge: relative to the squared length of each residual difference in memory, so that the problem's scale does not
    matter; never less than the rounding of the inner products;
    safeguard: accept an accelerated point only if it brings the residual to at most this fraction of the last accepted
    one, otherwise take the plain step from there; it keeps every guarantee of the plain iteration. None: always accept;
    history: dtype of the stored differences, e.g. torch.float16 to halve the memory.
    """
    if not memory >= 1 or not 0 < damping <= 1 or not ridge >= 0:
        raise ValueError(
            f"anderson needs memory >= 1, damping in (0, 1] and ridge >= 0, got {memory}, {damping}, {ridge}"
        )
    if safeguard is not None and not 0 < safeguard < 1:
        raise ValueError(f"safeguard must lie in (0, 1) or be None, got {safeguard}")
    if history is not None and not history.is_floating_point:
        raise ValueError(f"history must be a floating-point dtype or None, got {history}")
    return Anderson(memory, damping, ridge, safeguard, history)


class _Memory:
    def __init__(self, settings: Anderson) -> None:
        self._settings = settings
        self._moves: list[Tensor] = []  # Δz + δΔg, each (b, n) scaled to largest value 1, newest last
        self._residuals: list[Tensor] = []  # Δg, likewise
        self._ratios: list[Tensor] = []  # (b, 1), the scale of the move over that of the residual
        self._gram: Tensor | None = None  # (b, m, m) of the scaled Δg, updated by one row a step
        self._last: tuple[Tensor, Tensor] | None = None
        self._guard: _Guard | None = None

    def propose(self, z: Tensor, g: Tensor) -> Tensor:
        s = self._settings
        plain = z + s.damping * g
        if self._last is not None:
            self._remember(z - self._last[0], g - self._last[1])
        self._last = (z, g)
        if self._gram is None:
            self._guard = None if s.safeguard is None else _Guard(plain, g, s.safeguard)
            return plain
        step = self._accelerate(self._gram, plain, g)
        return step if self._guard is None else self._guard.choose(step, plain, g)

    def select(self, rows: Tensor) -> None:
        self._moves, self._residuals, self._ratios = (
            [t[rows] for t in kept] for kept in (self._moves, self._residuals, self._ratios)
        )
        self._gram = None if self._gram is None else self._gram[rows]
        self._last = self._last and (self._last[0][rows], self._last[1][rows])
        if self._guard is not None:
            self._guard.select(rows)

    def _remember(self, dz: Tensor, dg: Tensor) -> None:
        move, length = _pack(dz + self._settings.damping * dg, self._settings.history)
        residual, size = _pack(dg, self._settings.history)
        for kept, new in ((self._moves, move), (self._residuals, residual), (self._ratios, length / size)):
            kept.append(new)
        row = self._products(residual, dg.dtype)
        gram = row.new_zeros(*row.shape, row.shape[1])
        if self._gram is not None:
            gram[:, :-1, :-1] = self._gram
        gram[:, -1], gram[:, :, -1] = row, row
        self._gram = gram
        if len(self._moves) > self._settings.memory:
            self._gram = gram[:, 1:, 1:]
            for kept in (self._moves, self._residuals, self._ratios):
                kept.pop(0)

    def _accelerate(self, gram: Tensor, plain: Tensor, g: Tensor) -> Tensor:
        # Columns of unit length: a small recent difference counts as much as a large old one.
        lengths = gram.diagonal(dim1=1, dim2=2).sqrt()
        lengths = torch.where(lengths > 0, lengths, 1.0)
        ridge = max(self._settings.ridge, torch.finfo(_working(g.dtype)).eps)
        system = gram / (lengths[:, :, None] * lengths[:, None, :]) + ridge * torch.eye(len(gram[0])).to(gram)
        gamma = torch.linalg.solve(system, self._products(g, g.dtype) / lengths) / lengths
        step = plain
        for j, (move, ratio) in enumerate(zip(self._moves, self._ratios, strict=True)):
            step = torch.addcmul(step, move.to(g.dtype), gamma[:, j, None].to(g.dtype) * ratio, value=-1)
        return step

    def _products(self, t: Tensor, dtype: torch.dtype) -> Tensor:
        """(b, m) inner products of t with every residual difference."""
        t = t.to(_working(dtype))
        return torch.stack([torch.einsum("bn,bn->b", r.to(t.dtype), t) for r in self._residuals], 1).double()


class _Guard:
    """Remembers the last accepted point by its residual and its plain step, to go back there if need be."""

    def __init__(self, plain: Tensor, g: Tensor, factor: float) -> None:
        self._factor = factor
        self._plain = plain
        self._size = _norm(g)
        self._due = torch.ones(len(g), dtype=torch.bool, device=g.device)  # is the point under test a plain step?

    def choose(self, step: Tensor, plain: Tensor, g: Tensor) -> Tensor:
        size = _norm(g)
        # A plain step is always accepted: it is what the guarantee is about.
        accepted = self._due | (size <= self._factor * self._size)
        self._size = torch.where(accepted, size, self._size)
        self._plain = torch.where(accepted[:, None], plain, self._plain)
        self._due = ~accepted
        return torch.where(accepted[:, None], step, self._plain)

    def select(self, rows: Tensor) -> None:
        self._plain, self._size, self._due = self._plain[rows], self._size[rows], self._due[rows]


def _pack(t: Tensor, dtype: torch.dtype | None) -> tuple[Tensor, Tensor]:
    """The rows scaled to largest value 1, so that their products neither under- nor overflow in any dtype."""
    scale = t.abs().amax(1, keepdim=True)
    lost = ~torch.isfinite(scale)
    if bool(lost.any()):
        t, scale = t.masked_fill(lost, 0), scale.masked_fill(lost, 0)
    scale = torch.where(scale > 0, scale, 1)
    return (t / scale).to(dtype or t.dtype), scale


def _working(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def _norm(g: Tensor) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(g, dim=1, dtype=torch.float64)
    return norm
