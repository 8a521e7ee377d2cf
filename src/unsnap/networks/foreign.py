"""Published weights of others, read safely and turned into our networks' state dicts."""

from __future__ import annotations

import io
import pickle
import struct
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from unsnap.errors import InputError
from unsnap.fields import fits
from unsnap.io.budget import claim, counted
from unsnap.io.checks import claim_archive, existing
from unsnap.networks.layouts import Published, Shapes, candidates
from unsnap.networks.whole import PublishedModel, published_model

_WRAPPERS = ("solver_state_dict", "state_dict", "model_state_dict", "params")
# Everything torch.load was seen to raise on damaged or foreign bytes.
_BROKEN = (
    pickle.UnpicklingError, EOFError, RuntimeError, ValueError, KeyError, IndexError, TypeError, AttributeError,
    AssertionError, OverflowError, MemoryError, struct.error, OSError,
)  # fmt: skip


_MADE = 32  # bytes per weight: folded in double precision, in our network, and as it is written


class Checkpoint(NamedTuple):
    """What `networks.build` and `load_state_dict` need, and what else the file said (JSON-able)."""

    name: str
    settings: dict[str, Any]
    state_dicts: list[dict[str, Tensor]]
    """One for each stage of an unfolded model."""
    iteration: str | None
    """Of an unfolded model; None: a denoiser."""
    facts: dict[str, Any]


@counted()
def read_checkpoint(path: str | Path) -> Checkpoint:
    """Read a published checkpoint, known by its keys: a denoiser (the paper's for DE-GAP, DnCNN, FFDNet, FastDVDnet) or
    a whole reconstruction (U-net, GAP-net, BIRNAT, STFormer, EfficientSCI).

    Only tensors and plain containers are unpickled (`weights_only=True`). BatchNorm is folded into the convolutions,
    which changes nothing in evaluation; of spectrally normalised layers the normalised weight is taken.
    """
    source = Path(path)
    content = _load(source)
    tensors, spectral = _tensors(source, content)
    layout = _recognise(source, tensors)
    check_weights(source, tensors)
    state = layout.state(tensors)
    check_weights(source, state)  # folding may divide by zero
    facts = {
        "layout": layout.title,
        **layout.facts(),
        "parameters": sum(value.numel() for value in state.values()),
        "real_spectral_norm": spectral,
        "epoch": content["epoch"] if fits(content.get("epoch"), int) else None,
    }
    states = [
        {key.removeprefix(stage): value for key, value in state.items() if key.startswith(stage)}
        for stage in layout.stages
    ]
    iteration = layout.iteration if isinstance(layout, PublishedModel) else None
    return Checkpoint(layout.name, layout.settings, states, iteration, facts)


def check_weights(owner: object, weights: Mapping[str, Tensor]) -> None:
    """Plain tensors of finite numbers in which something can be computed, or an InputError."""
    for key, value in weights.items():
        if value.layout != torch.strided or value.is_quantized or value.device.type == "meta":
            kind = "on the meta device" if value.device.type == "meta" else f"quantised or {value.layout}"
            raise InputError(f"{owner}: {key} is {kind}, not a plain tensor of weights; save it as one")
        if value.dtype.itemsize == 1 and value.is_floating_point():
            raise InputError(f"{owner}: {key} is of type {value.dtype}, in which nothing is computed; convert it")
        if not bool(torch.isfinite(value).all()):
            raise InputError(f"{owner}: {key} holds NaN or Inf, of no use; import or train it again")


def _load(source: Path) -> Mapping[str, Any]:
    if existing(source).is_dir():
        raise InputError(f"{source} is not a file; give the path of a checkpoint (.pth, .ckpt)")
    if source.stat().st_size == 0:
        raise InputError(f"{source} is empty; download the checkpoint again")
    claim_archive(source)
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
    # A tensor may be a view of one number a billion times over: it counts as what it will be, here and in our network.
    claim(source, sum(_MADE * value.numel() for value in found.values()))
    kept = {key: value for key, value in found.items() if not key.endswith(("weight_orig", "weight_u", "weight_v"))}
    return kept, len(kept) < len(found)


def _recognise(source: Path, tensors: dict[str, Tensor]) -> Published | PublishedModel:
    shapes = {
        key: tuple(value.shape) for key, value in tensors.items() if ".conv_cat." not in key
    }  # of no use to STFormer
    model = published_model(shapes)
    known: list[Published] | list[PublishedModel] = candidates(shapes) if model is None else [model]
    differences = [(_differences(layout.shapes(), shapes), layout) for layout in known]
    nearest, layout = min(differences, key=lambda pair: len(pair[0]))
    if nearest:
        listed = "; ".join(nearest[:3]) + (f"; and {len(nearest) - 3} more" if len(nearest) > 3 else "")
        raise InputError(
            f"{source} is not a checkpoint unsnap knows; the nearest layout is {layout.title}, but {listed}"
        )
    return layout


def _differences(expected: Shapes, found: Shapes) -> list[str]:
    missing = [f"{key} is missing" for key in expected if key not in found]
    shaped = [
        f"{key} is {shape} instead of {expected[key]}"
        for key, shape in found.items()
        if key in expected and shape != expected[key]
    ]
    surplus = [f"{key} is not part of it" for key in found if key not in expected]
    return shaped + missing + surplus
