r"""A stage of dense deep unfolding: a U-net over space and time that hands its features to the next stage.

In the manner of Wu, Zhang & Mou, *Dense deep unfolding network with 3D-CNN prior for snapshot compressive imaging*,
ICCV 2021 (DUN-3DUnet, 62 M weights and 4 TMAC): the same idea at a thirtieth of the size, and not their layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pixel_shuffle

from unsnap.networks.capture import WithFeatures
from unsnap.networks.frames import frames_of, sigma_of
from unsnap.networks.scales import phases
from unsnap.networks.settings import three
from unsnap.networks.spacetime import SpaceTimeConv


class DenseStage(WithFeatures[Tensor]):
    r"""x (..., T, H, W) and the features of the stages before -> x plus a change, and features; any T, H and W.

    What is passed on is $F \leftarrow a \odot F + u$, u the features from which this stage's change is made and a one
    learned number per channel: every stage sees all stages before it, each weighted by those in between. It enters at
    full width, before the first block. The last layer is zero at first: training begins at the data steps alone.
    """

    def __init__(self, channels: Sequence[int] = (24, 48, 64)) -> None:
        super().__init__()
        three("DenseStage", channels=channels)
        self.settings: dict[str, Any] = {"channels": list(channels)}
        a, b, c = channels
        self.enter, self.noise = SpaceTimeConv(4, a, 3), nn.Parameter(10 * torch.randn(a))
        self.passed, self.keep = SpaceTimeConv(a, a, 1), nn.Parameter(torch.full((a,), 0.5))
        self.fine_in, self.middle_in, self.coarse = _Block(a), _Block(b), _Block(c)
        self.middle_out, self.fine_out = _Block(b), _Block(a)
        self.down1, self.down2 = nn.Conv2d(a, b, 2, stride=2), nn.Conv2d(b, c, 2, stride=2)
        self.up1, self.up2 = nn.Conv2d(b, 4 * a, 1), nn.Conv2d(c, 4 * b, 1)
        self.leave = SpaceTimeConv(a, 4, 3)
        nn.init.zeros_(self.leave.weight)
        nn.init.zeros_(self.leave.bias)  # type: ignore[arg-type]

    def forward(self, x: Tensor, sigma: float | Tensor, features: Tensor | None) -> tuple[Tensor, Tensor]:
        count, (height, width) = x.shape[-3], x.shape[-2:]
        level = sigma_of(sigma, x) * self.noise[:, None, None]
        u = self.enter(phases(frames_of(x)), count) + level
        fine = self.fine_in(u if features is None else u + self.passed(features, count), count)
        middle = self.middle_in(self.down1(fine), count)
        coarse = self.coarse(self.down2(middle), count)
        middle = self.middle_out(middle + pixel_shuffle(self.up2(coarse), 2), count)
        u = self.fine_out(fine + pixel_shuffle(self.up1(middle), 2), count)
        change = pixel_shuffle(self.leave(u, count), 2)[..., :height, :width]
        kept = u if features is None else u + self.keep[:, None, None] * features
        return x + change.reshape(x.shape), kept


class _Block(nn.Module):
    """u + conv(relu(conv(relu(u)))): one over space and time, one over space."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.second = SpaceTimeConv(channels, channels, 3), nn.Conv2d(channels, channels, 3, padding=1)
        with torch.no_grad():
            self.second.weight.mul_(0.3)

    def forward(self, u: Tensor, frames: int) -> Tensor:
        out: Tensor = u + self.second(self.first(u.relu(), frames).relu())
        return out
