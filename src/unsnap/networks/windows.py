"""Videos of any length for networks that see a fixed number of frames at once."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad


def windows(x: Tensor, size: int) -> tuple[Tensor, list[int]]:
    """(..., T, H, W) -> (n · windows, size, H, W) and the frame each window starts at.

    Longer videos give windows that overlap by half or more, shorter ones are reflected in time.
    """
    x = x.reshape(-1, *x.shape[-3:])
    frames = x.shape[1]
    if frames < size:
        return x[:, mirrored(range(size), frames)], [0]
    last = frames - size
    count = -(-last // max(1, size // 2)) + 1
    starts = [round(k * last / max(1, count - 1)) for k in range(count)]
    if count == 1:
        return x, starts
    return torch.stack([x[:, s : s + size] for s in starts], 1).flatten(0, 1), starts


def mirrored(wanted: range, frames: int) -> list[int]:
    """Frame numbers reflected into 0 … frames − 1 without repeating the ends."""
    period = max(1, 2 * (frames - 1))
    return [min(t % period, period - t % period) for t in wanted]


def blend(parts: Tensor, starts: list[int], shape: torch.Size) -> Tensor:
    """The inverse of `windows`: where they overlap, the frame nearer to a window's middle weighs more."""
    frames, size = shape[-3], parts.shape[1]
    if len(starts) == 1:
        return parts[:, :frames].reshape(shape)
    weight = torch.arange(size, dtype=parts.dtype, device=parts.device)
    weight = torch.minimum(weight, size - 1 - weight) + 1
    parts = parts.reshape(-1, len(starts), *parts.shape[1:])
    total = torch.zeros(frames, dtype=parts.dtype, device=parts.device)
    for s in starts:
        total[s : s + size] += weight
    placed = [
        pad(parts[:, k] * (weight / total[s : s + size])[:, None, None], (0, 0, 0, 0, s, frames - size - s))
        for k, s in enumerate(starts)
    ]
    return torch.stack(placed).sum(0).reshape(shape)
