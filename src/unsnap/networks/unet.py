"""A small U-net whose channels are the frames, for any T, H and W: cheaper than `ShiftUNet`, and learns less."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, pixel_shuffle, pixel_unshuffle

from unsnap.algorithms.iterate import Denoiser
from unsnap.networks.capture import Capture, Conditioned, around_start
from unsnap.networks.settings import flags, whole

WINDOW = 8
"""Frames that the network sees at once."""
_GRID = 8  # heights and widths inside are multiples: two phases, then halved twice


class UNet(Conditioned):
    """U-net on the 2 x 2 phases of windows of eight frames: x (..., T, H, W) -> clean video, the input plus a change.

    Longer videos are served by overlapping windows that are blended, shorter ones are reflected in time; borders are
    reflected in space. context: inside a model the network also takes the masks, the snapshot as a picture and the
    start (their part of the first convolution is computed once), and its output is added to the middle between input
    and start: inside GAP a contraction by a half before anything is learned. sigma (a number or one per sample) is the
    noise level.
    """

    def __init__(
        self, channels: tuple[int, int, int] = (64, 96, 128), blocks: tuple[int, int, int] = (1, 1, 2),
        context: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        channels, blocks = tuple(channels), tuple(blocks)  # type: ignore[assignment]
        whole("UNet", **{f"channels[{k}]": c for k, c in enumerate(channels)})
        whole("UNet", **{f"blocks[{k}]": b for k, b in enumerate(blocks)})
        flags("UNet", context=context)
        self.settings: dict[str, Any] = {"channels": list(channels), "blocks": list(blocks), "context": context}
        a, b, c = channels
        self.enter = nn.Conv2d(4 * WINDOW, a, 3, padding=1)
        self.noise = nn.Parameter(10 * torch.randn(a))  # times sigma: as large as what a picture gives
        self.context = nn.Conv2d(8 * WINDOW + 4, a, 3, padding=1, bias=False) if context else None
        self.fine_in, self.fine_out = _blocks(a, blocks[0]), _blocks(a, blocks[0])
        self.middle_in, self.middle_out = _blocks(b, blocks[1]), _blocks(b, blocks[1])
        self.coarse = _blocks(c, blocks[2])
        self.down1, self.down2 = nn.Conv2d(a, b, 2, stride=2), nn.Conv2d(b, c, 2, stride=2)
        self.up1, self.up2 = nn.Conv2d(b, 4 * a, 1), nn.Conv2d(c, 4 * b, 1)
        self.leave = nn.Conv2d(a, 4 * WINDOW, 3, padding=1)
        with torch.no_grad():
            self.leave.weight.mul_(0.1)
            if self.context is not None:  # at first a trained denoiser stays what it is
                self.context.weight.zero_()
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # a fifth faster on a CPU

    def forward(self, x: Tensor, sigma: float | Tensor = 0.0) -> Tensor:
        return self._run(x, sigma, None)

    def condition(self, capture: Capture) -> Denoiser:
        if self.context is None:
            return self
        start = capture.start
        windows, _ = _windows(capture.masks.expand(start.shape))
        image = capture.picture.reshape(-1, 1, *start.shape[-2:])
        images = image.repeat_interleave(len(windows) // len(image), 0)
        inputs = phases(torch.cat([windows, images, _windows(start)[0]], 1))
        return around_start(self._run, self.context, inputs, start)

    def _run(self, x: Tensor, sigma: float | Tensor, encoded: Tensor | None) -> Tensor:
        windows, starts = _windows(x)
        level = _per_window(sigma, x, len(starts))
        # As many windows at a time as make up a 256 x 256 image: larger activations only wait for memory.
        chunk = max(1, (1 << 16) // max(1, x.shape[-2] * x.shape[-1]))
        parts = [
            self._net(
                windows[rows], level if len(level) == 1 else level[rows], None if encoded is None else encoded[rows]
            )
            for rows in (slice(k, k + chunk) for k in range(0, len(windows), chunk))
        ]
        return _blend(parts[0] if len(parts) == 1 else torch.cat(parts), starts, x.shape)

    def _net(self, windows: Tensor, sigma: Tensor, encoded: Tensor | None) -> Tensor:
        height, width = windows.shape[-2:]
        u = self.enter(phases(windows)) + sigma * self.noise[:, None, None]
        u1 = self.fine_in(u if encoded is None else u + encoded)
        u2 = self.middle_in(self.down1(u1))
        u3 = self.coarse(self.down2(u2))
        u2 = self.middle_out(u2 + pixel_shuffle(self.up2(u3), 2))
        u1 = self.fine_out(u1 + pixel_shuffle(self.up1(u2), 2))
        return windows + pixel_shuffle(self.leave(u1), 2)[..., :height, :width]


class _Block(nn.Module):
    """u + conv(relu(conv(relu(u))))."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)
        with torch.no_grad():
            self.second.weight.mul_(0.3)

    def forward(self, u: Tensor) -> Tensor:
        out: Tensor = u + self.second(self.first(u.relu()).relu())
        return out


