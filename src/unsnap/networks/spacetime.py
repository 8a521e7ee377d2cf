"""Convolutions over time and space for videos kept as frames (n · T, C, H, W)."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import conv2d, pad


class SpaceTimeConv(nn.Conv3d):
    """nn.Conv3d on frames, zero beyond the first and the last: `conv(u, frames)`.

    One two-dimensional convolution for each moment of the kernel, which on a CPU is ten times as fast as torch's own
    (`python benchmarks/hand_written.py`); weights and names in a file are those of nn.Conv3d.
    """

    def __init__(self, inputs: int, outputs: int, size: int | tuple[int, int, int], stride: int = 1) -> None:
        sizes = (size, size, size) if isinstance(size, int) else size
        t, h, w = sizes
        super().__init__(inputs, outputs, sizes, (1, stride, stride), (t // 2, h // 2, w // 2))

    def forward(self, u: Tensor, frames: int = 1) -> Tensor:
        if u.is_meta:  # shapes alone: torch's own, whose operations are counted as everybody counts them
            return super().forward(u.reshape(-1, frames, *u.shape[1:]).transpose(1, 2)).transpose(1, 2).flatten(0, 1)
        taps = self.weight.unbind(2)
        middle = len(taps) // 2
        out = self._flat(u, taps[middle], self.bias)
        if frames == 1:
            return out
        videos, outs = u.reshape(-1, frames, *u.shape[1:]), out.view(-1, frames, *out.shape[1:])
        for k, tap in enumerate(taps):
            shift = k - middle  # frame t of the result takes frame t + shift
            if shift == 0 or abs(shift) >= frames:
                continue
            taken = videos[:, shift:] if shift > 0 else videos[:, :shift]
            given = outs[:, :-shift] if shift > 0 else outs[:, -shift:]
            given += self._flat(taken.flatten(0, 1), tap, None).reshape(given.shape)
        return out

    def _flat(self, u: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return conv2d(u, weight, bias, (self.stride[1], self.stride[2]), (int(self.padding[1]), int(self.padding[2])))


class Layers(nn.Sequential):
    """nn.Sequential whose convolutions in space-time are told the number of frames."""

    def forward(self, u: Tensor, frames: int = 1) -> Tensor:
        for layer in self:
            u = layer(u, frames) if isinstance(layer, SpaceTimeConv) else layer(u)
        return u


def extended(x: Tensor, multiple: int) -> Tensor:
    """Height and width as multiples of a number: reflected where there is enough to reflect, else repeated."""
    right, down = -x.shape[-1] % multiple, -x.shape[-2] % multiple
    if not (right or down):
        return x
    enough = x.shape[-1] > right and x.shape[-2] > down
    frames = x.reshape(-1, 1, *x.shape[-2:])
    more = pad(frames, (0, right, 0, down), mode="reflect" if enough else "replicate")
    return more.reshape(*x.shape[:-2], *more.shape[-2:])
