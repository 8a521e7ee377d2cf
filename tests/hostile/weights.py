"""Model files, published checkpoints, configs and run folders: sound ones, and ones whose content lies.

Every function takes a generator of random numbers and returns (name of the attack, bytes of the file).
"""

from __future__ import annotations

import io
import json
import pickle
import random
import tempfile
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hostile.arrays import Made
from hostile.mutate import LEAVES, NAMES, bits, dump_json, edit_json, number

# ---------------------------------------------------------------------- safetensors

Tensors = dict[str, tuple[str, list[int], bytes]]
_DTYPES = (
    "F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2", "I64", "I32", "I16", "I8", "U8", "BOOL", "C64", "X", "",
    "f32",
)  # fmt: skip


@cache
def sound_models() -> tuple[tuple[dict[str, Any], Tensors], ...]:
    """(description, tensors) of one small model of every kind."""
    from unsnap import networks
    from unsnap.algorithms import GAP
    from unsnap.fixed_point import anderson
    from unsnap.models import Equilibrium, LeastSquares, Unfolded
    from unsnap.models.file import describe
    from unsnap.priors.gmm import GMM, Mixture

    def stack(**more: Any) -> Any:
        return networks.build("cnn", {"layers": 2, "channels": 4, "bias": False, **more})

    torch.manual_seed(0)
    shift = networks.build("shift", {"channels": [4, 4, 4], "blocks": [1, 1, 1]})
    certified = networks.build("certified", {"blocks": 1, "channels": 4, "hidden": 4, "contraction": None})
    models = [
        Equilibrium(GAP(), stack(), 0.0, start=LeastSquares(), solver=anderson(memory=3), tol=1e-2, max_iter=3),
        Equilibrium(GAP(), shift, 0.05, start=LeastSquares(), solver=anderson(memory=3), tol=1e-2, max_iter=3),
        Equilibrium(GAP(), certified, 0.0, start=LeastSquares(), solver=anderson(memory=3), tol=1e-2, max_iter=3),
        Unfolded(GAP(), [stack(), stack()], [0.1, 0.05], start=LeastSquares()),
    ]
    found = [(describe(model), _tensors(model.state_dict())) for model in models]
    mixture = Mixture(torch.ones(2) / 2, torch.rand(2, 2, 4, 4), torch.rand(2, 2, 4, 4, 2), torch.full((2,), 0.01))
    facts = describe(GMM(mixture))
    return (*found, (facts, _tensors(vars(mixture))))


def _tensors(state: dict[str, Any]) -> Tensors:
    names = {torch.float32: "F32", torch.float16: "F16", torch.int64: "I64", torch.bool: "BOOL", torch.uint8: "U8"}
    return {k: (names[v.dtype], list(v.shape), v.detach().contiguous().numpy().tobytes()) for k, v in state.items()}


def safetensors(
    description: Any,
    tensors: Tensors,
    metadata: dict[str, Any] | None = None,
    header: Any = None,
    length: int | None = None,
) -> bytes:
    """A file written by hand; `header` replaces the entries of the tensors, `length` the length of the header."""
    entries, data = {}, b""
    for name, (kind, shape, content) in tensors.items():
        entries[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    known = {"unsnap_model": "2", "model": dump_json(description)} if metadata is None else metadata
    text = dump_json({"__metadata__": known, **(entries if header is None else header)}).encode("utf-8", "replace")
    text += b" " * (-len(text) % 8)
    return bits(len(text) if length is None else length, "<Q") + text + data


def sound_model(rng: random.Random) -> bytes:
    return safetensors(*rng.choice(sound_models()))


def _entries(tensors: Tensors) -> dict[str, Any]:
    at, entries = 0, {}
    for name, (kind, shape, content) in tensors.items():
        entries[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + len(content)]}
        at += len(content)
    return entries


