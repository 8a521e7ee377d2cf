"""The flagship: a small U-net that treats all frames alike, and shifts features between them, for any T, H and W."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from unsnap.networks.capture import Capture
from unsnap.networks.frames import sigma_of
from unsnap.networks.scales import ThreeScales


class ShiftUNet(ThreeScales):
    """U-net on the 2 x 2 phases of every frame: x (..., T, H, W) -> clean video, the input plus a change.

    A frame's input is the frame and its two neighbours, and every block takes a quarter of its features from the frame
    before and a quarter from the one after. context: inside a model the network also takes the mask of the frame, the
    snapshot as a picture and its noise, and three frames of the start (their part of the first convolution is computed
    once), and its output is added to the middle between input and start: inside GAP a contraction by a half before
    anything is learned. sigma (a number or one per sample) is the noise level.
    """

    def __init__(
        self, channels: Sequence[int] = (24, 48, 64), blocks: Sequence[int] = (1, 1, 1), context: bool = True
    ) -> None:
        super().__init__(channels, blocks, context, entering=3, beside=6, leaving=1)

    def _beside(self, capture: Capture) -> Tensor:
        return torch.cat([with_neighbours(capture.start), beside_capture(capture)], 1)

    def _run(self, x: Tensor, sigma: float | Tensor, encoded: Tensor | None) -> Tensor:
        level = sigma_of(sigma, x)
        if torch.is_grad_enabled() or torch.compiler.is_compiling() or x.ndim == 3:
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
        return x + self.change(with_neighbours(x), level, encoded, x.shape[-3]).reshape(x.shape)


def beside_capture(capture: Capture) -> Tensor:
    """(n · T, 3, H, W): the mask of every frame, the snapshot as a picture, and ten times its noise."""
    planes = [capture.masks, capture.picture.unsqueeze(-3), 10 * capture.noise.unsqueeze(-3)]
    return torch.stack([plane.expand(capture.start.shape) for plane in planes], -3).flatten(0, -4)


def with_neighbours(x: Tensor) -> Tensor:
    """(..., T, H, W) -> (n · T, 3, H, W): the frame before, the frame, the frame after; the ends are repeated."""
    before = torch.cat([x[..., :1, :, :], x[..., :-1, :, :]], -3)
    after = torch.cat([x[..., 1:, :, :], x[..., -1:, :, :]], -3)
    return torch.stack([before, x, after], -3).reshape(-1, 3, *x.shape[-2:])
