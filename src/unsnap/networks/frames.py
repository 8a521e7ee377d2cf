"""Videos as batches of frames, and two-dimensional networks run over them at the speed of the machine."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, hardtanh

from unsnap.kernels.dispatch import usable

Layer = tuple[Tensor, Tensor | None]
"""Weight (out, in, 3, 3) and bias (out,) of a convolution."""


def frames_of(x: Tensor) -> Tensor:
    """(..., T, H, W) -> (n, 1, H, W), every frame an image of one channel."""
    if x.ndim < 3:
        raise ValueError(f"a video must have the axes (..., T, H, W), got shape {tuple(x.shape)}")
    return x.reshape(-1, 1, *x.shape[-2:])


def sigma_of(sigma: float | Tensor, x: Tensor) -> Tensor:
    """sigma (a number, or one per leading axis of x) as one value per frame of x: (n, 1, 1, 1)."""
    count, value = math.prod(x.shape[:-2]), per_sample(sigma, x)
    return value.expand(count, 1, 1, 1) if len(value) == 1 else value.repeat_interleave(x.shape[-3], 0)


def per_sample(sigma: float | Tensor, x: Tensor) -> Tensor:
    """sigma as (1, 1, 1, 1), or one for each sample of x as (n, 1, 1, 1)."""
    value = torch.as_tensor(sigma, dtype=x.dtype, device=x.device)
    if value.numel() != 1 and value.shape != x.shape[:-3]:
        raise ValueError(
            f"sigma must be one number, or one per sample {tuple(x.shape[:-3])}, got shape {tuple(value.shape)}"
        )
    return value.reshape(-1, 1, 1, 1)


def per_frame(net: Callable[[Tensor], Tensor], x: Tensor, chunk: int | None = None) -> Tensor:
    """Apply a network (n, C, H, W) -> (n, C', H, W) that treats images separately, `chunk` of them at a time.

    By default as many as make up a 256 x 256 image: larger activations only wait for memory (measured 1.5 times
    slower on a CPU for eight such images at once, with and without gradients).
    """
    if torch.compiler.is_compiling():
        return net(x)
    chunk = chunk or max(1, (1 << 16) // max(1, x.shape[-2] * x.shape[-1]))
    if len(x) <= chunk:
        return net(x)
    return torch.cat([net(x[k : k + chunk]) for k in range(0, len(x), chunk)])


def convolutions(sizes: Sequence[int], *, bias: bool) -> nn.ModuleList:
    """3 x 3 convolutions sizes[0] -> sizes[1] -> ... that keep height and width (zero padding)."""
    return nn.ModuleList(nn.Conv2d(a, b, 3, padding=1, bias=bias) for a, b in pairwise(sizes))


def layers_of(convs: Iterable[nn.Module]) -> list[Layer]:
    """Weights and biases of `convolutions`."""
    return [(conv.weight, conv.bias) for conv in convs if isinstance(conv, nn.Conv2d)]


RELU = (0.0, math.inf)


def conv_stack(layers: Sequence[Layer], x: Tensor, between: tuple[float, float] = RELU) -> Tensor:
    """3 x 3 convolutions on images (n, C, H, W) with ReLU between them, or a clip to the two values."""
    if fast(layers, x):
        from unsnap.kernels import winograd

        return winograd.conv_stack(layers, x, between)
    return per_frame(lambda z: plain_stack(layers, z, between), x)


def clipped(x: Tensor, between: tuple[float, float]) -> Tensor:
    """x clipped to two values, of which `RELU` leaves out the upper one."""
    return x.relu() if between == RELU else hardtanh(x, *between)


def fast(layers: Sequence[Layer], x: Tensor) -> bool:
    """May the kernels of `kernels/winograd.py` compute these convolutions of x?"""
    tensors = [t for layer in layers for t in layer if t is not None]
    return x.dtype == torch.float32 and x.numel() > 0 and usable(x, *tensors)


def plain_stack(layers: Sequence[Layer], x: Tensor, between: tuple[float, float] = RELU) -> Tensor:
    """The definition of `conv_stack`."""
    for weight, bias in layers[:-1]:
        x = clipped(conv2d(x, weight, bias, padding=1), between)
    weight, bias = layers[-1]
    return conv2d(x, weight, bias, padding=1)
