"""The U-net with shifted frames as a stage: told of the snapshot, and of what the stage before has seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pixel_shuffle

from unsnap.networks.capture import Capture, WithFeatures
from unsnap.networks.frames import sigma_of
from unsnap.networks.scales import Scales, phases
from unsnap.networks.settings import three
from unsnap.networks.shift import beside_capture, with_neighbours

Scale3 = tuple[Tensor, Tensor, Tensor]
"""Features at three scales, (n · T, C, H, W) each."""


class ShiftStage(Scales, WithFeatures[Scale3]):
    """x (..., T, H, W) -> x plus a change, and the features that the change was made of; any T, H and W.

    A `ShiftUNet` without context, with two additions. The features of the stage before enter each of the three scales
    through a 1 x 1 convolution. Inside a model the mask of the frame, the snapshot as a picture and its noise enter
    the finest. Both additions are zero at first, so that it can begin with the weights of a `ShiftUNet`.
    """

    def __init__(self, channels: Sequence[int] = (24, 48, 64), blocks: Sequence[int] = (1, 1, 1)) -> None:
        super().__init__()
        three("ShiftStage", channels=channels, blocks=blocks)
        self.settings: dict[str, Any] = {"channels": list(channels), "blocks": list(blocks)}
        a = channels[0]
        self.enter = nn.Conv2d(12, a, 3, padding=1)
        self.noise = nn.Parameter(10 * torch.randn(a))
        self.context = nn.Conv2d(12, a, 3, padding=1, bias=False)
        self.passed = nn.ModuleList(nn.Conv2d(n, n, 1, bias=False) for n in channels)
        self.add_scales(channels, blocks)
        self.leave = nn.Conv2d(a, 4, 3, padding=1)
        with torch.no_grad():
            self.leave.weight.mul_(0.1)
            for part in (self.context, *self.passed):
                nn.init.zeros_(part.weight)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # a fifth faster on a CPU

    @property
    def last(self) -> nn.Conv2d:
        return self.leave

    def forward(self, x: Tensor, sigma: float | Tensor, features: Scale3 | None) -> tuple[Tensor, Scale3]:
        return self._run(x, sigma, features, None)

    def condition(self, capture: Capture) -> Callable[[Tensor, float | Tensor, Scale3 | None], tuple[Tensor, Scale3]]:
        return lambda x, sigma, features: self._run(x, sigma, features, capture)

    def _run(
        self, x: Tensor, sigma: float | Tensor, features: Scale3 | None, capture: Capture | None
    ) -> tuple[Tensor, Scale3]:
        level, frames, (height, width) = sigma_of(sigma, x), x.shape[-3], x.shape[-2:]
        u = self.enter(phases(with_neighbours(x))) + level * self.noise[:, None, None]
        if capture is not None:
            u += self.context(phases(beside_capture(capture)))
        added = zip(self.passed, features, strict=True) if features is not None else None
        left = self.all_scales(u, frames, None if added is None else (part(old) for part, old in added))
        change = pixel_shuffle(self.leave(left[0]), 2)[..., :height, :width]
        return x + change.reshape(x.shape), left
