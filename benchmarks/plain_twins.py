"""What one would write instead of our kernels, in plain torch or numba: the other side of `hand_written.py`."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d


def forward(x: Tensor, masks: Tensor) -> Tensor:
    """y = Σ_t m_t x_t."""
    return (masks * x).sum(-3)


def data_step(x: Tensor, y: Tensor, masks: Tensor, gain: Tensor) -> Tensor:
    """x + Φᵀ[gain ⊙ (y − Φx)]."""
    return x + masks * (gain * (y - forward(x, masks))).unsqueeze(-3)


def change(new: Tensor, old: Tensor) -> Tensor:
    """Squared norms of new − old and of new, summed in float64."""
    return torch.stack([t.square().sum(dtype=torch.float64) for t in (new - old, new)])


def pursuit(patches: Tensor, atoms: Tensor, target: float, most: int) -> Tensor:
    """Orthogonal matching pursuit of all patches (N, d) at once, by normal equations; the sparse approximations."""
    products, gram = patches @ atoms.T, atoms @ atoms.T
    used = torch.zeros(len(patches), 0, dtype=torch.long)
    rest, out = patches.clone(), torch.zeros_like(patches)
    rows = torch.arange(len(patches))
    for _ in range(most):
        on = rest[rows].square().sum(1) > target
        rows, used = rows[on], used[on]
        if len(rows) == 0:
            break
        used = torch.cat([used, (rest[rows] @ atoms.T).abs().argmax(1, keepdim=True)], 1)
        small = gram[used[:, :, None], used[:, None, :]]
        values = torch.linalg.solve(small, products[rows].gather(1, used))
        out[rows] = torch.einsum("pn,pnd->pd", values, atoms[used])
        rest[rows] = patches[rows] - out[rows]
    return out


def match(video: Tensor, patch: int, size: int, radius: int, stride: int) -> Tensor:
    """Squared distances (T, h, w, size) of the nearest patches to those on a grid, over all shifts and frames."""
    frames, height, width = video.shape
    found = []
    for dy in range(-radius, radius + 1):
        for dx in range(-radius, radius + 1):
            rows, columns = slice(max(0, -dy), height - max(0, dy)), slice(max(0, -dx), width - max(0, dx))
            moved = torch.full((frames, height, width), float("inf"))
            moved[:, rows, columns] = video.roll((-dy, -dx), (1, 2))[:, rows, columns]
            squares = (video[:, None] - moved[None]).square()
            found.append(avg_pool2d(squares, patch, stride) * patch**2)
    return torch.cat(found, 1).topk(size, dim=1, largest=False).values


def shrink(video: Tensor, groups: Tensor, patch: int, least: Tensor) -> Tensor:
    """WNNM's step on all groups (G, n) with a batched decomposition of the smaller Gram matrices by LAPACK."""
    width = video.shape[-1]
    inside = (torch.arange(patch)[:, None] * width + torch.arange(patch)).flatten()
    index = groups.long()[:, :, None] + inside
    y = video.flatten()[index]
    mean = y.mean(1, keepdim=True)
    y = y - mean
    values, vectors = torch.linalg.eigh(y.mT @ y)
    share = torch.where(values > least[:, None], (1 + (1 - least[:, None] / values).clamp(min=0).sqrt()) / 2, 0)
    x = mean + y @ (vectors * share[:, None]) @ vectors.mT
    total = torch.zeros(video.numel()).index_add_(0, index.flatten(), x.flatten())
    return (total / torch.bincount(index.flatten(), minlength=video.numel())).reshape(video.shape)


@numba.njit(fastmath={"contract", "reassoc", "nsz"}, error_model="numpy")
def products_by_loops(a: Any, b: Any, out: Any) -> None:
    """a[p] @ b[p] for all p, as a compiler makes it of loops."""
    for p in range(a.shape[0]):
        for i in range(a.shape[1]):
            out[p, i] = 0
            for k in range(a.shape[2]):
                for j in range(b.shape[2]):
                    out[p, i, j] += a[p, i, k] * b[p, k, j]


@numba.njit
def products_by_blas(a: Any, b: Any, out: Any) -> None:
    """The same by BLAS, as it can be called from compiled code."""
    for p in range(a.shape[0]):
        np.dot(a[p], b[p], out[p])
