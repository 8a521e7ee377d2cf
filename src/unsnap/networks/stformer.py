r"""STFormer: Wang, Cao, Zhong & Yuan, *Spatial-temporal transformer for video snapshot compressive imaging*, 2023.

End to end, from the least-squares video: attention inside windows of 7 x 7 pixels (every second layer shifts them) and,
beside it, over all frames of a pixel, then convolutions in space-time. Attributes are called as in the authors' files.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from unsnap.errors import InputError
from unsnap.networks.settings import whole
from unsnap.networks.spacetime import Layers, SpaceTimeConv, extended

WINDOW = 7
_HEADS = 4


class STFormer(nn.Module):
    """x (..., T, H, W) -> (..., T, H, W), any T, H and W; sigma is not used.

    width: a quarter of the features (16: the paper's S, 64: B); frames: the longest distance in time that has a
    position of its own, farther ones share the last.
    """

    def __init__(self, width: int = 16, layers: int = 4, frames: int = 8) -> None:
        super().__init__()
        whole("STFormer", width=width, layers=layers, frames=frames)
        self.settings: dict[str, Any] = {"width": width, "layers": layers, "frames": frames}
        self.token_gen = Layers(
            SpaceTimeConv(1, width, 5), nn.LeakyReLU(),
            SpaceTimeConv(width, 2 * width, 1), nn.LeakyReLU(),
            SpaceTimeConv(2 * width, 2 * width, 3), nn.LeakyReLU(),
            SpaceTimeConv(2 * width, 4 * width, 3, stride=2), nn.LeakyReLU(),
            SpaceTimeConv(4 * width, 4 * width, 1), nn.LeakyReLU(),
        )  # fmt: skip
        self.layers = nn.ModuleList(_Layer(4 * width, frames) for _ in range(layers))
        self.conv2 = Layers(
            _Enlarge(4 * width, 2 * width), nn.LeakyReLU(),
            SpaceTimeConv(2 * width, 2 * width, 3), nn.LeakyReLU(),
            SpaceTimeConv(2 * width, width, 1), nn.LeakyReLU(),
            SpaceTimeConv(width, 1, 3),
        )  # fmt: skip

    def forward(self, x: Tensor, sigma: float | Tensor = 0.0) -> Tensor:
        frames, (height, width) = x.shape[-3], x.shape[-2:]
        u: Tensor = self.token_gen(extended(x, 2).flatten(0, -3).unsqueeze(1), frames)
        u = u.movedim(1, -1)
        for layer in self.layers:
            u = layer(u, frames)
        out: Tensor = self.conv2(u.movedim(-1, 1), frames)
        return out[..., :height, :width].reshape(x.shape)


class _Enlarge(nn.ConvTranspose3d):
    """Twice the height and width, frame by frame."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, (1, 3, 3), (1, 2, 2), (0, 1, 1), (0, 1, 1))

    def forward(self, u: Tensor) -> Tensor:  # type: ignore[override]
        return nn.functional.conv_transpose2d(
            u, self.weight.squeeze(2), self.bias, stride=2, padding=1, output_padding=1
        )


class _Layer(nn.Module):
    """Two blocks, the second with windows shifted by half."""

    def __init__(self, features: int, frames: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(_Block(features, frames, shift) for shift in (0, WINDOW // 2))

    def forward(self, u: Tensor, frames: int) -> Tensor:
        for block in self.blocks:
            u = block(u, frames)
        return u


class _Block(nn.Module):
    def __init__(self, features: int, frames: int, shift: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(features), nn.LayerNorm(features)
        self.attn = WindowAttention(features, shift)
        self.time_attn = TimeAttention(features, _HEADS, bias=True, frames=frames)
        self.ff = _FeedForward(features // 2)

    def forward(self, u: Tensor, frames: int) -> Tensor:
        """u: (n · T, H, W, features)."""
        tokens = self.norm1(u)
        u = u + self.time_attn(tokens, frames) + self.attn(tokens)
        out: Tensor = u + self.ff(self.norm2(u).movedim(-1, 1), frames).movedim(1, -1)
        return out


class _FeedForward(nn.Module):
    """Two halves of the features; the second sees what became of the first."""

    def __init__(self, half: int) -> None:
        super().__init__()
        self.part1, self.part2 = (
            Layers(SpaceTimeConv(half, half, 3), nn.LeakyReLU(), SpaceTimeConv(half, half, 3)) for _ in range(2)
        )

    def forward(self, u: Tensor, frames: int) -> Tensor:
        first, second = u.chunk(2, 1)
        first = first + self.part1(first, frames)
        second = second + first
        return torch.cat([first, second + self.part2(second, frames)], 1)


def _attend(qkv: Tensor, heads: int, scale: float, bias: Tensor | None) -> Tensor:
    """(n, tokens, 3 C) -> (n, tokens, C); bias: (..., heads, tokens, tokens), its leading axes a divisor of n."""
    count, tokens, size = qkv.shape
    q, k, v = qkv.reshape(count, tokens, 3, heads, size // (3 * heads)).permute(2, 0, 3, 1, 4)
    scores = (scale * q) @ k.transpose(-2, -1)
    if bias is not None:
        scores = (scores.reshape(-1, len(bias), *scores.shape[1:]) + bias).flatten(0, 1)
    out: Tensor = (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
    return out


class TimeAttention(nn.Module):
    """Every pixel attends to itself in all frames, with half of the features; u (n · T, H, W, C).

    frames: None, or how far apart frames can be to have a position of their own.
    """

    def __init__(self, features: int, heads: int, bias: bool, frames: int | None = None) -> None:
        super().__init__()
        if features % (2 * heads):
            raise InputError(
                f"{heads} heads share half of {2 * heads}, {4 * heads} … features, got {features}; widen it"
            )
        self.heads, self.scale = heads, (features // heads) ** -0.5
        self.qkv = nn.Linear(features, 3 * (features // 2), bias=bias)
        self.proj = nn.Linear(features // 2, features)
        table = None if frames is None else nn.Parameter(torch.zeros(2 * frames - 1, heads))
        self.relative_position_bias_table: nn.Parameter | None = table

    def forward(self, u: Tensor, frames: int) -> Tensor:
        tokens = u.reshape(-1, frames, *u.shape[1:]).permute(0, 2, 3, 1, 4)  # (n, H, W, T, C)
        out: Tensor = self.proj(_attend(self.qkv(tokens).flatten(0, 2), self.heads, self.scale, self._bias(frames)))
        return out.reshape(tokens.shape).permute(0, 3, 1, 2, 4).flatten(0, 1)

    def _bias(self, frames: int) -> Tensor | None:
        table = self.relative_position_bias_table
        if table is None:
            return None
        reach = len(table) // 2
        moments = torch.arange(frames, device=table.device)
        apart = (moments[:, None] - moments).clamp(-reach, reach) + reach
        return table[apart].permute(2, 0, 1).unsqueeze(0)


class WindowAttention(nn.Module):
    """Attention inside windows of 7 x 7 tokens, which `shift` moves around cyclically; u (n, H, W, C)."""

    def __init__(self, features: int, shift: int) -> None:
        super().__init__()
        self.shift, self.scale = shift, (features // _HEADS) ** -0.5
        self.relative_position_bias_table = nn.Parameter(torch.empty((2 * WINDOW - 1) ** 2, _HEADS))
        nn.init.trunc_normal_(self.relative_position_bias_table, std=0.02)
        self.qkv = nn.Linear(features, 3 * features)
        self.proj = nn.Linear(features, features)

    def forward(self, u: Tensor) -> Tensor:
        height, width = u.shape[1:3]
        # A side no longer than a window is one window, and is not shifted.
        sides = [min(WINDOW, height), min(WINDOW, width)]
        shifts = [self.shift if size > WINDOW else 0 for size in (height, width)]
        u = pad(u, (0, 0, 0, -width % sides[1], 0, -height % sides[0]))
        rolled = u.roll([-shift for shift in shifts], (1, 2)) if any(shifts) else u
        tokens = _partition(rolled, sides)
        out = self.proj(_attend(self.qkv(tokens), _HEADS, self.scale, self._bias(u, sides, shifts)))
        rows, columns = u.shape[1] // sides[0], u.shape[2] // sides[1]
        out = out.reshape(-1, rows, columns, *sides, u.shape[3]).transpose(2, 3).reshape(u.shape)
        if any(shifts):
            out = out.roll(shifts, (1, 2))
        return out[:, :height, :width]  # type: ignore[no-any-return]

    def _bias(self, u: Tensor, sides: list[int], shifts: list[int]) -> Tensor:
        """Where tokens are to each other; those that only meet because the picture was rolled do not attend."""
        # The authors number the tokens of a smaller window as the first of a full one.
        place = torch.stack(torch.meshgrid(*[torch.arange(WINDOW, device=u.device)] * 2, indexing="ij")).flatten(1)
        place = place[:, : sides[0] * sides[1]]
        apart = place[:, :, None] - place[:, None] + WINDOW - 1
        bias = self.relative_position_bias_table[apart[0] * (2 * WINDOW - 1) + apart[1]].permute(2, 0, 1).unsqueeze(0)
        if not any(shifts):
            return bias
        parts = [_part(n, side, shift).to(u.device) for n, side, shift in zip(u.shape[1:3], sides, shifts, strict=True)]
        region = (3 * parts[0][:, None] + parts[1]).reshape(1, *u.shape[1:3], 1)
        here = _partition(region, sides).squeeze(-1)
        return bias + torch.where(here[:, :, None] == here[:, None], 0.0, -100.0).to(u.dtype).unsqueeze(1)


def _part(length: int, side: int, shift: int) -> Tensor:
    """0 for what no roll has moved, 1 and 2 for the two ends that share the last window."""
    at = torch.arange(length)
    return (at >= length - side).long() + (at >= length - shift) if shift else torch.zeros(length, dtype=torch.long)


def _partition(u: Tensor, sides: list[int]) -> Tensor:
    """(n, H, W, C) -> (n · windows, tokens, C)."""
    count, height, width, size = u.shape
    cut = u.reshape(count, height // sides[0], sides[0], width // sides[1], sides[1], size)
    return cut.transpose(2, 3).reshape(-1, sides[0] * sides[1], size)
