"""Blind denoisers without biases, which scale with their input: D(ax) = aD(x), whatever noise it holds.

Mohan, Kadkhodaie, Simoncelli & Fernandez-Granda, *Robust and interpretable blind image denoising via bias-free
convolutional neural networks*, ICLR 2020. Their DnCNN without biases is our `CNN` of twenty layers.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, cat, nn

from unsnap.networks.frames import frames_of, per_frame
from unsnap.networks.spacetime import extended


class BiasFreeUNet(nn.Module):
    """Their U-net of nine convolutions and two scales, frame by frame; sigma is not used. Names as in their files."""

    def __init__(self) -> None:
        super().__init__()
        self.settings: dict[str, Any] = {}
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 5, padding=2, bias=False), _conv(32, 32)
        self.conv3, self.conv4 = _conv(32, 64, stride=2), _conv(64, 64)
        self.conv5, self.conv6 = _conv(64, 64, reach=2), _conv(64, 64, reach=4)
        self.conv7 = nn.ConvTranspose2d(64, 64, 4, stride=2, padding=1, bias=False)
        self.conv8, self.conv9 = _conv(96, 32), nn.Conv2d(32, 1, 5, padding=2, bias=False)

    def forward(self, x: Tensor, sigma: float | Tensor = 0.0) -> Tensor:
        height, width = x.shape[-2:]
        return per_frame(self._net, extended(frames_of(x), 2))[..., :height, :width].reshape(x.shape)

    def _net(self, u: Tensor) -> Tensor:
        fine = self.conv2(self.conv1(u).relu()).relu()
        u = fine
        for conv in (self.conv3, self.conv4, self.conv5, self.conv6, self.conv7):
            u = conv(u).relu()
        out: Tensor = self.conv9(self.conv8(cat([u, fine], 1)).relu())
        return out


def _conv(inputs: int, outputs: int, stride: int = 1, reach: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, stride=stride, padding=reach, dilation=reach, bias=False)