def model(rng: random.Random) -> Made:
    description, tensors = rng.choice(sound_models())
    way = rng.choice(
        ("recipe", "recipe", "recipe", "recipe", "entries", "entries", "values", "dtype", "length", "metadata", "names")
    )
    if way == "recipe":
        attack, description = edit_json(description, rng)
        return f"recipe {attack}", safetensors(description, tensors)
    tensors = dict(tensors)
    name = rng.choice(sorted(tensors))
    kind, shape, content = tensors[name]
    if way == "entries":
        _, header = edit_json(_entries(tensors), rng)
        return "header entries", safetensors(description, tensors, header=header)
    if way == "values":
        value = rng.choice((np.nan, np.inf, -np.inf, 3e38, 1e30, 1e-40, 0.0, -1.0))
        array = np.frombuffer(content, {"F32": "f4", "F16": "f2"}.get(kind, "u1")).copy()
        with np.errstate(all="ignore"):
            array[: rng.choice((1, array.size))] = value if kind in ("F32", "F16") else 255
        tensors[name] = (kind, shape, array.tobytes())
    elif way == "dtype":
        other = rng.choice(_DTYPES)
        size = {"F64": 8, "I64": 8, "C64": 8, "F16": 2, "BF16": 2, "I16": 2, "F32": 4, "I32": 4}.get(other, 1)
        tensors[name] = (other, shape, bytes(size * int(np.prod(shape))))
        if rng.random() < 0.5:
            tensors = {k: (other, s, rng.randbytes(size * int(np.prod(s)))) for k, (_, s, _) in tensors.items()}
    elif way == "length":
        return "header length", safetensors(description, tensors, length=number(rng))
    elif way == "metadata":
        recipe = {"recipe": dump_json({"network": "cnn", "settings": {"layers": 2, "channels": 4, "bias": False}})}
        hostile = ({}, {"unsnap_model": "1", **recipe}, {"unsnap_model": "2",
        "model": rng.choice(("[]", "3", "", "null", '"x"', "{"))},
                   {"unsnap_model": rng.choice(("3", "", "x" * 99, *NAMES)), "model": "{}"},
                   {"unsnap_mixture": "1", "about": rng.choice(("3", "[[1]]"))},
                   {"unsnap_model": "2", "model": "[" * 100000}, {"unsnap_model": 2}, {"a": None})  # fmt: skip
        return "metadata", safetensors(description, tensors, metadata=rng.choice(hostile))
    else:
        tensors[rng.choice((*NAMES, "network.x", ""))] = tensors.pop(name)
    return f"tensors {way}", safetensors(description, tensors)


# ---------------------------------------------------------------------- torch checkpoints


def sound_checkpoint() -> dict[str, Any]:
    """Weights in the layout in which DE-GAP's authors published theirs."""
    torch.manual_seed(0)
    sizes = (1, 4, 4, 1)
    weights = {f"nonlinear_op.dncnn.{2 * k}.weight": torch.rand(sizes[k + 1], sizes[k], 3, 3) for k in range(3)}
    return {"solver_state_dict": weights, "epoch": 3}


def torch_bytes(content: Any, legacy: bool = False) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer, _use_new_zipfile_serialization=not legacy)
    return buffer.getvalue()


@cache
def published() -> bytes:
    """The file of such a checkpoint, where it is not what is attacked."""
    return torch_bytes(sound_checkpoint())


def strange_tensor(like: torch.Tensor, rng: random.Random) -> Any:
    """Something in a tensor's place: of another type, layout, device or shape."""
    shape, plain = tuple(like.shape), like.float() if like.is_floating_point() else torch.rand(like.shape)
    ways = {
        "nan": lambda: plain * torch.nan, "inf": lambda: plain / 0, "huge": lambda: plain * 3e38,
        "tiny": lambda: plain * 1e-44,
        "half": plain.half, "bfloat": plain.bfloat16, "double": plain.double, "long": plain.long, "bool": plain.bool,
        "f8": lambda: plain.to(torch.float8_e4m3fn), "f8 e5": lambda: plain.to(torch.float8_e5m2),
        "complex": lambda: plain.to(torch.complex64),
        "meta": lambda: torch.empty(shape, device="meta"), "sparse": plain.to_sparse,
        "expanded": lambda: torch.zeros(1).expand(rng.choice((shape, (2**30,)))),
        "empty": lambda: torch.zeros(0), "scalar": lambda: torch.tensor(1.0), "more": lambda: plain[None],
        "strided": lambda: plain.mT if plain.ndim > 1 else plain,
        "quantised": lambda: torch.quantize_per_tensor(plain, 0.1, 0, torch.quint8),
        "parameter": lambda: torch.nn.Parameter(plain),
        "negative": lambda: torch.complex(plain, plain).conj(), "uint16": lambda: plain.to(torch.uint16),
        "csr": lambda: torch.eye(4).to_sparse_csr(),
    }  # fmt: skip
    return ways[rng.choice(sorted(ways))]()


