"""Published weights of others, read safely and turned into our networks' state dicts."""

from __future__ import annotations

import io
import pickle
import struct
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from unsnap.errors import InputError

Shapes = dict[str, tuple[int, ...]]
_WRAPPERS = ("solver_state_dict", "state_dict", "model_state_dict", "params")
_EPS = 1e-5  # torch's default of BatchNorm2d, which all of these networks use
# Everything torch.load was seen to raise on damaged or foreign bytes.
_BROKEN = (
    pickle.UnpicklingError, EOFError, RuntimeError, ValueError, KeyError, IndexError, TypeError, AttributeError,
    AssertionError, OverflowError, MemoryError, struct.error, OSError,
)  # fmt: skip


class Checkpoint(NamedTuple):
    """What `networks.build` and `load_state_dict` need, and what else the file said (JSON-able)."""

    name: str
    settings: dict[str, Any]
    state_dict: dict[str, Tensor]
    facts: dict[str, Any]


@dataclass(frozen=True)
class _Layout:
    """A published arrangement of a stack of convolutions: prefix.index.weight, with BatchNorm after the inner ones."""

    title: str
    name: str
    prefix: str
    ends: tuple[int, int]
    """Channels in and out of the whole stack."""
    bias: bool
    norm: bool
    settings: Callable[[int, int], dict[str, Any]]

    def index(self, k: int) -> int:
        """Position of convolution k in the nn.Sequential: conv, relu, then conv, (norm,) relu, ..."""
        return 2 * k if not self.norm or k == 0 else 3 * k - 1

    def shapes(self, layers: int, channels: int) -> Shapes:
        sizes = [self.ends[0], *[channels] * (layers - 1), self.ends[1]]
        expected: Shapes = {}
        for k in range(layers):
            at = f"{self.prefix}{self.index(k)}"
            expected[f"{at}.weight"] = (sizes[k + 1], sizes[k], 3, 3)
            if self.bias:
                expected[f"{at}.bias"] = (sizes[k + 1],)
            if self.norm and 0 < k < layers - 1:
                follow = f"{self.prefix}{self.index(k) + 1}"
                expected |= {f"{follow}.{part}": (channels,) for part in _NORM}
        return expected


_NORM = ("weight", "bias", "running_mean", "running_var")


def _plain(layers: int, channels: int) -> dict[str, Any]:
    return {"layers": layers, "channels": channels}


_LAYOUTS = (
    _Layout(
        "DE-GAP-CNN (Zhao, Zheng & Yuan 2023)", "cnn", "nonlinear_op.dncnn.", (1, 1), False, False,
        lambda layers, channels: {"layers": layers, "channels": channels, "bias": False},
    ),
    _Layout("DnCNN (KAIR layout)", "dncnn", "model.", (1, 1), True, False, _plain),
    _Layout("DnCNN (classic layout)", "dncnn", "dncnn.", (1, 1), False, True, _plain),
    _Layout(
        "FFDNet (KAIR layout)", "ffdnet", "model.", (5, 4), True, False,
        lambda layers, channels: {"layers": layers, "channels": channels, "layout": "kair"},
    ),
    _Layout(
        "FFDNet (IPOL layout)", "ffdnet", "intermediate_dncnn.itermediate_dncnn.", (5, 4), False, True,
        lambda layers, channels: {"layers": layers, "channels": channels, "layout": "ipol"},
    ),
)  # fmt: skip


def read_checkpoint(path: str | Path) -> Checkpoint:
    """Read a published checkpoint: the paper's DE-GAP denoisers, DnCNN or FFDNet, recognised by their keys.

    Only tensors and plain containers are unpickled (`weights_only=True`). BatchNorm is folded into the convolutions,
    which changes nothing in evaluation; of spectrally normalised layers the normalised weight is taken.
    """
    source = Path(path)
    content = _load(source)
    tensors, spectral = _tensors(source, content)
    layout, layers, channels = _recognise(source, tensors)
    state = _fold(layout, layers, tensors)
    broken = [key for key, value in state.items() if not bool(torch.isfinite(value).all())]
    if broken:
        raise InputError(f"{source}: {broken[0]} holds NaN or Inf; these weights are of no use, get the file again")
    facts = {
        "layout": layout.title,
        "layers": layers,
        "channels": channels,
        "parameters": sum(value.numel() for value in state.values()),
        "batch_norm_folded": layout.norm,
        "real_spectral_norm": spectral,
        "epoch": content["epoch"] if isinstance(content.get("epoch"), int) else None,
    }
    return Checkpoint(layout.name, layout.settings(layers, channels), state, facts)


