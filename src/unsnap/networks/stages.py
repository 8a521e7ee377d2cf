r"""Two networks whose channels are the frames, as published: cheap, and made for one number of frames.

`FullUNet`: Qiao, Meng, Ma & Yuan, *Deep learning for video compressive sensing*, APL Photonics 2020, end to end.
`StageUNet`: one of the twelve stages of GAP-net: Meng, Jalali & Yuan, *GAP-net for snapshot compressive imaging*, 2020.
Other lengths than `frames` are served by windows that are blended. Attributes are called as in the authors' files.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, cast

import torch
from torch import Tensor, nn

from unsnap.networks.settings import whole
from unsnap.networks.spacetime import extended
from unsnap.networks.windows import blend, windows


class _Windowed(nn.Module):
    """x (..., T, H, W) -> x plus a change between −1 and 1; sigma is not used."""

    def __init__(self, frames: int, multiple: int, **settings: int) -> None:
        super().__init__()
        whole(type(self).__name__, frames=frames, **settings)
        self.multiple = multiple
        self.settings: dict[str, Any] = {"frames": frames, **settings}

    def forward(self, x: Tensor, sigma: float | Tensor = 0.0) -> Tensor:
        height, width = x.shape[-2:]
        larger = extended(x, self.multiple)
        pictures, starts = windows(larger, self.settings["frames"])
        out = blend(pictures + self.change(pictures).tanh(), starts, larger.shape)
        return out[..., :height, :width]

    @abstractmethod
    def change(self, pictures: Tensor) -> Tensor:
        """(n, frames, H, W) -> (n, frames, H, W)."""


class FullUNet(_Windowed):
    """Five residual blocks down and five up with sums across, all at full resolution."""

    def __init__(self, frames: int = 8, channels: int = 64) -> None:
        super().__init__(frames, 1, channels=channels)
        self.conv1 = nn.Conv2d(frames, channels, 3, padding=1)
        for k in range(1, 6):
            self.add_module(f"encode{k}", _Residual(channels))
            self.add_module(f"decode{k}", _Residual(channels))
        inner = [nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2)]
        self.latent = nn.Sequential(inner[0], nn.LeakyReLU(), inner[1], nn.LeakyReLU())
        self.last_act = nn.Sequential(nn.Conv2d(channels, frames, 1))

    @property
    def last(self) -> nn.Conv2d:
        return cast(nn.Conv2d, self.last_act[0])

    def change(self, pictures: Tensor) -> Tensor:
        passed = [self.conv1(pictures)]
        for k in range(1, 6):
            passed.append(self.get_submodule(f"encode{k}")(passed[-1]))
        u = self.latent(passed[-1])
        for k in range(5, 0, -1):
            u = self.get_submodule(f"decode{k}")(u + passed[k])
        out: Tensor = self.last_act(u)
        return out


class _Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1, self.conv2 = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))

    def forward(self, u: Tensor) -> Tensor:
        out: Tensor = u + self.conv2(nn.functional.leaky_relu(self.conv1(u)))
        return out


class StageUNet(_Windowed):
    """Three scales of two convolutions each."""

    def __init__(self, frames: int = 8, channels: int = 32) -> None:
        super().__init__(frames, 4, channels=channels)
        a, b, c = channels, 2 * channels, 4 * channels
        self.dconv_down1, self.dconv_down2, self.dconv_down3 = _Double(frames, a), _Double(a, b), _Double(b, c)
        self.upsample2 = nn.Sequential(nn.ConvTranspose2d(c, b, 2, stride=2), nn.ReLU())
        self.upsample1 = nn.Sequential(nn.ConvTranspose2d(b, a, 2, stride=2), nn.ReLU())
        self.dconv_up2, self.dconv_up1 = _Double(2 * b, b), _Double(2 * a, a)
        self.conv_last = nn.Conv2d(a, frames, 1)

    @property
    def last(self) -> nn.Conv2d:
        return self.conv_last

    def change(self, pictures: Tensor) -> Tensor:
        fine = self.dconv_down1(pictures)
        middle = self.dconv_down2(nn.functional.max_pool2d(fine, 2))
        coarse = self.dconv_down3(nn.functional.max_pool2d(middle, 2))
        u = self.dconv_up2(torch.cat([self.upsample2(coarse), middle], 1))
        out: Tensor = self.conv_last(self.dconv_up1(torch.cat([self.upsample1(u), fine], 1)))
        return out


class _Double(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        first, second = nn.Conv2d(inputs, outputs, 3, padding=1), nn.Conv2d(outputs, outputs, 3, padding=1)
        self.d_conv = nn.Sequential(first, nn.ReLU(), second, nn.ReLU())

    def forward(self, u: Tensor) -> Tensor:
        out: Tensor = self.d_conv(u)
        return out
