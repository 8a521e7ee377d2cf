"""The flagship: a small U-net that treats all frames alike, and shifts features between them, for any T, H and W."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pixel_shuffle

from unsnap.algorithms.iterate import Denoiser
from unsnap.networks.capture import Capture, Conditioned, around_start
from unsnap.networks.frames import sigma_of
from unsnap.networks.settings import flags, whole
from unsnap.networks.unet import phases


class ShiftUNet(Conditioned):
    """U-net on the 2 x 2 phases of every frame: x (..., T, H, W) -> clean video, the input plus a change.

    A frame's input is the frame and its two neighbours, and every block takes a quarter of its features from the frame
    before and a quarter from the one after. context: inside a model the network also takes the mask of the frame, the
    snapshot as a picture and its noise, and three frames of the start (their part of the first convolution is computed
    once), and its output is added to the middle between input and start: inside GAP a contraction by a half before
    anything is learned. sigma (a number or one per sample) is the noise level.
    """

    def __init__(
        self, channels: tuple[int, int, int] = (24, 48, 64), blocks: tuple[int, int, int] = (1, 1, 1),
        context: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        channels, blocks = tuple(channels), tuple(blocks)  # type: ignore[assignment]
        whole("ShiftUNet", **{f"channels[{k}]": c for k, c in enumerate(channels)})
        whole("ShiftUNet", **{f"blocks[{k}]": b for k, b in enumerate(blocks)})
        flags("ShiftUNet", context=context)
        self.settings: dict[str, Any] = {"channels": list(channels), "blocks": list(blocks), "context": context}
        a, b, c = channels
        self.enter = nn.Conv2d(4 * 3, a, 3, padding=1)
        self.noise = nn.Parameter(10 * torch.randn(a))  # times sigma: as large as what a picture gives
        self.context = nn.Conv2d(4 * 6, a, 3, padding=1, bias=False) if context else None
        self.fine_in, self.fine_out = _blocks(a, blocks[0]), _blocks(a, blocks[0])
        self.middle_in, self.middle_out = _blocks(b, blocks[1]), _blocks(b, blocks[1])
        self.coarse = _blocks(c, blocks[2])
        self.down1, self.down2 = nn.Conv2d(a, b, 2, stride=2), nn.Conv2d(b, c, 2, stride=2)
        self.up1, self.up2 = nn.Conv2d(b, 4 * a, 1), nn.Conv2d(c, 4 * b, 1)
        self.leave = nn.Conv2d(a, 4, 3, padding=1)
        with torch.no_grad():
            self.leave.weight.mul_(0.1)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, x: Tensor, sigma: float | Tensor = 0.0) -> Tensor:
        return self._run(x, sigma, None)

    def condition(self, capture: Capture) -> Denoiser:
        if self.context is None:
            return self
        start = capture.start
        planes = [capture.masks, capture.picture.unsqueeze(-3), 10 * capture.noise.unsqueeze(-3)]
        beside = torch.stack([plane.expand(start.shape) for plane in planes], -3).flatten(0, -4)
        inputs = _phases(torch.cat([_with_neighbours(start), beside], 1))
        return around_start(self._run, self.context, inputs, start)

    def _run(self, x: Tensor, sigma: float | Tensor, encoded: Tensor | None) -> Tensor:
        level = sigma_of(sigma, x)
        if torch.is_grad_enabled() or x.ndim == 3:
            return self._net(x, level, encoded)
        # One video at a time: larger activations only wait for memory.
        frames, videos = x.shape[-3], x.reshape(-1, *x.shape[-3:])
        rows = [slice(k, k + frames) for k in range(0, len(level), frames)]
        parts = [
            self._net(video, level[row], None if encoded is None else encoded[row])
            for video, row in zip(videos, rows, strict=True)
        ]
        return torch.stack(parts).reshape(x.shape)

    def _net(self, x: Tensor, level: Tensor, encoded: Tensor | None) -> Tensor:
        (height, width), frames = x.shape[-2:], x.shape[-3]
        u = self.enter(_phases(_with_neighbours(x))) + level * self.noise[:, None, None]
        u1 = _through(self.fine_in, u if encoded is None else u + encoded, frames)
        u2 = _through(self.middle_in, self.down1(u1), frames)
        u3 = _through(self.coarse, self.down2(u2), frames)
        u2 = _through(self.middle_out, u2 + pixel_shuffle(self.up2(u3), 2), frames)
        u1 = _through(self.fine_out, u1 + pixel_shuffle(self.up1(u2), 2), frames)
        return x + pixel_shuffle(self.leave(u1), 2)[..., :height, :width].reshape(x.shape)


class _Block(nn.Module):
    """u + conv(relu(conv(relu(shifted u))))."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)
        with torch.no_grad():
            self.second.weight.mul_(0.3)

    def forward(self, u: Tensor, shifted: Tensor) -> Tensor:
        out: Tensor = u + self.second(self.first(shifted.relu()).relu_())
        return out


def _blocks(channels: int, count: int) -> nn.ModuleList:
    return nn.ModuleList(_Block(channels) for _ in range(count))


def _through(blocks: nn.ModuleList, u: Tensor, frames: int) -> Tensor:
    for block in blocks:
        u = block(u, _shifted(u, frames))
    return u


def _shifted(u: Tensor, frames: int) -> Tensor:
    """(n · T, C, H, W) with a quarter of the channels from the frame before and a quarter from the frame after."""
    if frames == 1:
        return u
    shifted, quarter = u.clone(), u.shape[1] // 4  # a copy keeps the order in memory, which concatenation does not
    old, new = (part.view(-1, frames, *u.shape[1:]) for part in (u, shifted))
    new[:, 1:, :quarter] = old[:, :-1, :quarter]
    new[:, :-1, quarter : 2 * quarter] = old[:, 1:, quarter : 2 * quarter]
    return shifted


def _with_neighbours(x: Tensor) -> Tensor:
    """(..., T, H, W) -> (n · T, 3, H, W): the frame before, the frame, the frame after; the ends are repeated."""
    before = torch.cat([x[..., :1, :, :], x[..., :-1, :, :]], -3)
    after = torch.cat([x[..., 1:, :, :], x[..., -1:, :, :]], -3)
    return torch.stack([before, x, after], -3).reshape(-1, 3, *x.shape[-2:])


def _phases(x: Tensor) -> Tensor:
    return phases(x).contiguous(memory_format=torch.channels_last)  # as convolutions on a CPU like them
