"""How published checkpoints name and shape their convolutions, and where each belongs in our networks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Shapes = dict[str, tuple[int, ...]]
_NORM = ("weight", "bias", "running_mean", "running_var")
_EPS = 1e-5  # torch's default of BatchNorm2d, which all of these networks use


@dataclass(frozen=True)
class Conv:
    """A convolution of a published network, and the BatchNorm after it, if any."""

    target: str
    """Its name in our network."""
    source: str
    norm: str | None
    shape: tuple[int, ...]
    bias: bool
    scaled: bool = False
    """The BatchNorm only divides by its deviation and multiplies: its means and shifts are in the file and unused."""

    def shapes(self) -> Shapes:
        """What a file must hold of it."""
        expected: Shapes = {f"{self.source}.weight": self.shape}
        if self.bias:
            expected[f"{self.source}.bias"] = self.shape[:1]
        if self.norm is not None:
            expected |= {f"{self.norm}.{part}": self.shape[:1] for part in _NORM}
        return expected

    def folded(self, tensors: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Weight and bias of convolution and BatchNorm y = a·conv + c in one."""
        weight = tensors[f"{self.source}.weight"].double()
        bias = tensors.get(f"{self.source}.bias", torch.zeros(len(weight))).double()
        if self.norm is not None:
            scale, shift, mean, variance = (tensors[f"{self.norm}.{part}"].double() for part in _NORM)
            if self.scaled:
                return (
                    weight * (scale / (variance.sqrt() + _EPS)).reshape(-1, 1, 1, 1)
                ).float().contiguous(), bias.float()
            gain = scale / (variance + _EPS).sqrt()
            weight, bias = weight * gain.reshape(-1, 1, 1, 1), shift + gain * (bias - mean)
        return weight.float().contiguous(), bias.float().contiguous()


