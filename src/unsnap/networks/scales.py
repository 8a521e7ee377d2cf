"""What our U-nets have in common: three scales of residual blocks on the 2 x 2 phases of pictures."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pixel_shuffle, pixel_unshuffle

from unsnap.algorithms.iterate import Denoiser
from unsnap.networks.capture import Capture, Conditioned, around_start
from unsnap.networks.frames import fast, layers_of
from unsnap.networks.settings import flags, three
from unsnap.networks.spacetime import extended

_GRID = 8  # heights and widths inside are multiples: two phases, then halved twice


class Scales(nn.Module):
    """Residual blocks of three widths, each on pictures of half the size of the one before."""

    fine_in: nn.ModuleList
    fine_out: nn.ModuleList
    middle_in: nn.ModuleList
    middle_out: nn.ModuleList
    coarse: nn.ModuleList
    down1: nn.Conv2d
    down2: nn.Conv2d
    up1: nn.Conv2d
    up2: nn.Conv2d

    def add_scales(self, channels: Sequence[int], blocks: Sequence[int]) -> None:
        (a, b, c), (fine, middle, coarse) = channels, blocks
        self.fine_in, self.fine_out = _blocks(a, fine), _blocks(a, fine)
        self.middle_in, self.middle_out = _blocks(b, middle), _blocks(b, middle)
        self.coarse = _blocks(c, coarse)
        self.down1, self.down2 = nn.Conv2d(a, b, 2, stride=2), nn.Conv2d(b, c, 2, stride=2)
        self.up1, self.up2 = nn.Conv2d(b, 4 * a, 1), nn.Conv2d(c, 4 * b, 1)

    def through_scales(self, u: Tensor, frames: int = 1) -> Tensor:
        """(n, a, H, W) -> (n, a, H, W), H and W multiples of four."""
        return self.all_scales(u, frames)[0]

    def all_scales(
        self, u: Tensor, frames: int, added: Iterator[Tensor] | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The same, and what it was made of at the two coarser scales; added: to what enters each of the three, u's
        values included, and made when it is needed."""

        def entering(z: Tensor) -> Tensor:
            return z if added is None else z.add_(next(added))

        u = _through(self.fine_in, entering(u), frames)
        v = _through(self.middle_in, entering(self.down1(u)), frames)
        w = _through(self.coarse, entering(self.down2(v)), frames)
        v = _through(self.middle_out, _joined(v, self.up2(w)), frames)
        return _through(self.fine_out, _joined(u, self.up1(v)), frames), v, w


class ThreeScales(Scales, Conditioned):
    """`entering` pictures (and `beside` more, with context) to `leaving` ones, by blocks of three widths."""

    def __init__(
        self, channels: Sequence[int], blocks: Sequence[int], context: bool, *, entering: int, beside: int, leaving: int
    ) -> None:
        super().__init__()
        name = type(self).__name__
        three(name, channels=channels, blocks=blocks)
        flags(name, context=context)
        self.settings: dict[str, Any] = {"channels": list(channels), "blocks": list(blocks), "context": context}
        a = channels[0]
        self.enter = nn.Conv2d(4 * entering, a, 3, padding=1)
        self.noise = nn.Parameter(10 * torch.randn(a))  # times sigma: as large as what a picture gives
        self.context = nn.Conv2d(4 * beside, a, 3, padding=1, bias=False) if context else None
        self.add_scales(channels, blocks)
        self.leave = nn.Conv2d(a, 4 * leaving, 3, padding=1)
        with torch.no_grad():
            self.leave.weight.mul_(0.1)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # a fifth faster on a CPU

    @property
    def told(self) -> bool:
        return self.context is not None

    @property
    def last(self) -> nn.Conv2d:
        return self.leave

    def forward(self, x: Tensor, sigma: float | Tensor = 0.0) -> Tensor:
        return self._run(x, sigma, None)

    def condition(self, capture: Capture) -> Denoiser:
        if self.context is None:
            return self
        return around_start(self._run, self.context, phases(self._beside(capture)), capture.start)

    @abstractmethod
    def _beside(self, capture: Capture) -> Tensor:
        """(n, beside, H, W): what the network takes beside its input."""

    @abstractmethod
    def _run(self, x: Tensor, sigma: float | Tensor, encoded: Tensor | None) -> Tensor: ...

    def change(self, pictures: Tensor, level: Tensor, encoded: Tensor | None, frames: int = 1) -> Tensor:
        """(n, entering, H, W) -> (n, leaving, H, W); level: sigma as (1, 1, 1, 1) or (n, 1, 1, 1).

        frames: how many consecutive pictures are a video whose blocks exchange features in time; 1: none.
        """
        height, width = pictures.shape[-2:]
        u = self.through_scales(self._entering(pictures, level, encoded), frames)
        return pixel_shuffle(self.leave(u), 2)[..., :height, :width]

    def _entering(self, pictures: Tensor, level: Tensor, encoded: Tensor | None) -> Tensor:
        u: Tensor = self.enter(phases(pictures)) + level * self.noise[:, None, None]
        return u if encoded is None else u + encoded


class Block(nn.Module):
    """u + conv(relu(conv(relu(shifted u)))) on (n, C, H, W), of which each `frames` are a video."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)
        with torch.no_grad():
            self.second.weight.mul_(0.3)

    def forward(self, u: Tensor, frames: int) -> Tensor:
        layers = layers_of((self.first, self.second))
        if fast(layers, u):
            from unsnap.kernels import winograd

            return winograd.residual_block(layers, u, frames)
        return self.plain(u, frames)

    def plain(self, u: Tensor, frames: int) -> Tensor:
        """The definition."""
        out: Tensor = u + self.second(self.first(_shifted(u, frames).relu()).relu_())
        return out

    @torch.no_grad()
    def without_effect(self) -> None:
        """The identity from now on, until it is trained."""
        self.second.weight.zero_()
        self.second.bias.zero_()  # type: ignore[union-attr]


def _blocks(channels: int, count: int) -> nn.ModuleList:
    return nn.ModuleList(Block(channels) for _ in range(count))


def _through(blocks: nn.ModuleList, u: Tensor, frames: int) -> Tensor:
    for block in blocks:
        u = block(u, frames)
    return u


def _joined(u: Tensor, coarser: Tensor) -> Tensor:
    """u and what came back from the next coarser scale; without gradients in the memory of u."""
    fine = pixel_shuffle(coarser, 2)
    return u + fine if torch.is_grad_enabled() else u.add_(fine)


def _shifted(u: Tensor, frames: int) -> Tensor:
    """(n · T, C, H, W) with a quarter of the channels from the frame before and a quarter from the frame after."""
    if frames == 1:
        return u
    shifted, quarter = u.clone(), u.shape[1] // 4  # a copy keeps the order in memory, which concatenation does not
    old, new = (part.view(-1, frames, *u.shape[1:]) for part in (u, shifted))
    new[:, 1:, :quarter] = old[:, :-1, :quarter]
    new[:, :-1, quarter : 2 * quarter] = old[:, 1:, quarter : 2 * quarter]
    return shifted


def phases(x: Tensor) -> Tensor:
    """(n, C, H, W) -> (n, 4C, H/2, W/2), extended to the network's grid by reflection, as convolutions like it."""
    return pixel_unshuffle(extended(x, _GRID), 2).contiguous(memory_format=torch.channels_last)
