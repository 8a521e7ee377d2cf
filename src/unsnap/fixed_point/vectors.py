"""What solvers do with whole states (b, n) and histories (m, b, n) of them: few passes, sums in float64.

On the CPU each is one fused pass (`kernels/vectors.py`), elsewhere plain torch.
"""

from __future__ import annotations

import torch
from torch import Tensor

from unsnap.kernels.dispatch import array, usable

State = tuple[Tensor, Tensor]
"""A point z and its residual g = f(z) − z."""


def residual(value: Tensor, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """g = f(z) − z, its norm and that of f(z), (b,) in float64."""
    if usable(value, z):
        from unsnap.kernels import vectors

        g, sums = map(torch.from_numpy, vectors.residual(array(value), array(z)))
        return g, sums[:, 0].sqrt(), sums[:, 1].sqrt()
    g = value - z
    return g, norm(g), norm(value)


def remember_differences(new: State, old: State, damping: float, move: Tensor, change: Tensor) -> None:
    """Write Δz + damping Δg into `move` and Δg into `change`."""
    if usable(*new, *old, move, change):
        from unsnap.kernels import vectors

        z, g, old_z, old_g = map(array, (*new, *old))
        vectors.differences((z, g), (old_z, old_g), damping, array(move), array(change))
        return
    dg = new[1] - old[1]
    change.copy_(dg)
    move.copy_(new[0] - old[0] + damping * dg)


def products(columns: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Inner products of a and of b with every column, (b, m) each, in float64."""
    if usable(columns, a, b):
        from unsnap.kernels import vectors

        sums = torch.from_numpy(vectors.products(array(columns), array(a), array(b)))
        return sums[:, 0], sums[:, 1]
    with_a, with_b = (torch.stack([(c.double() * t.double()).sum(1) for c in columns], 1) for t in (a, b))
    return with_a, with_b


def combine(z: Tensor, g: Tensor, factor: Tensor, columns: Tensor, weights: Tensor) -> Tensor:
    """z + factor g − Σ_j weights_j columns_j, with factor (b,) and weights (b, m)."""
    factor, weights = factor.to(z.dtype), weights.to(z.dtype)
    if usable(z, g, factor, columns, weights):
        from unsnap.kernels import vectors

        return torch.from_numpy(vectors.combine(*map(array, (z, g, factor, columns, weights))))
    point = torch.addcmul(z, g, factor[:, None])
    for column, weight in zip(columns, weights.unbind(1), strict=True):
        point = torch.addcmul(point, column.to(z.dtype), weight[:, None], value=-1)
    return point


def norm(t: Tensor) -> Tensor:
    """Of each row, in float64, where small numbers do not vanish when squared."""
    size: Tensor = torch.linalg.vector_norm(t, dim=1, dtype=torch.float64)
    return size
