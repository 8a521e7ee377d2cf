"""Samples that are coded and started once and used sixteen times, each time under another symmetry.

A video may be mirrored, turned and played backwards, and so may masks, snapshot and start with it: the sample stays a
sample, and nothing of it is computed again. That pays where a start costs more than the steps that learn from it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from unsnap.models import Batch

SYMMETRIES = 16
"""The eight of the square, each forwards and backwards in time."""


def turned(batch: Batch, symmetry: int) -> Batch:
    """A batch of square samples under one of the symmetries; 0 changes nothing. Its state is left behind."""
    if not 0 <= symmetry < SYMMETRIES:
        raise ValueError(f"symmetry must be 0 to {SYMMETRIES - 1}, got {symmetry}")
    masks = batch.phi.masks
    if masks.shape[-1] != masks.shape[-2]:
        raise ValueError(f"only square samples can be turned, got {tuple(masks.shape)}")

    def video(x: Tensor) -> Tensor:
        return _image(x.flip(-3) if symmetry & 8 else x, symmetry)

    start = None if batch.start is None else video(batch.start)
    return Batch(video(batch.truth), _image(batch.y, symmetry), batch.phi.with_masks(video(masks)), start)


def _image(x: Tensor, symmetry: int) -> Tensor:
    x = x.transpose(-2, -1) if symmetry & 4 else x
    axes = [axis for axis, bit in ((-2, 2), (-1, 1)) if symmetry & bit]
    return x.flip(axes).contiguous() if axes else x.contiguous()


@dataclass
class _Kept:
    batch: Batch
    unused: list[int] = field(default_factory=lambda: list(range(SYMMETRIES)))


class Cache:
    """As many batches as fit into `size` bytes; each is given away under every symmetry once, and then forgotten.

    While there is room every batch that is asked for is a new one, then one in sixteen is. No batch fits: all are new.
    """

    def __init__(self, size: float, make: Callable[[], Batch]) -> None:
        self.size, self.make = size, make
        self.kept: list[_Kept] = []
        self.used = 0

    def take(self, generator: torch.Generator) -> Batch:
        """A batch that was not given away before, with its start but without a state."""
        if not self.kept or self.used + _bytes(self.kept[-1].batch) <= self.size:
            fresh = replace(self.make(), state=None)
            if self.used + _bytes(fresh) > self.size:
                return fresh
            self.kept.append(_Kept(fresh))
            self.used += _bytes(fresh)
        k = int(torch.randint(len(self.kept), (), generator=generator))
        kept = self.kept[k]
        symmetry = kept.unused.pop(int(torch.randint(len(kept.unused), (), generator=generator)))
        if not kept.unused:
            self.kept.pop(k)
            self.used -= _bytes(kept.batch)
        return turned(kept.batch, symmetry)


def _bytes(batch: Batch) -> int:
    parts = (batch.truth, batch.y, batch.phi.masks, batch.start)
    return sum(part.nbytes for part in parts if part is not None)