def edit_state(state: Any, rng: random.Random) -> Any:
    """A copy of nested containers in which a leaf or branch is replaced, removed or added."""
    paths: list[tuple[Any, ...]] = []

    def walk(value: Any, path: tuple[Any, ...]) -> Any:
        paths.append(path)
        if isinstance(value, dict):
            return {k: walk(v, (*path, k)) for k, v in value.items()}
        return [walk(v, (*path, k)) for k, v in enumerate(value)] if isinstance(value, (list, tuple)) else value

    copy = walk(state, ())
    for _ in range(rng.choice((1, 1, 2))):
        *path, last = rng.choice(paths[1:])
        inner = copy
        try:
            for key in path:
                inner = inner[key]
            old = inner[last]
        except (LookupError, TypeError):
            continue
        if isinstance(old, torch.Tensor) and rng.random() < 0.7:
            inner[last] = strange_tensor(old, rng)
        elif rng.random() < 0.2:
            del inner[last]
        else:
            leaf = rng.choice((*LEAVES, float("nan"), float("inf"), 10**400, torch.zeros(3), b"x", (1, 2), {1: 2}))
            inner[last] = leaf if not isinstance(leaf, str) or leaf.isprintable() else "x"
    return copy


class _Runs:
    """Unpickled carelessly, it would leave a file behind, which the contract notices."""

    def __reduce__(self) -> Any:
        return open, ("executed", "w")


@cache
def _zip_bomb(size: int) -> bytes:
    """A checkpoint whose storage is zeros and deflated; sizes as claimed."""
    buffer, out = io.BytesIO(torch_bytes({"state_dict": {"model.0.weight": torch.zeros(1)}})), io.BytesIO()
    with zipfile.ZipFile(buffer) as source, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as target:
        for info in source.infolist():
            target.writestr(info.filename, bytes(size) if "/data/" in info.filename else source.read(info))
    return out.getvalue()


