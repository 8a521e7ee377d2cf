"""Measurements put aside: a model that was not trained on them is judged by how well it predicts them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from unsnap.errors import InputError
from unsnap.operators import Snapshot
from unsnap.scene import Scene

STOP, JUDGE = 0.05, 0.1
"""Fractions of the measured pixels that decide when to stop, and whether it helped."""
SPLITS = 4
"""The judging pixels are predicted in so many parts, each from all pixels but its own."""
LEAST_PIXELS, LEAST_SIDE = 1000, 16
_WINDOW = 128
_VALIDATED = 256 * 256  # pixels at most that are validated on again and again


class Hidden(NamedTuple):
    """Measurements y (B, H, W) through masks (B, T, H, W), of which only those where `used` (B, H, W) is 1 count."""

    y: Tensor
    masks: Tensor
    used: Tensor

    @property
    def visible(self) -> tuple[Tensor, Snapshot]:
        """What a model is given: where it may not look, nothing was measured."""
        return self.y * self.used, Snapshot(self.masks * self.used.unsqueeze(-3))

    def misfit(self, x: Tensor) -> Tensor:
        """Φx − y (B, H, W) of a video x, at all pixels."""
        return Snapshot(self.masks).A(x) - self.y

    def loss(self, x: Tensor, asked: Tensor, scale: Tensor) -> Tensor:
        """Mean over samples of the RMS of Φx − y over the pixels that are asked for, in units of `scale`."""
        error = asked * (self.misfit(x) / scale).square()
        return (error.sum((-2, -1)) / asked.sum((-2, -1)).clamp(min=1) + 1e-12).sqrt().mean()


@dataclass(frozen=True)
class HeldOut:
    """A capture, the pixels that decide when to stop, and those that decide whether it helped.

    y, stop, judge: (N, H, W), `stop` as 0/1, `judge` the number of its split, 1 to SPLITS, or 0; masks: (N, T, H, W);
    truth like masks, or None.
    """

    y: Tensor
    masks: Tensor
    stop: Tensor
    judge: Tensor
    truth: Tensor | None = None

    @property
    def used(self) -> Tensor:
        """1 where training may use the measurement."""
        return (1 - self.stop) * (self.judge == 0)

    @property
    def hidden(self) -> Hidden:
        return Hidden(self.y, self.masks, self.used)

    def to(self, device: torch.device) -> HeldOut:
        return self._each(lambda part: part.to(device))

    def split(self, number: int) -> tuple[Tensor, Snapshot]:
        """What a model is given to predict this part of the judging pixels: everything else."""
        return self.hidden._replace(used=(self.judge != number).to(self.y)).visible

    def relative(self, x: Tensor) -> float:
        """RMS of Φx − y over the pixels that decide when to stop, relative to the RMS of y there."""
        error = (self.stop * self.hidden.misfit(x).square()).sum(dtype=torch.float64)
        return float((error / (self.stop * self.y.square()).sum(dtype=torch.float64)).sqrt())

    def squared_errors(self, videos: Sequence[Tensor]) -> Tensor:
        """(SPLITS, N, H, W): (Φx − y)² of every judging pixel in the video that was found without its split."""
        each = [(self.judge == k) * self.hidden.misfit(x).square() for k, x in enumerate(videos, 1)]
        return torch.stack(each).double()

    def views(self) -> HeldOut:
        """Windows of up to 128 x 128, 65,536 pixels at most, spread evenly over snapshots and pixels, as snapshots."""
        places = list(_places(*self.y.shape))
        height, width = (min(_WINDOW, n) for n in self.y.shape[-2:])
        few = min(len(places), _VALIDATED // (height * width))
        chosen = [places[round(k * (len(places) - 1) / max(1, few - 1))] for k in range(few)]
        return self._each(_cutter(chosen, height, width))

    def crops(self, count: int, side: int, share: float, generator: torch.Generator) -> tuple[Hidden, Tensor]:
        """Random crops with a further share of their pixels hidden, and which these are: the ones to learn from."""
        height, width = min(side, self.y.shape[-2]), min(side, self.y.shape[-1])
        limits = (len(self.y), self.y.shape[-2] - height + 1, self.y.shape[-1] - width + 1)
        places = [tuple(int(torch.randint(n, (), generator=generator)) for n in limits) for _ in range(count)]
        cut = _cutter(places, height, width)
        kept = (torch.rand(count, height, width, generator=generator) >= share).to(self.y)
        used = cut(self.used)
        return Hidden(cut(self.y), cut(self.masks), used * kept), used * (1 - kept)

    def _each(self, change: Callable[[Tensor], Tensor]) -> HeldOut:
        truth = None if self.truth is None else change(self.truth)
        return HeldOut(change(self.y), change(self.masks), change(self.stop), change(self.judge), truth)


def hold_out(scene: Scene, generator: torch.Generator) -> HeldOut:
    """Put aside two random sets of the pixels that measure something: 5 % to stop by, 10 % to judge by, in 4 splits."""
    if type(scene.operator) is not Snapshot:  # a mosaic is one, too, and is reconstructed plane by plane
        raise InputError(f"a model is adapted to single snapshots, not to a {scene.camera}; use it as it is")
    y, masks = scene.measurement, scene.operator.masks.expand(scene.snapshots, *scene.masks.shape[-3:])
    if not bool(torch.isfinite(y).all()):
        raise InputError("the measurement must be finite, got NaN or infinite values; replace them, for example by 0")
    measured = Snapshot(masks).energy > 0
    count, sides = int(measured.sum()), tuple(y.shape[-2:])
    if count < LEAST_PIXELS or min(sides) < LEAST_SIDE:
        raise InputError(
            f"a capture to adapt to must have at least {LEAST_PIXELS} measured pixels and sides of {LEAST_SIDE}, got "
            f"{count} in {scene.snapshots} of {sides[0]}×{sides[1]}; use more snapshots or the model as it is"
        )
    lot = torch.rand(y.shape, generator=generator)
    stop, judge = measured & (lot < STOP), measured & (lot >= STOP) & (lot < STOP + JUDGE)
    number = judge * (1 + ((lot - STOP) / JUDGE * SPLITS).floor().clamp(0, SPLITS - 1))
    if not (bool((stop * y).any()) and bool((judge * y).any())):
        raise InputError("the capture is black (every measurement put aside is 0), so there is nothing to adapt to")
    truth = scene.truth if scene.truth is not None and len(scene.truth) == len(y) else None
    return HeldOut(y, masks, stop.to(y), number.to(y), truth)


def _places(count: int, height: int, width: int) -> list[tuple[int, int, int]]:
    """Every window's snapshot, top and left: as many as fit side by side, spread out to the borders."""
    return [(n, top, left) for n in range(count) for top in _spread(height) for left in _spread(width)]


def _spread(side: int) -> list[int]:
    count = side // _WINDOW
    return [round(k * (side - _WINDOW) / max(1, count - 1)) for k in range(count)] or [0]


def _cutter(places: Sequence[tuple[int, ...]], height: int, width: int) -> Callable[[Tensor], Tensor]:
    return lambda whole: torch.stack([whole[n, ..., i : i + height, j : j + width] for n, i, j in places])