@dataclass(frozen=True)
class Published:
    """A published denoiser: its convolutions, and how to build ours."""

    title: str
    name: str
    settings: dict[str, Any]
    convs: list[Conv]
    has_bias: bool = True
    """Do our convolutions have biases?"""

    stages = ("",)
    """Where the networks of a model begin in the file's keys: a denoiser is one, and is all of it."""

    def facts(self) -> dict[str, Any]:
        return {
            "layers": len(self.convs),
            "channels": max(conv.shape[0] for conv in self.convs),
            "batch_norm_folded": any(conv.norm is not None for conv in self.convs),
        }

    def shapes(self) -> Shapes:
        return {key: shape for conv in self.convs for key, shape in conv.shapes().items()}

    def state(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Our state dict."""
        state: dict[str, Tensor] = {}
        for conv in self.convs:
            state[f"{conv.target}.weight"], bias = conv.folded(tensors)
            if self.has_bias:
                state[f"{conv.target}.bias"] = bias
        return state


def candidates(shapes: Shapes) -> list[Published]:
    """Every published layout, in the depth and width that a file of these shapes would have."""
    kernels = [shape for shape in shapes.values() if len(shape) == 4]
    layers, channels = max(len(kernels), 2), kernels[0][0] if kernels else 64
    plain: dict[str, Any] = {"layers": layers, "channels": channels}
    ipol = "intermediate_dncnn.itermediate_dncnn."
    return [
        Published(
            "DE-GAP-CNN (Zhao, Zheng & Yuan 2023)", "cnn", {**plain, "bias": False},
            _stack("nonlinear_op.dncnn.", (1, 1), layers, channels), has_bias=False,
        ),
        Published("DnCNN (KAIR layout)", "dncnn", plain, _stack("model.", (1, 1), layers, channels, bias=True)),
        Published("DnCNN (classic layout)", "dncnn", plain, _stack("dncnn.", (1, 1), layers, channels, norm=True)),
        Published(
            "FFDNet (KAIR layout)", "ffdnet", {**plain, "layout": "kair"},
            _stack("model.", (5, 4), layers, channels, bias=True),
        ),
        Published(
            "FFDNet (IPOL layout)", "ffdnet", {**plain, "layout": "ipol"},
            _stack(ipol, (5, 4), layers, channels, norm=True),
        ),
        _fastdvdnet(shapes),
        Published(
            "bias-free DnCNN (Mohan et al. 2020)", "cnn", {**plain, "bias": False},
            _bias_free_stack(layers, channels), has_bias=False,
        ),
        Published("bias-free U-net (Mohan et al. 2020)", "bias_free_unet", {}, _bias_free_unet(), has_bias=False),
    ]  # fmt: skip


def _bias_free_stack(layers: int, channels: int) -> list[Conv]:
    ends = [Conv("convs.0", "model.0.first_layer", None, (channels, 1, 3, 3), False)]
    for k in range(layers - 2):
        names = f"model.0.hidden_layer_list.{k}", f"model.0.bn_layer_list.{k}"
        ends.append(Conv(f"convs.{k + 1}", *names, (channels, channels, 3, 3), False, scaled=True))
    return [*ends, Conv(f"convs.{layers - 1}", "model.0.last_layer", None, (1, channels, 3, 3), False)]


def _bias_free_unet() -> list[Conv]:
    sizes = [(32, 1, 5), (32, 32, 3), (64, 32, 3), *[(64, 64, 3)] * 3, (64, 64, 4), (32, 96, 3), (1, 32, 5)]
    return [Conv(f"conv{k}", f"model.0.conv{k}", None, (a, b, n, n), False) for k, (a, b, n) in enumerate(sizes, 1)]


def _stack(
    prefix: str, ends: tuple[int, int], layers: int, channels: int, *, bias: bool = False, norm: bool = False
) -> list[Conv]:
    """An nn.Sequential: convolution, ReLU, then convolution, (BatchNorm,) ReLU, ..., convolution."""
    sizes = [ends[0], *[channels] * (layers - 1), ends[1]]
    found = []
    for k in range(layers):
        index = 2 * k if not norm or k == 0 else 3 * k - 1
        follow = f"{prefix}{index + 1}" if norm and 0 < k < layers - 1 else None
        found.append(Conv(f"convs.{k}", f"{prefix}{index}", follow, (sizes[k + 1], sizes[k], 3, 3), bias))
    return found


def _fastdvdnet(shapes: Shapes) -> Published:
    """Tassano's two blocks; grey or colour, and with biases as in his first release or without."""
    colours = 3 if shapes.get("temp1.outc.convblock.3.weight", ())[:1] == (3,) else 1
    bias = "temp1.inc.convblock.0.bias" in shapes
    convs = [conv for stage in ("temp1", "temp2") for conv in _den_block(stage, colours, bias)]
    return Published("FastDVDnet (Tassano, Delon & Veit 2020)", "fastdvdnet", {"colours": colours}, convs)


def _den_block(stage: str, colours: int, bias: bool) -> list[Conv]:
    def conv(at: str, source: str, norm: str | None, outputs: int, inputs: int) -> Conv:
        part, index = at.split(".")
        inside = f"{stage}.{part}.convblock."
        follow = None if norm is None else inside + norm
        return Conv(f"{stage}.{part}.{index}", inside + source, follow, (outputs, inputs, 3, 3), bias)

    def down(part: str, inputs: int, outputs: int) -> list[Conv]:
        return [
            conv(f"{part}.0", "0", "1", outputs, inputs),
            conv(f"{part}.1", "3.convblock.0", "3.convblock.1", outputs, outputs),
            conv(f"{part}.2", "3.convblock.3", "3.convblock.4", outputs, outputs),
        ]

    def up(part: str, inputs: int, outputs: int) -> list[Conv]:
        return [
            conv(f"{part}.0", "0.convblock.0", "0.convblock.1", inputs, inputs),
            conv(f"{part}.1", "0.convblock.3", "0.convblock.4", inputs, inputs),
            conv(f"{part}.2", "1", None, 4 * outputs, inputs),
        ]

    return [
        # Three groups, a frame and a map of sigma each.
        conv("inc.0", "0", "1", 90, colours + 1),
        conv("inc.1", "3", "4", 32, 90),
        *down("downc0", 32, 64),
        *down("downc1", 64, 128),
        *up("upc2", 128, 64),
        *up("upc1", 64, 32),
        conv("outc.0", "0", "1", 32, 32),
        conv("outc.1", "3", None, colours, 32),
    ]