def _blocks(channels: int, count: int) -> nn.Sequential:
    return nn.Sequential(*[_Block(channels) for _ in range(count)])


def _windows(x: Tensor) -> tuple[Tensor, list[int]]:
    """(..., T, H, W) -> (n · windows, 8, H, W) and the frame each window starts at."""
    x = x.reshape(-1, *x.shape[-3:])
    frames = x.shape[1]
    if frames < WINDOW:
        order = [_mirror(t, frames) for t in range(WINDOW)]
        return x[:, order], [0]
    last = frames - WINDOW
    count = -(-last // (WINDOW // 2)) + 1
    starts = [round(k * last / max(1, count - 1)) for k in range(count)]
    if count == 1:
        return x, starts
    return torch.stack([x[:, s : s + WINDOW] for s in starts], 1).flatten(0, 1), starts


def _mirror(t: int, frames: int) -> int:
    """t reflected into 0 … frames − 1 without repeating the ends."""
    period = max(1, 2 * (frames - 1))
    t %= period
    return min(t, period - t)


def _blend(windows: Tensor, starts: list[int], shape: torch.Size) -> Tensor:
    """The inverse of `_windows`: where windows overlap, the frame nearer to a window's middle weighs more."""
    frames = shape[-3]
    if len(starts) == 1:
        return windows[:, :frames].reshape(shape)
    weight = torch.arange(WINDOW, dtype=windows.dtype, device=windows.device)
    weight = torch.minimum(weight, WINDOW - 1 - weight) + 1
    windows = windows.reshape(-1, len(starts), *windows.shape[1:])
    total = torch.zeros(frames, dtype=windows.dtype, device=windows.device)
    for s in starts:
        total[s : s + WINDOW] += weight
    parts = [
        pad(windows[:, k] * (weight / total[s : s + WINDOW])[:, None, None], (0, 0, 0, 0, s, frames - WINDOW - s))
        for k, s in enumerate(starts)
    ]
    return torch.stack(parts).sum(0).reshape(shape)


def phases(x: Tensor) -> Tensor:
    """(n, C, H, W) -> (n, 4C, H/2, W/2), extended to the network's grid by reflection."""
    height, width = x.shape[-2:]
    down, right = -height % _GRID, -width % _GRID
    if down or right:
        mode = "reflect" if height > down and width > right else "replicate"
        x = pad(x, (0, right, 0, down), mode=mode)
    return pixel_unshuffle(x, 2)


def _per_window(sigma: float | Tensor, x: Tensor, count: int) -> Tensor:
    value = torch.as_tensor(sigma, dtype=x.dtype, device=x.device)
    if value.numel() == 1:
        return value.reshape(1, 1, 1, 1)
    if value.shape != x.shape[:-3]:
        raise ValueError(
            f"sigma must be one number, or one per sample {tuple(x.shape[:-3])}, got shape {tuple(value.shape)}"
        )
    return value.reshape(-1, 1, 1, 1).repeat_interleave(count, 0)
