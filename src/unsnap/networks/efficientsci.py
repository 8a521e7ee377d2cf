r"""EfficientSCI: Wang, Cao & Yuan, *EfficientSCI: densely connected network with space-time factorization for
large-scale video snapshot compressive imaging*, CVPR 2023.

End to end: the snapshot as a picture behind every mask goes in, the video comes out. Features at half the resolution
pass residual blocks of densely connected groups, each with a convolution in space, attention in time and a convolution
in space-time. Attributes are called as in the authors' files.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pixel_shuffle

from unsnap.algorithms.iterate import Denoiser
from unsnap.errors import InputError
from unsnap.networks.capture import Capture, Conditioned
from unsnap.networks.settings import whole
from unsnap.networks.spacetime import Layers, SpaceTimeConv, extended
from unsnap.networks.stformer import TimeAttention


class EfficientSCI(Conditioned):
    """x (..., T, H, W) -> (..., T, H, W), any T, H and W; inside a model x is the snapshot as the authors show it.

    width: a quarter of the features. The paper's T is (16, 8, 2), S (32, 8, 2), B (64, 8, 4) and L (64, 12, 4).
    """

    def __init__(self, width: int = 16, blocks: int = 8, groups: int = 2) -> None:
        super().__init__()
        whole("EfficientSCI", width=width, blocks=blocks, groups=groups)
        if 4 * width % groups:
            raise InputError(f"EfficientSCI shares 4 · width features among its groups, got {4 * width} for {groups}")
        self.settings: dict[str, Any] = {"width": width, "blocks": blocks, "groups": groups}
        self.fem = Layers(
            SpaceTimeConv(1, width, (3, 7, 7)), nn.LeakyReLU(),
            SpaceTimeConv(width, 2 * width, 3), nn.LeakyReLU(),
            SpaceTimeConv(2 * width, 4 * width, 3, stride=2), nn.LeakyReLU(),
        )  # fmt: skip
        self.resdnet_list = nn.ModuleList(_Dense(4 * width, groups) for _ in range(blocks))
        self.up_conv = SpaceTimeConv(4 * width, 8 * width, 1)
        self.vrm = Layers(
            SpaceTimeConv(2 * width, 2 * width, 3), nn.LeakyReLU(),
            SpaceTimeConv(2 * width, width, 1), nn.LeakyReLU(),
            SpaceTimeConv(width, 1, 3),
        )  # fmt: skip

    def condition(self, capture: Capture) -> Denoiser:
        picture = capture.picture.unsqueeze(-3)
        inputs = picture + capture.masks * picture
        return lambda x, sigma: self(inputs)

    def forward(self, x: Tensor, sigma: float | Tensor = 0.0) -> Tensor:
        frames, (height, width) = x.shape[-3], x.shape[-2:]
        u: Tensor = self.fem(extended(x, 2).flatten(0, -3).unsqueeze(1), frames)
        for block in self.resdnet_list:
            u = block(u, frames)
        out: Tensor = self.vrm(pixel_shuffle(self.up_conv(u), 2), frames)
        return out[..., :height, :width].reshape(x.shape)


class _Dense(nn.Module):
    """Groups of features: each block sees its group and the results of those before it."""

    def __init__(self, features: int, groups: int) -> None:
        super().__init__()
        each = features // groups
        self.cformer_list = nn.ModuleList(_Block(each) for _ in range(groups))
        self.dense_conv = nn.ModuleList(
            Layers(SpaceTimeConv(each * (k + 1), each, 1), nn.LeakyReLU()) for k in range(1, groups)
        )
        self.last_conv = SpaceTimeConv(features, features, 1)

    def forward(self, u: Tensor, frames: int) -> Tensor:
        done: list[Tensor] = []
        for k, (block, group) in enumerate(zip(self.cformer_list, u.chunk(len(self.cformer_list), 1), strict=True)):
            done.append(block(self.dense_conv[k - 1](torch.cat([*done, group], 1)) if done else group, frames))
        out: Tensor = u + self.last_conv(torch.cat(done, 1))
        return out


class _Block(nn.Module):
    """Convolution in space and attention in time beside each other, then a convolution in both."""

    def __init__(self, features: int) -> None:
        super().__init__()
        flat = (1, 3, 3)
        self.scb = Layers(
            SpaceTimeConv(features, features, flat), nn.LeakyReLU(), SpaceTimeConv(features, features, flat)
        )
        self.tsab = TimeAttention(features, heads=4, bias=False)
        self.ffn = Layers(SpaceTimeConv(features, features, 3), nn.LeakyReLU(), SpaceTimeConv(features, features, 1))

    def forward(self, u: Tensor, frames: int) -> Tensor:
        u = u + self.scb(u) + self.tsab(u.movedim(1, -1), frames).movedim(-1, 1)
        out: Tensor = u + self.ffn(u, frames)
        return out
