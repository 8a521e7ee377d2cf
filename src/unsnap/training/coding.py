"""Random cameras for training: masks of every kind and a little noise, so that one model serves every camera."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from unsnap import masks as mask_sets
from unsnap.equilibrium import DEQ
from unsnap.operators import Snapshot


class Coded(NamedTuple):
    """Snapshots y (B, H, W) of videos truth (B, T, H, W), each behind masks of its own."""

    truth: Tensor
    masks: Tensor
    y: Tensor
    guessed: Tensor | None = None
    """What a model starts from, if that is `guess`: found once, not at every step."""

    def to(self, device: torch.device) -> Coded:
        return Coded(*[None if part is None else part.to(device) for part in self])  # type: ignore[arg-type]

    def rows(self, rows: slice) -> Coded:
        return Coded(*[None if part is None else part[rows] for part in self])  # type: ignore[arg-type]

    def begun(self, model: DEQ) -> tuple[Coded, tuple[Tensor, ...]]:
        """With its guess, and the state that the model starts from."""
        guessed = model.guess(self.y, self.phi)
        with torch.no_grad():
            video = model.start(self.y, self.phi) if guessed is None else guessed
        return self._replace(guessed=guessed), model.step.start(video)

    @property
    def phi(self) -> Snapshot:
        return Snapshot(self.masks)


def code(truth: Tensor, noise: float, generator: torch.Generator) -> Coded:
    """Put a random camera before each video (B, T, H, W); a quarter of the scenes is dimmed, half has noise.

    noise: its largest standard deviation; that of every second noisy sensor grows as the root of the light.
    """
    gain, kind, level, dim = torch.rand(4, len(truth), 1, 1, generator=generator)
    truth = truth * torch.where(dim < 0.25, 0.2 + 0.8 * gain, 1)[..., None]
    masks = torch.stack([random_masks(*video.shape, generator=generator) for video in truth])
    y = (masks * truth).sum(1)
    light = torch.where(kind < 0.25, y.clamp(min=0).sqrt(), 1)
    size = noise * level * (kind < 0.5) * light
    return Coded(truth, masks, y + size * torch.randn(y.shape, generator=generator))


def random_masks(frames: int, height: int, width: int, *, generator: torch.Generator) -> Tensor:
    """Mostly Bernoulli(½); else another density, a shifted mask, or grey values."""
    kind = float(torch.rand((), generator=generator))
    p = 0.5 if kind < 0.6 else 0.2 + 0.6 * float(torch.rand((), generator=generator))
    if kind < 0.7:
        return mask_sets.bernoulli(frames, height, width, p=p, generator=generator)
    if kind < 0.85:
        down, right = (int(k) for k in torch.randint(-1, 2, (2,), generator=generator))
        step = (down, right) if down or right else (1, 0)
        return mask_sets.shifted(frames, height, width, p=p, step=step, generator=generator)
    blur = 0.0 if kind < 0.92 else 0.3 + 0.5 * float(torch.rand((), generator=generator))
    return mask_sets.gray(frames, height, width, blur=blur, generator=generator)
