"""GAP-TV in plain numpy, the way the field's Python code does it: the yardstick of `gap_tv_speed.py`.

Arrays are H x W x T, as in the field's .mat files. Nothing here is tuned, and nothing is slowed down.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def tv_chambolle(x: Array, weight: float, iterations: int) -> Array:
    """Chambolle's 2-D TV denoising of every frame of x (H, W, T): `iterations` - 1 dual updates and one evaluation."""
    p = np.zeros((2, *x.shape), x.dtype)
    gradient = np.zeros_like(p)
    divergence = np.zeros_like(x)
    tau = 1 / 4
    for i in range(iterations):
        if i > 0:
            divergence = -p.sum(0)
            divergence[1:] += p[0, :-1]
            divergence[:, 1:] += p[1, :, :-1]
        out = x + divergence
        if i < iterations - 1:
            gradient[0, :-1] = np.diff(out, axis=0)
            gradient[1, :, :-1] = np.diff(out, axis=1)
            length = np.sqrt((gradient**2).sum(0))[None]
            p = (p - tau * gradient) / (1 + tau / weight * length)
    return out


def gap_tv(y: Array, masks: Array, *, weight: float, iterations: int, inner: int) -> Array:
    """Accelerated GAP with TV: snapshot y (H, W), masks (H, W, T) -> video (H, W, T)."""
    energy = (masks**2).sum(2)
    energy[energy == 0] = 1
    x = masks * (y / energy)[:, :, None]
    carried = y.copy()
    for _ in range(iterations):
        misfit = y - (masks * x).sum(2)
        carried = carried + misfit
        x = x + masks * ((carried - (masks * x).sum(2)) / energy)[:, :, None]
        x = tv_chambolle(x, weight, inner)
    return x
