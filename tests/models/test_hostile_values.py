"""Values in model files, checkpoints and configs that no honest program wrote: one sentence that names them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from unsnap.errors import InputError
from unsnap.models import load
from unsnap.networks.foreign import read_checkpoint
from unsnap.training.checkpoint import load_checkpoint
from unsnap.training.config import Config

WEIGHTS = {"convs.0.weight": torch.ones(3, 1, 3, 3), "convs.1.weight": torch.ones(1, 3, 3, 3)}
RECIPE = {"network": "cnn", "settings": {"layers": 2, "channels": 3, "bias": False}, "solver": {"name": "anderson"}}
RECIPES: dict[str, dict[str, Any]] = {
    "memory": {"solver": {"name": "anderson", "memory": 10**9}},
    "tol": {"tol": 10**30},
    "max_iter": {"max_iter": 10**400},
    "layers": {"settings": {"layers": 10**400}},
    "blocks": {"network": "unet", "settings": {"blocks": []}},
    "channels": {"network": "shift", "settings": {"channels": [1, 2]}},
    "sigma": {"sigma": float("nan")},
    "about": {"about": [1]},
    "settings": {"settings": "none"},
    "solver": {"solver": ["anderson"]},
    "start": {"start": {"name": "adjoint"}},
    "damping": {"solver": {"name": "anderson", "damping": float("inf")}},
}


def model_file(path: Path, recipe: str, weights: dict[str, torch.Tensor] = WEIGHTS) -> Path:
    save_file(weights, path, {"unsnap_model": "1", "recipe": recipe})
    return path


@pytest.mark.parametrize("name", RECIPES)
def test_recipes(name: str, tmp_path: Path) -> None:
    file = model_file(tmp_path / "m.safetensors", json.dumps({**RECIPE, **RECIPES[name]}))
    with pytest.raises(InputError, match=name) as caught:
        load(file)
    assert "m.safetensors" in str(caught.value)
    assert len(str(caught.value)) < 600


def test_a_healthy_recipe_of_format_1_is_read(tmp_path: Path) -> None:
    load(model_file(tmp_path / "m.safetensors", json.dumps(RECIPE)))


@pytest.mark.parametrize("text", ["[" * 10**5 + "]" * 10**5, "[]", "3", "{", ""])
def test_descriptions_that_are_none(text: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"m\.safetensors"):
        load(model_file(tmp_path / "m.safetensors", text))


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.float8_e4m3fn, torch.complex64])
def test_weights_in_which_nothing_is_computed(dtype: torch.dtype, tmp_path: Path) -> None:
    weights = {**WEIGHTS, "convs.0.weight": torch.ones(3, 1, 3, 3).to(dtype)}
    with pytest.raises(InputError, match=r"convs\.0\.weight"):
        load(model_file(tmp_path / "m.safetensors", json.dumps(RECIPE), weights))


FOREIGN: dict[str, Any] = {
    "sparse": lambda w: w.to_sparse(),
    "meta": lambda w: w.to("meta"),
    "float8": lambda w: w.to(torch.float8_e4m3fn),
    "quantised": lambda w: torch.quantize_per_tensor(w, 0.1, 0, torch.quint8),
    "NaN": lambda w: w * torch.nan,
    "integer": lambda w: w.long(),
}


def published(change: Any) -> dict[str, Any]:
    own = {f"model.{2 * k}.weight": w for k, w in enumerate((torch.ones(8, 1, 3, 3), torch.ones(1, 8, 3, 3)))}
    return {"state_dict": {**own, "model.2.weight": change(own["model.2.weight"])}, "epoch": 10**400}


@pytest.mark.parametrize("kind", FOREIGN)
@pytest.mark.filterwarnings("ignore")
def test_published_checkpoints(kind: str, tmp_path: Path) -> None:
    torch.save(published(FOREIGN[kind]), tmp_path / "w.ckpt")
    with pytest.raises(InputError, match=r"w\.ckpt"):
        read_checkpoint(tmp_path / "w.ckpt")


STATES: dict[str, Any] = {
    "config": 3, "step": -1, "elapsed": float("nan"), "skipped": "none", "reached": 2.0, "best": float("nan"),
    "weights": [], "mean": {"a": 3}, "optimizer": None, "pool": {}, "generator": "x",
}  # fmt: skip


@pytest.mark.parametrize("name", STATES)
def test_states_of_a_run(name: str, tmp_path: Path) -> None:
    torch.save({"unsnap_checkpoint": 1, name: STATES[name]}, tmp_path / "checkpoint.pt")
    with pytest.raises(InputError, match=rf"checkpoint\.pt: {name} must be"):
        load_checkpoint(tmp_path / "checkpoint.pt")


@pytest.mark.parametrize(
    "weight", [torch.ones(2).to_sparse(), torch.full((2,), torch.nan), torch.ones(2, device="meta")]
)
def test_weights_of_a_run(weight: torch.Tensor, tmp_path: Path) -> None:
    torch.save({"unsnap_checkpoint": 1, "weights": {"w": weight}}, tmp_path / "checkpoint.pt")
    with pytest.raises(InputError, match=r"checkpoint\.pt.*w is|checkpoint\.pt.*w holds"):
        load_checkpoint(tmp_path / "checkpoint.pt")


CONFIGS: dict[str, Any] = {
    "batch": 10**400, "crop": 1.5, "rate": float("nan"), "noise": "much", "frames": [], "ema": True, "seed": -1,
    "settings": [], "clips": 3, "kind": "oracle", "steps": 0, "minutes": float("inf"), "warmup": -1,
}  # fmt: skip


@pytest.mark.parametrize("name", CONFIGS)
def test_configs(name: str) -> None:
    values = {**json.loads(Config(steps=1).to_json()), name: CONFIGS[name]}
    with pytest.raises(InputError, match=rf"config\.json has settings that cannot be used .*{name} must be"):
        Config.from_json(json.dumps(values), "config.json")


@pytest.mark.parametrize(("network", "settings"), [("cnn", {"layers": 2000}), ("unet", {"blocks": [1, 501, 1]})])
def test_networks_so_deep_that_they_would_never_end_are_refused(network: str, settings: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="500"):
        Config(network=network, settings=settings, steps=1).model()