def checkpoint(rng: random.Random) -> Made:
    """Content of another kind, code, bombs; read by `import`."""
    way = rng.choice(("leaf", "leaf", "leaf", "leaf", "keys", "legacy", "code", "pickle", "bomb", "members", "wrapper"))
    content = sound_checkpoint()
    if way == "leaf":
        return "state leaf", torch_bytes(edit_state(content, rng), rng.random() < 0.2)
    if way == "keys":
        weights = content["solver_state_dict"]
        key = rng.choice(sorted(weights))
        weights[rng.choice((*NAMES, 3, (1, 2), None, 1.5, True, "module.x", "model.0.weight"))] = weights.pop(key)
        content[rng.choice((*NAMES, 3, "state_dict"))] = rng.choice((1, {}, weights))
    elif way == "code":
        hostile = rng.choice((_Runs(), {"a": _Runs()}, {"state_dict": content, "x": _Runs()}))
        return "code", torch_bytes(hostile, rng.random() < 0.5) if rng.random() < 0.7 else pickle.dumps(
            hostile, rng.randrange(5)
        )
    elif way == "pickle":
        raw = (b"\x80\x02" + b"(" * 5000 + b".", b"\x80\x02]" + b"]" * 3000 + b"." , pickle.dumps(10**5000),
        b"\x80\x02X\xff\xff\xff\x7f", b"\x80\x02\x8b\xff\xff\xff\x7f",
               b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7f", b"\x80\x02r\xff\xff\xff\x7f", b"", b"\x80\x02N.",
               pickle.dumps([1, 2, 3]))  # fmt: skip
        return "raw pickle", rng.choice(raw)
    elif way == "bomb":
        return "zip bomb", _zip_bomb(rng.choice((2**20, 2**25)))
    elif way == "members":
        buffer, out = io.BytesIO(torch_bytes(content)), io.BytesIO()
        with (
            zipfile.ZipFile(buffer) as source,
            zipfile.ZipFile(out, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as target,
        ):
            victim = rng.choice(source.namelist())
            for name in source.namelist():
                data = source.read(name)
                if name == victim:
                    data = rng.choice(
                        (b"", data[: len(data) // 2], data + bytes(1000), b"\xff" * len(data), pickle.dumps({"a": 1}))
                    )
                if name != victim or rng.random() < 0.8:
                    renamed = name if rng.random() < 0.8 else f"archive/../{len(data)}{name}"
                    target.writestr(zipfile.ZipInfo(renamed), data)
        return "zip members", out.getvalue()
    elif way == "wrapper":
        content = rng.choice(([content], {"state_dict": content}, {"params": {"params": content}}, {},
        {"state_dict": None}, torch.zeros(3), 3, "x",
                              {"state_dict": {f"model.{k}.weight": torch.zeros(1, 1, 3, 3) for k in range(300)}},
                              {"model.0.weight": torch.zeros(10**6, 0, 3, 3)}))  # fmt: skip
    return f"state {way}", torch_bytes(content, way == "legacy" or rng.random() < 0.2)


# ---------------------------------------------------------------------- configs and runs


@cache
def _config_text() -> str:
    from unsnap.training import Config

    config = Config(
        network="cnn", settings={"layers": 2, "channels": 4, "bias": False}, clips="clips", start="least_squares",
        steps=1, batch=1, crop=16, frames=(2,),
        pool=1, age=2, warmup=1, gaussian=0.0, implicit=0.0, checkpoint_every=5, validate_every=1000,
    )  # fmt: skip
    return config.to_json()


def sound_config() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_config_text())
    return found


@cache
def clip(seed: int = 0) -> bytes:
    from hostile.arrays import npz_scene

    draw = np.random.default_rng(seed)
    return npz_scene({"frames": draw.integers(0, 255, (4, 16, 16)).astype(np.uint8)})


def _edited_config(rng: random.Random) -> tuple[str, Any]:
    """Without a key that keeps the run small, a config would be no longer hostile, only long."""
    sound = sound_config()
    attack, value = edit_json(sound, rng)
    small = ("network", "settings", "start", "clips", "crop", "batch", "frames", "pool", "implicit")
    return attack, {**{key: sound[key] for key in small}, **value} if isinstance(value, dict) else value


def config(rng: random.Random) -> Made:
    attack, value = _edited_config(rng)
    text = dump_json(value)
    if rng.random() < 0.15:
        whole = (
            "", "[]", "3", "null", '"x"', "{", "[" * 100000, '{"version": 2}', text[: len(text) // 2], text + text,
            "﻿" + text, text.replace("2", "2e0"),
        )  # fmt: skip
        return "config whole", rng.choice(whole).encode("utf-8", "replace")
    return f"config {attack}", text.encode("utf-8", "replace")


@cache
def _run_state() -> dict[str, Any]:
    """The checkpoint of a run of one step."""
    from unsnap.training import Config, Trainer

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "clips").mkdir()
        for k in range(2):
            (folder / "clips" / f"{k}.npz").write_bytes(clip(k))
        values = sound_config()
        values.pop("version")
        trainer = Trainer(Config(**{**values, "clips": str(folder / "clips")}), folder / "run")
        trainer.run()
        state = torch.load(folder / "run" / "checkpoint.pt", weights_only=True)
    return {**state, "config": dump_json(sound_config())}


@cache
def sound_run() -> bytes:
    return torch_bytes(_run_state())


def run(rng: random.Random) -> Made:
    """A checkpoint of unsnap's own with something else inside."""
    state = _run_state()
    if rng.random() < 0.3:
        attack, value = _edited_config(rng)
        return f"run config {attack}", torch_bytes({**state, "config": dump_json(value)})
    return "run leaf", torch_bytes(edit_state(state, rng))
