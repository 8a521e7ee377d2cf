"""One file, one model: what is saved is what is loaded, and every other file is refused in one sentence."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from laws import seeded
from unsnap import methods
from unsnap.errors import InputError
from unsnap.masks import bernoulli
from unsnap.models.equilibrium import STARTS
from unsnap.models.file import Recipe, as_method, load_model, save_model
from unsnap.networks import build
from unsnap.operators import Multishot, Snapshot

SETTINGS: dict[str, dict[str, Any]] = {
    "cnn": {"layers": 2, "channels": 4},
    "dncnn": {"layers": 3, "channels": 4},
    "ffdnet": {"layers": 3, "channels": 4, "layout": "ipol"},
    "certified": {"blocks": 1, "channels": 4, "hidden": 4, "temporal": True, "contraction": 0.9},
    "gradient_step": {"channels": 2, "kernel": 3, "convex": False},
    "rnn": {"channels": 2},
}
PHI = Snapshot(bernoulli(3, 8, 8, generator=seeded()))
Y = PHI.A(torch.rand(2, 3, 8, 8, generator=seeded(1)))


def recipe_of(name: str, **changes: Any) -> Recipe:
    return Recipe(name, SETTINGS[name], step="rnn" if name == "rnn" else "gap", **{"max_iter": 5, **changes})


def network_of(name: str) -> nn.Module:
    torch.manual_seed(0)
    net = build(name, SETTINGS[name])
    for parameter in net.parameters():
        parameter.data.mul_(0.5)
    return net


def saved(path: Path, name: str = "certified", **changes: Any) -> tuple[Path, nn.Module]:
    net = network_of(name)
    return save_model(path / "model.safetensors", recipe_of(name, **changes), net.state_dict()), net


@pytest.mark.parametrize("name", SETTINGS)
def test_what_is_saved_is_what_is_loaded(name: str, tmp_path: Path) -> None:
    path, net = saved(tmp_path, name)
    loaded, recipe = load_model(path)
    assert recipe == recipe_of(name)
    assert not loaded.training
    weights = loaded.network.state_dict()
    assert all(torch.equal(weights[key], value) for key, value in net.state_dict().items())
    fresh = recipe.model()
    fresh.network = net.eval()
    with torch.no_grad():
        assert torch.equal(loaded(Y, PHI).x, fresh(Y, PHI).x)


@pytest.mark.parametrize(
    "solver",
    [
        {"name": "picard", "damping": 0.5},
        {"name": "anderson", "memory": 3, "safeguard": 0.9},
        {"name": "broyden", "memory": 4},
    ],
)
@pytest.mark.parametrize("start", STARTS)
def test_every_setting_survives(solver: dict[str, Any], start: str, tmp_path: Path) -> None:
    recipe = recipe_of("cnn", solver=solver, start=start, sigma=0.25, tol=3e-3, max_iter=17, about={"epoch": 7})
    recipe = Recipe(**{**asdict(recipe), "step": "admm", "strength": 0.4})
    save_model(tmp_path / "m.safetensors", recipe, network_of("cnn").state_dict())
    model, again = load_model(tmp_path / "m.safetensors")
    assert again == recipe
    assert (model.step.name, model.step.strength, model.sigma) == ("admm", 0.4, 0.25)
    assert (model.tol, model.max_iter, model.start) == (3e-3, 17, STARTS[start])
    assert {"name": type(model.solver).__name__.lower(), **vars(model.solver)}.items() >= solver.items()


def test_weights_of_another_precision_are_taken(tmp_path: Path) -> None:
    net = network_of("cnn")
    path = save_model(
        tmp_path / "m.safetensors", recipe_of("cnn"), {k: v.double() for k, v in net.state_dict().items()}
    )
    assert next(load_model(path)[0].network.parameters()).dtype == torch.float32


def test_a_model_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path, _ = saved(tmp_path)
    before = path.read_bytes()
    with pytest.raises(TypeError):
        save_model(path, recipe_of("cnn", about={"when": object()}), {})
    with pytest.raises(InputError, match=r"m\.pth must end in \.safetensors"):
        save_model(tmp_path / "m.pth", recipe_of("cnn"), {})
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["model.safetensors"]


# name -> (changes to the recipe in the metadata, words of the sentence)
RECIPES: dict[str, tuple[dict[str, Any], str]] = {
    "network": ({"network": "resnet"}, "unknown network 'resnet'; known are cnn"),
    "network of no name": ({"network": ["cnn"]}, "cannot be used"),
    "setting": ({"settings": {"depth": 3}}, "no setting 'depth'"),
    "setting's value": ({"settings": {"blocks": 0}}, "blocks must be a whole number >= 1"),
    "settings": ({"settings": None}, "cannot be used"),
    "step": ({"step": "sgd"}, "step must be one of gap, pgd, gd, admm, rnn, got 'sgd'"),
    "step of another network": ({"step": "rnn"}, "'rnn' and the network 'certified' do not go together"),
    "strength": ({"strength": 0}, "strength must be a number > 0"),
    "strength of no number": ({"strength": "much"}, "cannot be used"),
    "start": ({"start": "anywhere"}, "one of least_squares, adjoint, total_variation, guess, got 'anywhere'"),
    "solver": ({"solver": {"name": "newton"}}, "solver must be one of anderson, broyden, picard, got 'newton'"),
    "solver of no name": ({"solver": {}}, "solver must be one of"),
    "solver's option": ({"solver": {"name": "picard", "memory": 3}}, "memory"),
    "solver's value": ({"solver": {"name": "picard", "damping": 7}}, "damping must lie in"),
    "solver's type": ({"solver": {"name": "anderson", "history": "float16"}}, "cannot be used"),
    "sigma": ({"sigma": [0.2, 0.1]}, r"sigma must be a number >= 0, got \[0.2, 0.1\]"),
    "tolerance": ({"tol": -1}, "tol must be a number >= 0, got -1"),
    "iterations": ({"max_iter": 0}, "max_iter must be a whole number >= 1, got 0"),
    "about": ({"about": "me"}, "about must be a dictionary"),
    "more": ({"colour": "blue"}, "colour"),
}


def tampered(path: Path, metadata: dict[str, str] | None, weights: dict[str, Tensor] | None = None) -> Path:
    file = path / "bad.safetensors"
    save_file(weights or network_of("certified").state_dict(), file, metadata)
    return file


def refused(path: Path, message: str = "") -> str:
    with pytest.raises(InputError, match=message) as caught:
        load_model(path)
    sentence = str(caught.value)
    assert path.name in sentence
    assert "\n" not in sentence
    assert ";" in sentence  # the remedy
    return sentence


@pytest.mark.parametrize("case", RECIPES)
def test_recipes_nobody_can_cook(case: str, tmp_path: Path) -> None:
    changes, message = RECIPES[case]
    recipe = json.dumps({**asdict(recipe_of("certified")), **changes})
    path = tampered(tmp_path, {"unsnap_model": "1", "recipe": recipe})
    assert "again" in refused(path, message)
    with pytest.raises(InputError, match=r"bad\.safetensors"):
        methods.get(str(path))


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        (None, r"not an unsnap model of format 1 \(format found: none\)"),
        ({"format": "pt"}, "not an unsnap model"),
        ({"unsnap_model": "2", "recipe": "{}"}, "format found: 2"),
        ({"unsnap_model": "1"}, "settings that cannot be used"),
        ({"unsnap_model": "1", "recipe": "not json"}, "settings that cannot be used"),
        ({"unsnap_model": "1", "recipe": "[1, 2]"}, "settings that cannot be used"),
        ({"unsnap_model": "1", "recipe": "{}"}, "settings that cannot be used"),
    ],
)
def test_metadata_of_others(metadata: dict[str, str] | None, message: str, tmp_path: Path) -> None:
    refused(tampered(tmp_path, metadata), message)


def test_weights_that_do_not_fit(tmp_path: Path) -> None:
    good = network_of("certified").state_dict()
    metadata = {"unsnap_model": "1", "recipe": json.dumps(asdict(recipe_of("certified")))}
    key = "space.0.weight"
    wrong = {
        "size mismatch": {**good, key: good[key][:, :2].contiguous()},
        f"Missing key.*{key}": {k: v for k, v in good.items() if k != key},
        "Unexpected key.*extra": {**good, "extra": torch.ones(2)},
        f"{key} holds NaN or Inf": {**good, key: good[key] * torch.nan},
    }
    for message, weights in wrong.items():
        assert "again" in refused(tampered(tmp_path, metadata, weights), message)


def test_damaged_files(tmp_path: Path) -> None:
    path, _ = saved(tmp_path)
    whole = path.read_bytes()
    for cut in (0, 1, 7, 8, 9, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        refused(path, "not a readable safetensors file")
    for junk in (b"hello\n" * 99, b"PK\x03\x04" + bytes(200), b"\xff" * 64):
        path.write_bytes(junk)
        refused(path, "not a readable safetensors file")
    refused(tmp_path / "absent.safetensors", "is not a file; `unsnap import`")
    (tmp_path / "folder.safetensors").mkdir()
    refused(tmp_path / "folder.safetensors", "is not a file")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_a_file_one_may_not_read(tmp_path: Path) -> None:
    path, _ = saved(tmp_path)
    path.chmod(0)
    refused(path, "not a readable safetensors file")


def test_a_model_file_is_a_method(tmp_path: Path) -> None:
    path, _ = saved(tmp_path, max_iter=300, tol=1e-5, about={"source": "here"})
    method = methods.get(str(path))
    assert (method.name, method.family, method.reference) == ("model", "equilibrium", "here")
    assert (method.iterations, method.tol, method.early) == (300, 1e-5, True)
    model, _ = load_model(path)
    with torch.no_grad():
        expected = model(Y, PHI)
    solution = methods.reconstruct(Y, PHI.masks, str(path))
    assert bool(solution.converged.all())
    assert torch.equal(solution.x, expected.x)
    assert methods.reconstruct(Y, PHI, str(path), tol=0.1).iterations < expected.iterations
    assert methods.reconstruct(Y, PHI, str(path), iterations=2, tol=0.0).iterations == 2
    assert methods.reconstruct(Y[0], PHI, str(path)).x.shape == (3, 8, 8)


def test_the_precision_of_the_snapshot_decides(tmp_path: Path) -> None:
    path, _ = saved(tmp_path, max_iter=300, tol=1e-6)
    method = as_method(path)
    fine = method(Y.double(), Snapshot(PHI.masks.double())).x
    coarse = method(Y, PHI).x
    assert (fine.dtype, coarse.dtype) == (torch.float64, torch.float32)
    assert torch.allclose(fine, coarse.double(), atol=1e-4)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_the_model_follows_the_snapshot_to_its_device(tmp_path: Path) -> None:
    method = as_method(saved(tmp_path, max_iter=300)[0])
    there = method(Y.cuda(), PHI.to("cuda")).x
    assert there.device.type == "cuda"
    assert torch.allclose(there.cpu(), method(Y, PHI.to("cpu")).x, atol=1e-3)


def test_what_it_cannot_do_is_said(tmp_path: Path) -> None:
    path, net = saved(tmp_path, "cnn")
    two = Multishot(torch.stack([PHI.masks, 1 - PHI.masks]))
    with pytest.raises(InputError, match=r"model\.safetensors reconstructs single snapshots, not Multishot"):
        as_method(path)(two.A(torch.rand(1, 3, 8, 8)), two)
    huge = {key: value.sign() * 1e38 for key, value in net.state_dict().items()}
    save_model(path, recipe_of("cnn"), huge)
    with pytest.raises(InputError, match=r"model\.safetensors cannot reconstruct this: .*NaN or infinite"):
        as_method(path)(Y, PHI)
