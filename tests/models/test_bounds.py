"""A recipe asks for no more than its file holds, and for nothing that has no end; it is refused before it is built."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from unsnap import GAP, Equilibrium
from unsnap.errors import InputError
from unsnap.models import file
from unsnap.networks import CNN
from unsnap.networks.foreign import read_checkpoint
from unsnap.training.config import Config


def changed(path: Path, change: dict[str, Any]) -> Path:
    """A model file whose recipe says something else than its weights."""
    file.save(path, Equilibrium(GAP(), CNN(2, 3)))
    with safe_open(path, "pt") as content:
        metadata, weights = content.metadata(), {key: content.get_tensor(key) for key in content.keys()}  # noqa: SIM118
    recipe = json.loads(metadata["model"])
    for key, value in change.items():
        *above, last = key.split(".")
        inner = recipe
        for part in above:
            inner = inner[part]
        inner[last] = value
    save_file(weights, path, {**metadata, "model": json.dumps(recipe)})
    return path


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"network.settings.layers": 500}, "more tensors than the file holds weights for"),
        ({"network.settings.layers": 10**10}, "a setting of its network is 10000000000"),
        ({"network.settings.layers": 10**400}, "a number of more than 12 digits"),
        ({"network.settings.channels": 60_000}, "more weights than the file holds"),
        ({"network.settings.spectral": True, "network.settings.size": 60_000}, "more weights than the file holds"),
        ({"network": {"name": "certified", "settings": {"blocks": 500}}}, "the file holds"),
        ({"network": {"name": "shift", "settings": {"blocks": [500, 1, 1]}}}, "the file holds"),
        ({"max_iter": 10**18}, "max_iter may be 100000 at most"),
        ({"solver.memory": 10**9}, "memory may be 100 at most"),
        ({"start": {"name": "total_variation", "iterations": 10**9}}, "iterations may be 10000 at most"),
        ({"start": {"name": "low_rank", "radius": 10**6}}, "radius may be 100 at most"),
        ({"tol": 10**30}, "tol may be 10000 at most"),
    ],
)
def test_recipes_beyond_their_file(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    path = changed(tmp_path / "a.safetensors", change)
    with pytest.raises(InputError, match=words) as caught:
        file.load(path)
    assert str(path) in str(caught.value)


def test_bounds_leave_no_trace(tmp_path: Path) -> None:
    """What is counted while a file is read is not counted afterwards."""
    with pytest.raises(InputError):
        file.load(changed(tmp_path / "a.safetensors", {"network.settings.layers": 500}))
    assert len(CNN(40, 3).state_dict()) == 40


def test_a_config_has_no_weights_to_compare_with() -> None:
    config = Config(steps=1, network="cnn", settings={"layers": 60_000, "channels": 1}, iteration="gap")
    with pytest.raises(InputError, match="layers must be a whole number from 2 to 500"):
        config.model()


def test_weights_that_are_one_number_many_times(tmp_path: Path) -> None:
    one = torch.zeros(1)
    weights = {"nonlinear_op.dncnn.0.weight": one.expand(30_000, 1, 3, 3)}
    weights |= {f"nonlinear_op.dncnn.{2 * k}.weight": one.expand(30_000, 30_000, 3, 3) for k in (1, 2)}
    torch.save({"state_dict": weights}, tmp_path / "a.ckpt")
    assert (tmp_path / "a.ckpt").stat().st_size < 10_000
    with pytest.raises(InputError, match="would need 483 GiB of memory"):
        read_checkpoint(tmp_path / "a.ckpt")
