"""`unsnap certify`, `unsnap import` and `--method FILE.safetensors`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

from cli.contract import CONTRACT
from laws import forward_mode
from networks.test_published_weights import LAYOUTS
from unsnap.algorithms import GAP
from unsnap.fixed_point import anderson, picard
from unsnap.io import sha256
from unsnap.models import Equilibrium, TotalVariation, load, save
from unsnap.models.file import describe
from unsnap.networks import CNN, Certified, EfficientSCI

KEYS = {"model", "certified", "kind", "bound", "local_lipschitz", "spectral_radius", "residual", "converged"}
SMALL = {"blocks": 1, "channels": 4, "hidden": 4}


@pytest.fixture
def certified(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    model = Equilibrium(GAP(), Certified(**SMALL), solver=anderson(safeguard=0.9), tol=1e-3, max_iter=500)
    return save(tmp_path / "certified.safetensors", model)


@pytest.fixture
def expansive(tmp_path: Path) -> Path:
    """D(x) = x − net(x) with a network that turns the noise it finds into more of it."""
    return expanding(tmp_path, 3.0)


def expanding(folder: Path, gain: float) -> Path:
    torch.manual_seed(0)
    net = CNN(2, 4)
    net.load_state_dict({key: gain * value for key, value in net.state_dict().items()})
    return save(folder / "expansive.safetensors", Equilibrium(GAP(), net, solver=picard(), max_iter=60))


@forward_mode
def test_certify_prints_one_object_with_the_contracted_keys(unsnap: Callable, certified: Path, scene: Path) -> None:
    for place in ([], [scene]):
        run = unsnap("certify", certified, *place, "--crop", 16, "--iterations", 8, "--json")
        facts = run.json()
        assert run.code == 0, run.err
        assert run.out.count("\n") == 1
        assert set(facts) >= KEYS
        assert (facts["model"], facts["certified"], facts["kind"]) == (str(certified), True, "contraction")
        assert facts["bound"] == 0.95
        assert 0 < facts["spectral_radius"] <= facts["local_lipschitz"]
        assert facts["local_lipschitz"] <= 0.950001
        assert facts["residual"] <= 1e-3
        assert facts["converged"] is True


@forward_mode
def test_people_read_what_is_proven_and_what_is_estimated(unsnap: Callable, certified: Path, expansive: Path) -> None:
    run = unsnap("certify", certified, "--crop", 16, "--iterations", 4)
    said = " ".join(run.out.split())
    assert run.code == 0
    assert "one fixed point for every snapshot and mask" in said
    assert re.search(r"relative residual 1e-03 within (49[6-9]|50\d) evaluations", said), said
    assert "space.0: squared norm" in said
    assert "(estimates)" in said
    run = unsnap("certify", expansive, "--crop", 16, "--iterations", 4)
    assert "no certificate" in " ".join(run.out.split())
    assert "local estimate" in " ".join(run.out.split())


@forward_mode
def test_not_converging_is_exit_code_3(unsnap: Callable, expansive: Path, scene: Path) -> None:
    run = unsnap("certify", expansive, scene, "--crop", 16, "--iterations", 4, "--json")
    facts = run.json()
    assert run.code == 3
    assert facts["converged"] is False
    assert facts["certified"] is False
    assert facts["bound"] is None
    assert facts["residual"] > 1e-4
    assert "did not reach its tolerance" in run.err


@forward_mode
def test_overflow_is_exit_code_3_and_still_json(unsnap: Callable, tmp_path: Path) -> None:
    """Finite at the start, beyond all numbers soon after."""
    path = expanding(tmp_path, 1e6)
    run = unsnap("certify", path, "--crop", 16, "--iterations", 3, "--json", "-o", tmp_path / "c.png")
    assert run.code == 3
    facts = json.loads(run.out, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    assert facts["converged"] is False
    assert (tmp_path / "c.png").exists()


def test_a_model_that_cannot_start_is_bad_input(unsnap: Callable, tmp_path: Path) -> None:
    path = expanding(tmp_path, 1e30)
    for command in (["certify", path, "--crop", 16], ["certify", path, "--crop", 16, "--json"]):
        run = unsnap(*command)
        assert run.code == 2
        assert "expansive.safetensors" in run.err
        assert "NaN or infinite" in run.err


@forward_mode
def test_the_picture_of_three_solvers(unsnap: Callable, certified: Path, tmp_path: Path) -> None:
    from PIL import Image

    run = unsnap("certify", certified, "--crop", 16, "--iterations", 6, "-o", tmp_path / "conv.png")
    assert run.code == 0
    assert "conv.png" in run.err
    with Image.open(tmp_path / "conv.png") as image:
        colours = image.convert("RGB").getcolors(2**20)
        assert image.size[0] > 500
    assert colours is not None
    assert len(colours) > 50


@pytest.mark.parametrize("output", ["conv.jpg", "certified.safetensors/conv.png"])
def test_a_picture_that_cannot_be_is_refused_before_the_work(unsnap: Callable, certified: Path, output: str) -> None:
    run = unsnap("certify", certified, "-o", output)
    assert run.code == 2
    assert "Traceback" not in run.err


@pytest.mark.parametrize("command", [["certify"], ["reconstruct", "SCENE", "--method"]])
def test_bad_models_are_one_sentence(unsnap: Callable, scene: Path, command: list[str], tmp_path: Path) -> None:
    words = [scene if word == "SCENE" else word for word in command]
    bad = tmp_path / "bad.safetensors"
    for content in (b"", b"hello", b"\x08\0\0\0\0\0\0\0{}      "):
        bad.write_bytes(content)
        run = unsnap(*words, bad)
        assert run.code == 2
        assert run.out == ""
        assert run.err.startswith("Error: ")
        assert "bad.safetensors" in run.err
        assert run.err.count("\n") == 1
    run = unsnap(*words, tmp_path / "absent.safetensors")
    assert run.code == 2
    assert "absent.safetensors does not exist" in run.err


def test_certify_refuses_a_bad_scene(unsnap: Callable, certified: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.mat").write_bytes(b"")
    run = unsnap("certify", certified, tmp_path / "bad.mat")
    assert run.code == 2
    assert "bad.mat" in run.err


def test_a_model_file_reconstructs_and_keeps_the_contract(unsnap: Callable, certified: Path, scene: Path) -> None:
    run = unsnap("reconstruct", scene, "--method", certified, "--json")
    result = run.json()
    assert run.code == 0, run.err
    assert run.out.count("\n") == 1
    assert set(result) >= CONTRACT
    assert (result["method"], result["snapshots"], result["converged"]) == ("certified", 2, True)
    assert result["residual"] <= 1e-3
    assert result["psnr"] > 5


def test_a_model_that_does_not_converge_is_exit_code_3(unsnap: Callable, expansive: Path, scene: Path) -> None:
    run = unsnap("reconstruct", scene, "--method", expansive, "--json")
    assert run.code == 3
    assert run.json()["converged"] is False


@pytest.mark.parametrize("layout", LAYOUTS)
def test_published_files_become_models(unsnap: Callable, layout: str, tmp_path: Path, scene: Path) -> None:
    content, naive, expected = LAYOUTS[layout]
    torch.save(content, tmp_path / "published.pth")
    run = unsnap("import", tmp_path / "published.pth", "-o", tmp_path / "m.safetensors", "--sigma", 0.2, "--json")
    facts = run.json()
    assert run.code == 0, run.err
    assert facts["network"]["name"] == expected["name"]
    assert facts["about"]["sha256"] == sha256(tmp_path / "published.pth")
    assert facts["sigma"] == (0.2 if expected["name"] in ("ffdnet", "fastdvdnet") else 0.0)
    with safe_open(tmp_path / "m.safetensors", "pt") as file:
        assert {"output": facts["output"], **json.loads(file.metadata()["model"])} == facts
    model = load(tmp_path / "m.safetensors")
    assert (model.iteration, model.start) == (GAP(), TotalVariation())
    assert {"output": facts["output"], **describe(model)} == facts
    x = torch.rand(3, 12, 10, generator=torch.Generator().manual_seed(0))
    state: dict[str, Any] = content.get("solver_state_dict", content)
    with torch.no_grad():
        truth = naive({k: v.double() for k, v in state.items()}, x.double(), 0.2)
        assert torch.allclose(model.network(x, model.sigma).double(), truth, atol=1e-3 * float(truth.abs().max()))
    small = ["--roi", ":16,:16", "--snapshots", 1, "--iterations", 3]
    again = unsnap("reconstruct", scene, "--method", tmp_path / "m.safetensors", *small, "--json")
    assert again.code in (0, 3)
    assert again.json()["method"] == "m"


def test_import_says_what_it_wrote(unsnap: Callable, tmp_path: Path) -> None:
    torch.save(LAYOUTS["cnn"][0], tmp_path / "published.ckpt")
    run = unsnap("import", tmp_path / "published.ckpt", "-o", "m.safetensors", "--tol", "1e-3", "--max-iter", 9)
    assert run.code == 0
    assert "DE-GAP-CNN (Zhao, Zheng & Yuan 2023), from published.ckpt" in " ".join(run.out.split())
    model = load(tmp_path / "m.safetensors")
    assert (model.tol, model.max_iter) == (1e-3, 9)
    quiet = unsnap("import", tmp_path / "published.ckpt", "-o", "m.safetensors", "--quiet")
    assert quiet.out == ""


def test_an_end_to_end_network_is_imported_and_used(unsnap: Callable, tmp_path: Path, scene: Path) -> None:
    torch.save(EfficientSCI(4, 1).state_dict(), tmp_path / "theirs.pth")
    assert unsnap("import", tmp_path / "theirs.pth", "-o", "net.safetensors").code == 0
    run = unsnap("reconstruct", scene, "-m", "net.safetensors", "--json")
    assert run.code == 0, run.err
    assert run.json()["iterations"] == 1


def test_imports_that_cannot_be(unsnap: Callable, tmp_path: Path) -> None:
    torch.save(LAYOUTS["cnn"][0], tmp_path / "good.ckpt")
    torch.save({"features.0.weight": torch.ones(3, 3)}, tmp_path / "other.pth")
    (tmp_path / "empty.pth").touch()
    for source, output, word in [
        ("absent.pth", "m.safetensors", "absent.pth"),
        ("empty.pth", "m.safetensors", "empty.pth"),
        ("other.pth", "m.safetensors", "other.pth"),
        ("good.ckpt", "m.pth", "m.pth"),
        ("good.ckpt", "good.ckpt/m.safetensors", "m.safetensors"),
    ]:
        run = unsnap("import", source, "-o", output)
        assert run.code == 2, (source, output)
        assert word in run.err
        assert "Traceback" not in run.err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["empty.pth", "good.ckpt", "other.pth"]


@pytest.mark.parametrize("command", ["certify", "import"])
def test_help_has_examples(unsnap: Callable, command: str) -> None:
    run = unsnap(command, "--help")
    assert run.code == 0
    assert "Examples" in run.out
    assert run.out.count(f"unsnap {command} ") >= 2
