"""A Gaussian mixture as a file: its numbers as safetensors, its history in the metadata."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from unsnap.errors import InputError
from unsnap.io import atomic_file
from unsnap.priors.gmm import Mixture

FORMAT = 1
_KEY = "unsnap_mixture"


def save_mixture(path: str | Path, mixture: Mixture, about: dict[str, Any]) -> Path:
    """Write a mixture atomically, means and factors in 16 bits; `about` says where it comes from."""
    from safetensors.torch import save

    target = Path(path)
    if target.suffix != ".safetensors":
        raise InputError(f"{target} must end in .safetensors to be a model file")
    tensors = {
        "weights": mixture.weights.float(),
        "means": mixture.means.half(),
        "factors": mixture.factors.half(),
        "white": mixture.white.float(),
    }
    metadata = {_KEY: str(FORMAT), "about": json.dumps(about)}
    with atomic_file(target) as temporary:
        temporary.write_bytes(save({k: v.detach().cpu().contiguous() for k, v in tensors.items()}, metadata))
    return target


def is_mixture(path: str | Path) -> bool:
    """Is this a file written by `save_mixture`?"""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(Path(path), framework="pt") as file:
            return _KEY in (file.metadata() or {})
    except (SafetensorError, OSError, ValueError):
        return False


def load_mixture(path: str | Path) -> Mixture:
    """The mixture in a file written by `save_mixture`, in float32."""
    from safetensors import SafetensorError, safe_open

    source = Path(path)
    try:
        with safe_open(source, framework="pt") as file:
            version = (file.metadata() or {}).get(_KEY)
            tensors = {key: file.get_tensor(key).float() for key in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise InputError(f"{source} is not a readable safetensors file ({error}); train it again") from error
    if version != str(FORMAT):
        raise InputError(f"{source} is not a mixture of format {FORMAT} (format found: {version}); train it again")
    try:
        mixture = Mixture(**tensors)
        _check(mixture)
    except (TypeError, ValueError, RuntimeError, IndexError) as error:
        raise InputError(f"{source} is not a whole mixture ({str(error).splitlines()[0]}); train it again") from error
    return mixture


def _check(mixture: Mixture) -> None:
    tensors = vars(mixture)
    for name, tensor in tensors.items():
        if not bool(torch.isfinite(tensor).all()):
            raise ValueError(f"{name} holds NaN or Inf")
    shape = mixture.means.shape
    expected = {"weights": shape[:1], "white": shape[:1], "means": (*shape[:3], shape[2])}
    for name, size in expected.items():
        if tensors[name].shape != size or tensors[name].numel() == 0:
            raise ValueError(f"{name} has shape {tuple(tensors[name].shape)}")
    if mixture.factors.ndim != 5 or mixture.factors.shape[:4] != shape:
        raise ValueError(f"factors have shape {tuple(mixture.factors.shape)}")
    if not (bool((mixture.weights >= 0).all()) and bool((mixture.white > 0).all())):
        raise ValueError("weights must not be negative and white must be above 0")
