r"""Stacks of 3 x 3 convolutions on a CPU, faster than torch's `conv2d`.

For 256×256×8, one thread: 2.7 (FFDNet) and 3.3 times (CNN) with contiguous images, 1.9 and 2.1 with channels-last
ones; a residual block of 24 features 3.4 times, of 48 1.6 times: `python benchmarks/hand_written.py`.

Wide layers: Winograd's $F(4 \times 4, 3 \times 3)$, $Y = A^\top[\sum_c (G k G^\top) \odot (B^\top d B)]A$, 36 products
for 16 pixels instead of 144 (Lavin & Gray, *Fast algorithms for convolutional neural networks*, CVPR 2016). The same
sum, reordered; float32 rounding stays within a few 1e-7 of the result. Narrow layers: one matrix product per row.
Activations are channels-last with a border of zeros; channels are filled up with zeros to multiples of 16 or 24.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from unsnap.kernels import threads
from unsnap.kernels.compiled import compiled
from unsnap.kernels.emit import LANES
from unsnap.kernels.lanes import POINT_A, POINT_B, TILES, gather, product, product_24, spread

Array = npt.NDArray[Any]
LayerWeights = tuple[Tensor, Tensor | None]
Between = tuple[float, float]
"""What values are clipped to between two layers."""
RELU: Between = (0.0, math.inf)
Strip = tuple[int, int, int]
"""Image, first row, row after the last."""
NARROW = 8  # channels up to which a layer is one matrix product
BLOCK = 48  # tiles whose coefficients are multiplied at a time: they stay in the cache
PITCH = 16  # floats between coefficients beyond their block, lest all 36 fall on the same cache lines
STRIP = 1 << 18  # pixels of a large image computed at a time
_A, _B = POINT_A, POINT_B
_NORM_A, _NORM_B = 2 * _A**2 * (_A**2 - _B**2), 2 * _B**2 * (_B**2 - _A**2)
KERNEL_TRANSFORM = np.array(
    [
        [1 / (_A * _B) ** 2, 0, 0],
        [1 / _NORM_A, _A / _NORM_A, _A**2 / _NORM_A],
        [1 / _NORM_A, -_A / _NORM_A, _A**2 / _NORM_A],
        [1 / _NORM_B, _B / _NORM_B, _B**2 / _NORM_B],
        [1 / _NORM_B, -_B / _NORM_B, _B**2 / _NORM_B],
        [0, 0, 1],
    ]
)


def conv_stack(layers: Sequence[LayerWeights], x: Tensor, between: Between = RELU) -> Tensor:
    """3 x 3 convolutions with ReLU (or a clip) between them on images (n, C, H, W), float32, without gradients."""
    images = x.detach().numpy()
    plan = _plan(layers, between, few=True)
    out = np.empty((len(images), plan[-1].outputs, *images.shape[2:]), np.float32)
    _share(plan, len(images), images.shape[2:], partial(_work, plan, images, out))
    return torch.from_numpy(out)


def residual_block(layers: Sequence[LayerWeights], u: Tensor, frames: int) -> Tensor:
    """u + conv(relu(conv(relu(shifted u)))) on channels-last images (n, C, H, W), float32, without gradients.

    shifted: a quarter of the channels comes from the image before and a quarter from the one after, of each `frames`
    images; 1: none does. One pass into and one out of buffers as large as an image, instead of five over all images.
    """
    images = u.detach().permute(0, 2, 3, 1).contiguous().numpy()
    plan = _plan(layers, RELU, few=False)
    out = np.empty_like(images)
    _share(plan, len(images), images.shape[1:3], partial(_work_block, plan, images, frames, out))
    return torch.from_numpy(out).permute(0, 3, 1, 2)


def _share(plan: list[_Layer], count: int, shape: Sequence[int], work: Callable[[list[Strip]], None]) -> None:
    """Images in strips, and these among the threads."""
    height, width = shape
    workers = threads.worker_count(count * height * width * plan[-1].outputs * plan[0].width)
    rows = max(128, 16 * len(plan), STRIP // width)
    strips = threads.bands(height, max(-(-height // rows), -(-workers // count)))
    jobs = [(image, first, stop) for image in range(count) for first, stop in strips]
    shares = [jobs[first:stop] for first, stop in threads.bands(len(jobs), workers)]
    threads.run([partial(work, share) for share in shares], workers)


def _plan(layers: Sequence[LayerWeights], between: Between, *, few: bool) -> list[_Layer]:
    """few: the first may be computed from few inputs, the last to few outputs."""
    end = len(layers) - 1
    after = [between] * end + [(-math.inf, math.inf)]
    return [_Layer(*layer, few and k == 0, few and k == end, after[k]) for k, layer in enumerate(layers)]


class _Layer:
    """A convolution with its weights arranged for the kernel that will compute it."""

    def __init__(self, weight: Tensor, bias: Tensor | None, from_few: bool, to_few: bool, after: Between) -> None:
        kernels = weight.detach().numpy()
        self.outputs, self.inputs = kernels.shape[:2]
        self.width, self.depth = _filled(self.outputs), _filled(self.inputs)
        self.bias = np.zeros(self.width, np.float32)
        if bias is not None:
            self.bias[: self.outputs] = bias.detach().numpy()
        self.floor, self.ceiling = (np.float32(limit) for limit in after)
        narrow = (from_few and self.inputs <= NARROW, to_few and self.outputs <= NARROW)
        self.kind = "inputs" if narrow[0] else "outputs" if narrow[1] else "wide"
        self.weights = _arranged(weight, self.kind)


def _winograd_weights(kernels: Array) -> Array:
    """36 matrices (depth, width) of transformed kernels."""
    outputs, inputs = kernels.shape[:2]
    g = KERNEL_TRANSFORM
    full = np.zeros((36, _filled(inputs), _filled(outputs)))
    turned = np.matmul(g @ kernels.astype(np.float64), g.T).reshape(outputs, inputs, 36)
    full[:, :inputs, :outputs] = turned.transpose(2, 1, 0)
    return _panels(full)


def _input_weights(kernels: Array) -> Array:
    """The kernels as a matrix (9 * inputs, width)."""
    outputs, inputs = kernels.shape[:2]
    full = np.zeros((1, 9 * inputs, _filled(outputs)))
    full[0, :, :outputs] = kernels.transpose(2, 3, 1, 0).reshape(9 * inputs, outputs)
    return _panels(full)


def _output_weights(kernels: Array) -> Array:
    """The kernels as a matrix (depth, 9 * outputs): what every pixel gives to its neighbours."""
    outputs, inputs = kernels.shape[:2]
    full = np.zeros((1, _filled(inputs), _filled(9 * outputs)))
    full[0, :inputs, : 9 * outputs] = kernels.transpose(1, 2, 3, 0).reshape(inputs, 9 * outputs)
    return _panels(full)


# weight -> (its values then, kernel, arranged weights)
_MEMORY: MutableMapping[Tensor, tuple[Tensor, str, Array]] = WeakTensorKeyDictionary()
_ARRANGE = {"wide": _winograd_weights, "inputs": _input_weights, "outputs": _output_weights}


def _filled(channels: int) -> int:
    """Channels with zeros added until products have whole panels of columns."""
    return min(_round_up(channels, panel) for panel in TILES)


def _panels(matrices: Array) -> Array:
    """Each matrix cut in panels of columns as `_multiply` takes them."""
    count, depth, width = matrices.shape
    panel = next(panel for panel in TILES if width % panel == 0)
    cut = matrices.reshape(count, depth, width // panel, panel).transpose(0, 2, 1, 3)
    flat: Array = np.ascontiguousarray(cut, np.float32).reshape(-1)
    return flat


def _round_up(value: int, step: int) -> int:
    return -(-value // step) * step


def _arranged(weight: Tensor, kind: str) -> Array:
    """The arranged weights, remembered as long as the tensor lives and holds the same values."""
    if weight in _MEMORY:
        seen, of_kind, arranged = _MEMORY[weight]
        if of_kind == kind and torch.equal(seen, weight):
            return arranged
    arranged = _ARRANGE[kind](weight.detach().numpy())
    _MEMORY[weight] = (weight.detach().clone(), kind, arranged)
    return arranged


def _work(plan: list[_Layer], images: Array, out: Array, jobs: list[Strip]) -> None:
    for (image, first, stop), top, bottom, buffers in _buffered(plan, images.shape[2:], jobs):
        buffers.inside(buffers.source)[..., : images.shape[1]] = images[image, :, top:bottom].transpose(1, 2, 0)
        out[image, :, first:stop] = buffers.run()[first - top : stop - top].transpose(2, 0, 1)


def _work_block(plan: list[_Layer], images: Array, frames: int, out: Array, jobs: list[Strip]) -> None:
    for (image, first, stop), top, bottom, buffers in _buffered(plan, images.shape[1:3], jobs):
        before, after = image - (image % frames > 0), image + (image % frames < frames - 1)
        _shifted_relu(*(images[k, top:bottom] for k in (before, image, after)), buffers.inside(buffers.source))
        _sum(images[image, first:stop], buffers.run()[first - top : stop - top], out[image, first:stop])


def _buffered(
    plan: list[_Layer], shape: Sequence[int], jobs: list[Strip]
) -> Iterator[tuple[Strip, int, int, _Buffers]]:
    """Strips with the rows to begin and to end with; buffers serve all of equal size: their pages are mapped once."""
    (height, width), buffers = shape, None
    for job in jobs:
        # A strip is an image of its own: each layer spoils one more row at a cut, and those rows are thrown away.
        top, bottom = max(0, job[1] - len(plan)), min(height, job[2] + len(plan))
        if buffers is None or (bottom - top, width) != buffers.shape:
            buffers = _Buffers(plan, bottom - top, width)
        yield job, top, bottom, buffers


class _Buffers:
    """Activations and scratch space for images of one size. The borders are zero and stay so."""

    def __init__(self, plan: list[_Layer], height: int, width: int) -> None:
        self.plan, self.shape = plan, (height, width)
        self.rows, self.columns = _round_up(height, 4) + 2, _round_up(width, 4) + 2
        self.activations: dict[tuple[int, int], Array] = {}
        widest = max(max(layer.width, layer.depth, 9 * layer.inputs * (layer.kind == "inputs")) for layer in plan)
        taps = max(_filled(9 * layer.outputs) * (layer.kind == "outputs") for layer in plan)
        line = _round_up(width, math.lcm(*TILES.values()))
        size = max(36 * (BLOCK * widest + PITCH), line * widest, line * taps)
        self.left, self.right = np.zeros(size, np.float32), np.zeros(size, np.float32)
        self.image = np.zeros((plan[-1].outputs, height, width), np.float32)
        self.source = self._activation(-1, plan[0].inputs if plan[0].kind == "inputs" else plan[0].depth)
        """What the first layer sees, to be filled in."""

    def inside(self, activation: Array) -> Array:
        """The image (H, W, channels) in an activation, without its border."""
        return activation.reshape(self.rows, self.columns, -1)[1 : self.shape[0] + 1, 1 : self.shape[1] + 1]

    def run(self) -> Array:
        """What the layers make of `source`: (H, W, C)."""
        (height, width), source = self.shape, self.source
        for k, layer in enumerate(self.plan):
            if layer.kind == "outputs":
                _to_few(source, self.columns, layer.depth, layer.weights, layer.bias, self.right, self.image)
                return self.image.transpose(1, 2, 0)
            target = self._activation(k % 2, layer.width)
            kernel = _from_few if layer.kind == "inputs" else _wide
            depth = layer.inputs if layer.kind == "inputs" else layer.depth
            kernel(
                source, height, width, depth, layer.weights, layer.bias, layer.floor, layer.ceiling, target, self.left,
                self.right,
            )  # fmt: skip
            source = target
        return self.inside(source)[..., : self.plan[-1].outputs]

    def _activation(self, turn: int, channels: int) -> Array:
        key = (turn, channels)
        if key not in self.activations:
            self.activations[key] = np.zeros(self.rows * self.columns * channels, np.float32)
        return self.activations[key]


@compiled(fastmath=())
def _shifted_relu(before: Array, now: Array, after: Array, out: Array) -> None:
    """max(0, .) of images (H, W, C); the first quarter of the channels from `before`, the second from `after`."""
    height, width, channels = now.shape
    quarter = channels // 4
    for y in range(height):
        for x in range(width):
            for c in range(quarter):
                out[y, x, c] = max(before[y, x, c], np.float32(0))
            for c in range(quarter, 2 * quarter):
                out[y, x, c] = max(after[y, x, c], np.float32(0))
            for c in range(2 * quarter, channels):
                out[y, x, c] = max(now[y, x, c], np.float32(0))


@compiled(fastmath=())
def _sum(a: Array, b: Array, out: Array) -> None:
    height, width, channels = a.shape
    for y in range(height):
        for x in range(width):
            for c in range(channels):
                out[y, x, c] = a[y, x, c] + b[y, x, c]


@compiled(fastmath=(), forceinline=True)
def _multiply(a: Array, at: int, count: int, depth: int, b: Array, bt: int, width: int, c: Array, ct: int) -> None:
    """c[count rows, width] = a[count rows, depth] @ b in panels (`TILES`); some rows more are computed and not used."""
    if width % 16:
        for j in range(width // 24):
            for i in range(0, count, 4):
                product_24(a, at + i * depth, depth, b, bt + 24 * j * depth, depth, c, ct + i * width + 24 * j, width)
    else:
        for j in range(width // 16):
            for i in range(0, count, 6):
                product(a, at + i * depth, depth, b, bt + 16 * j * depth, depth, c, ct + i * width + 16 * j, width)


@compiled(fastmath=())
def _wide(
    source: Array, height: int, tall: int, depth: int, weights: Array, bias: Array, floor: float, ceiling: float,
    target: Array, left: Array, right: Array,
) -> None:  # fmt: skip
    """Winograd: blocks of tiles are transformed, multiplied 36 times, and transformed back."""
    down, across, width = (height + 3) // 4, (tall + 3) // 4, len(bias)
    columns, pitch, stride = 4 * across + 2, BLOCK * depth + PITCH, BLOCK * width + PITCH
    for start in range(0, down * across, BLOCK):
        count = min(BLOCK, down * across - start)
        for i in range(count):
            y, x = (start + i) // across, (start + i) % across
            for c in range(0, depth, LANES):
                place = (4 * y * columns + 4 * x) * depth + c
                spread(source, place, columns * depth, depth, left, i * depth + c, pitch)
        for p in range(36):
            _multiply(left, p * pitch, count, depth, weights, p * depth * width, width, right, p * stride)
        for i in range(count):
            y, x = (start + i) // across, (start + i) % across
            for c in range(0, width, LANES):
                place = ((4 * y + 1) * columns + 4 * x + 1) * width + c
                gather(right, i * width + c, stride, bias, c, floor, ceiling, target, place, columns * width, width)
    _clear_border(target, 4 * down + 2, columns, width, height, tall)


@compiled(fastmath=())
def _clear_border(image: Array, rows: int, columns: int, channels: int, height: int, width: int) -> None:
    """Tiles reach beyond an image whose sides are not multiples of 4; there it must be zero again."""
    for y in range(1, rows - 1):
        first = width + 1 if y <= height else 1
        image[(y * columns + first) * channels : (y + 1) * columns * channels] = 0


@compiled(fastmath=())
def _from_few(
    source: Array, height: int, tall: int, depth: int, weights: Array, bias: Array, floor: float, ceiling: float,
    target: Array, left: Array, right: Array,
) -> None:  # fmt: skip
    """Few inputs: the neighbourhoods of a row as a matrix, times the kernels."""
    width, columns, size = len(bias), 4 * ((tall + 3) // 4) + 2, 9 * depth
    for y in range(height):
        for x in range(tall):
            for k in range(3):
                place = ((y + k) * columns + x) * depth
                near = source[place : place + 3 * depth]
                row = left[x * size + 3 * k * depth : x * size + 3 * (k + 1) * depth]
                for c in range(len(row)):
                    row[c] = near[c]
        _multiply(left, 0, tall, size, weights, 0, width, right, 0)
        for x in range(tall):
            place = ((y + 1) * columns + x + 1) * width
            for c in range(width):
                value = max(right[x * width + c] + bias[c], floor)
                target[place + c] = ceiling if value > ceiling else value


@compiled(fastmath=())
def _to_few(source: Array, columns: int, depth: int, weights: Array, bias: Array, right: Array, image: Array) -> None:
    """Few outputs: what every pixel of a row gives to its neighbours as a product, then the sums."""
    outputs, height, width = image.shape
    taps = len(weights) // depth
    for o in range(outputs):
        image[o] = bias[o]
    for y in range(height):
        _multiply(source, ((y + 1) * columns + 1) * depth, width, depth, weights, 0, taps, right, 0)
        for k in range(9):
            v, shift = y + 1 - k // 3, 1 - k % 3
            if 0 <= v < height:
                for o in range(outputs):
                    line = image[o, v]
                    for x in range(max(0, -shift), min(width, width - shift)):
                        line[x + shift] += right[x * taps + k * outputs + o]
