"""A small U-net whose channels are the frames, for any T, H and W: cheaper than `ShiftUNet`, and learns less."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from unsnap.networks.capture import Capture
from unsnap.networks.frames import per_sample
from unsnap.networks.scales import ThreeScales
from unsnap.networks.windows import blend, windows

WINDOW = 8
"""Frames that the network sees at once."""


class UNet(ThreeScales):
    """U-net on the 2 x 2 phases of windows of eight frames: x (..., T, H, W) -> clean video, the input plus a change.

    Longer videos are served by overlapping windows that are blended, shorter ones are reflected in time; borders are
    reflected in space. context: inside a model the network also takes the masks, the snapshot as a picture and the
    start (their part of the first convolution is computed once), and its output is added to the middle between input
    and start: inside GAP a contraction by a half before anything is learned. sigma (a number or one per sample) is the
    noise level.
    """

    def __init__(
        self, channels: Sequence[int] = (64, 96, 128), blocks: Sequence[int] = (1, 1, 2), context: bool = True
    ) -> None:
        super().__init__(channels, blocks, context, entering=WINDOW, beside=2 * WINDOW + 1, leaving=WINDOW)
        if self.context is not None:  # at first a trained denoiser stays what it is
            nn.init.zeros_(self.context.weight)

    def _beside(self, capture: Capture) -> Tensor:
        start = capture.start
        masks, _ = windows(capture.masks.expand(start.shape), WINDOW)
        image = capture.picture.reshape(-1, 1, *start.shape[-2:])
        images = image.repeat_interleave(len(masks) // len(image), 0)
        return torch.cat([masks, images, windows(start, WINDOW)[0]], 1)

    def _run(self, x: Tensor, sigma: float | Tensor, encoded: Tensor | None) -> Tensor:
        pieces, starts = windows(x, WINDOW)
        level = per_sample(sigma, x)
        level = level if len(level) == 1 else level.repeat_interleave(len(starts), 0)
        # As many windows at a time as make up a 256 x 256 image: larger activations only wait for memory.
        chunk = max(1, (1 << 16) // max(1, x.shape[-2] * x.shape[-1]))
        parts = [
            pieces[rows]
            + self.change(
                pieces[rows], level if len(level) == 1 else level[rows], None if encoded is None else encoded[rows]
            )
            for rows in (slice(k, k + chunk) for k in range(0, len(pieces), chunk))
        ]
        return blend(parts[0] if len(parts) == 1 else torch.cat(parts), starts, x.shape)
