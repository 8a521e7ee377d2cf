"""The state of a run in one file, written atomically: kill the process at any moment and go on from the last one."""

from __future__ import annotations

import io
import math
import pickle
from pathlib import Path
from typing import Annotated, Any

import torch

from unsnap.errors import InputError, short
from unsnap.fields import Share, Size, Within, require
from unsnap.io import atomic_file
from unsnap.io.checks import claim_archive, reading
from unsnap.networks.foreign import check_weights
from unsnap.training.config import Config
from unsnap.training.presets import changed

FORMAT = 1
NAME = "checkpoint.pt"
_Steps = Annotated[int, Within(0, 10**15)]
_KINDS: dict[str, Any] = {
    "config": str, "step": _Steps, "elapsed": Size, "worked": Size, "skipped": _Steps, "reached": Share,
    "weights": dict, "mean": dict, "best": Annotated[float, Within(-math.inf, math.inf)], "optimizer": dict,
    "pool": list, "generator": torch.Tensor,
}  # fmt: skip


def save_checkpoint(path: Path, state: dict[str, Any], *, overwrite: bool = True) -> None:
    """Write a state of tensors, numbers, strings, lists and dictionaries."""
    buffer = io.BytesIO()  # torch.save to a path reports a full disk as an error of its own kind
    torch.save({"unsnap_checkpoint": FORMAT, **on_cpu(state)}, buffer)
    with atomic_file(path, overwrite=overwrite) as temporary:
        temporary.write_bytes(buffer.getbuffer())


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Read it without running any code that a foreign file may bring along."""
    if not path.is_file():
        raise InputError(f"{path} is not a checkpoint (mixtures keep none); start the run with `unsnap train` first")
    claim_archive(path)
    with reading(path, "a checkpoint of unsnap", pickle.UnpicklingError, RecursionError):
        state = torch.load(path, map_location="cpu", weights_only=True)
    found = state.get("unsnap_checkpoint") if isinstance(state, dict) else None
    if found != FORMAT:
        raise InputError(f"{path} is not a checkpoint of format {FORMAT} (found: {short(found)}); start a new run")
    for name, kind in _KINDS.items():
        if name in state:
            require(f"{path}: {name}", state[name], kind)
    for name in ("weights", "mean"):
        require(f"{path}: {name}", list(state.get(name, {}).values()), list[torch.Tensor])
        check_weights(path, state.get(name, {}))
    _check_plain(path, state)
    return dict(state)


def _check_plain(path: Path, value: Any) -> None:
    """No tensor of a kind in which nothing can be computed, however deep."""
    if isinstance(value, torch.Tensor) and (
        value.layout != torch.strided or value.is_meta or value.is_quantized or value.is_complex()
    ):
        raise InputError(f"{path} holds a tensor of no plain numbers ({value.layout}, {value.dtype}); start a new run")
    if isinstance(value, (dict, list, tuple)):
        for part in value.values() if isinstance(value, dict) else value:
            _check_plain(path, part)


def slim(state: dict[str, Any]) -> dict[str, Any]:
    """A checkpoint small enough for a repository: no pool, and the optimiser's memory in 16 bits.

    A run goes on from it with a fresh pool; it is not the bit-identical continuation that the full one gives.
    """
    optimizer = dict(state["optimizer"])
    optimizer["state"] = {k: {n: _half(v) for n, v in s.items()} for k, s in optimizer["state"].items()}
    return {**state, "optimizer": optimizer, "pool": []}


def pack(source: Path, target: Path, changes: dict[str, Any] | None = None, *, overwrite: bool = True) -> None:
    """Write the slim form of a checkpoint; changes: other fields of its config, such as where others have the clips."""
    if target.suffix != ".pt" or target.resolve() == source.resolve():
        raise InputError(f"{target} must be a file of its own that ends in .pt, to hold the slim form of {source}")
    state = load_checkpoint(source)
    try:
        small = slim(state)
    except (KeyError, AttributeError, TypeError) as error:
        raise InputError(f"{source} is not a whole checkpoint ({error!r}); resume and save it again") from error
    if changes:
        small["config"] = changed(Config.from_json(small.get("config", ""), str(source)), changes).to_json()
    save_checkpoint(target, small, overwrite=overwrite)


def find(source: str | Path) -> Path:
    """The checkpoint of a run directory, or the file itself."""
    path = Path(source)
    return path / NAME if path.is_dir() else path


def on_cpu(value: Any) -> Any:
    """The same nest of dictionaries and lists with every tensor on the CPU."""
    if isinstance(value, torch.Tensor):
        return value.cpu()
    if isinstance(value, dict):
        return {k: on_cpu(v) for k, v in value.items()}
    return [on_cpu(v) for v in value] if isinstance(value, list) else value


def _half(value: Any) -> Any:
    return value.bfloat16() if isinstance(value, torch.Tensor) and value.ndim > 0 else value