def _load(source: Path) -> Mapping[str, Any]:
    if not source.is_file():
        raise InputError(f"{source} is not a file; give the path of a checkpoint (.pth, .ckpt)")
    if source.stat().st_size == 0:
        raise InputError(f"{source} is empty; download the checkpoint again")
    try:
        data = io.BytesIO(source.read_bytes())
    except OSError as error:
        raise InputError(f"{source} cannot be read ({error.strerror or error})") from error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            content = torch.load(data, map_location="cpu", weights_only=True)
    except _BROKEN as error:
        if "Unsupported global" in str(error) or "Unsupported class" in str(error):
            raise InputError(
                f"{source} holds more than weights: unpickling it would run foreign code, which unsnap never does; "
                "ask its authors for the state dict alone"
            ) from error
        raise InputError(f"{source} is damaged or not a PyTorch checkpoint; download it again") from error
    if not isinstance(content, Mapping):
        raise InputError(f"{source} must hold a dictionary of weights, found {type(content).__name__}")
    return content


def _tensors(source: Path, content: Mapping[str, Any]) -> tuple[dict[str, Tensor], bool]:
    """The file's floating-point tensors without wrappers and bookkeeping; whether spectral norms were among them."""
    inner = next((content[key] for key in _WRAPPERS if isinstance(content.get(key), Mapping)), content)
    found = {
        str(key).removeprefix("module."): value
        for key, value in inner.items()
        if isinstance(value, Tensor) and value.is_floating_point()
    }
    if not found:
        raise InputError(f"{source} holds no weights: none of its {len(inner)} entries is a floating-point tensor")
    kept = {key: value for key, value in found.items() if not key.endswith(("weight_orig", "weight_u", "weight_v"))}
    return kept, len(kept) < len(found)


def _recognise(source: Path, tensors: dict[str, Tensor]) -> tuple[_Layout, int, int]:
    kernels = [value for value in tensors.values() if value.ndim == 4]
    layers, channels = max(len(kernels), 2), int(kernels[0].shape[0]) if kernels else 64
    shapes = {key: tuple(value.shape) for key, value in tensors.items()}
    differences = [(_differences(layout.shapes(layers, channels), shapes), layout) for layout in _LAYOUTS]
    nearest, layout = min(differences, key=lambda pair: len(pair[0]))
    if nearest:
        listed = "; ".join(nearest[:3]) + (f"; and {len(nearest) - 3} more" if len(nearest) > 3 else "")
        raise InputError(
            f"{source} is not a checkpoint unsnap knows; the nearest layout is {layout.title}, but {listed}"
        )
    return layout, layers, channels


def _differences(expected: Shapes, found: Shapes) -> list[str]:
    missing = [f"{key} is missing" for key in expected if key not in found]
    shaped = [
        f"{key} is {shape} instead of {expected[key]}"
        for key, shape in found.items()
        if key in expected and shape != expected[key]
    ]
    surplus = [f"{key} is not part of it" for key in found if key not in expected]
    return shaped + missing + surplus


def _fold(layout: _Layout, layers: int, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Our state dict: convolutions, each followed in the file by nothing or by a BatchNorm y = a·conv + c."""
    state: dict[str, Tensor] = {}
    for k in range(layers):
        at, follow = f"{layout.prefix}{layout.index(k)}", f"{layout.prefix}{layout.index(k) + 1}"
        weight = tensors[f"{at}.weight"].double()
        bias = tensors.get(f"{at}.bias", torch.zeros(len(weight))).double()
        if f"{follow}.running_var" in tensors:
            scale, shift, mean, variance = (tensors[f"{follow}.{part}"].double() for part in _NORM)
            gain = scale / (variance + _EPS).sqrt()
            weight, bias = weight * gain.reshape(-1, 1, 1, 1), shift + gain * (bias - mean)
        state[f"convs.{k}.weight"] = weight.float().contiguous()
        if layout.name != "cnn":
            state[f"convs.{k}.bias"] = bias.float().contiguous()
    return state
