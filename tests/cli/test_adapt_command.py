"""unsnap adapt: a better model file, or none and the reason; every mistake one sentence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import torch

from unsnap.algorithms import GAP
from unsnap.models import Equilibrium, Unfolded, load, save
from unsnap.models.file import describe
from unsnap.networks import CNN
from unsnap.training import adapt


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A denoiser that darkens: D(x) = 0.9 x but for a little."""
    network = CNN(2, 4)
    with torch.no_grad():
        for weight in network.parameters():
            weight.copy_(0.01 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(0)))
        network.convs[0].weight[0, 0, 1, 1] = 1.0
        network.convs[1].weight[0, 0, 1, 1] = 0.1
    dark = Equilibrium(GAP(), network, tol=0.05, max_iter=40, about={"source": "a test"})
    return save(tmp_path / "dark.safetensors", dark)


def test_it_helps_and_says_so(unsnap: Callable, scene: Path, model: Path) -> None:
    done = unsnap("adapt", scene, "--model", model, "-o", "new.safetensors", "--steps", 50, "--rate", 3e-3, "--json")
    facts = done.json()
    assert done.code == 0, done.err
    assert (facts["helped"], facts["kept"], facts["output"]) == (True, "adapted", "new.safetensors")
    assert facts["held_out_after"] < facts["held_out_before"]
    assert facts["steps"] == 50
    assert done.err.count("held-out error") == 2
    adapted, original = load("new.safetensors"), load(model)
    assert adapted.about["source"] == "a test"
    assert adapted.about["adapted"]["capture"] == "scene.mat"
    assert {**describe(adapted), "about": None} == {**describe(original), "about": None}
    assert not torch.equal(adapted.network.convs[0].weight, original.network.convs[0].weight)
    scores = [
        unsnap("reconstruct", scene, "-m", name, "--json", "-q").json()["psnr"] for name in (model, "new.safetensors")
    ]
    assert scores[1] > scores[0] + 0.5


def test_nothing_is_written_if_it_did_not_help(unsnap: Callable, scene: Path, model: Path) -> None:
    before = {p: p.read_bytes() for p in Path().iterdir()}
    done = unsnap("adapt", scene, "--model", model, "--steps", 1, "--rate", 0.1)
    assert done.code == 0
    assert "It did not help" in done.out
    assert "Nothing was written" in done.out
    assert before == {p: p.read_bytes() for p in Path().iterdir()}


def test_default_name_and_people(unsnap: Callable, scene: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapt, "counts", lambda *gains: True)
    monkeypatch.setattr(adapt, "_FORGOTTEN", 100.0)
    done = unsnap("adapt", scene, "--model", model, "--snapshots", 1, "--steps", 3, "--rate", 3e-3)
    assert done.code == 0
    assert "It helped" in done.out
    assert "PSNR" in done.out
    assert Path("scene-dark.safetensors").is_file()
    assert unsnap("adapt", scene, "--model", model, "-o", "b.safetensors", "--steps", 1, "-q").err == ""


def test_interruption_leaves_nothing(
    unsnap: Callable, scene: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(adapt._Run, "check", interrupt)
    before = sorted(Path().iterdir())
    stopped = unsnap("adapt", scene, "--model", model, "--steps", 1)
    assert stopped.code == 130
    assert sorted(Path().iterdir()) == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["SCENE", "--model", "none.safetensors"], ["none.safetensors", "does not exist"]),
        (["SCENE", "--model", "broken.safetensors"], ["broken.safetensors", "not a readable safetensors file"]),
        (["SCENE", "--model", "no-such-model"], ["no shipped model 'no-such-model'"]),
        (
            ["SCENE", "--model", "unfolded.safetensors"],
            ["is an unfolded model, not an equilibrium"],
        ),
        (["SCENE", "--model", "MODEL", "-o", "broken.safetensors"], ["broken.safetensors exists", "--force"]),
        (["SCENE", "--model", "MODEL", "-o", "video.mp4"], ["video.mp4", ".safetensors"]),
        (["small.mat", "--model", "MODEL"], ["small.mat", "1000 measured pixels", "20×20"]),
        (["nan.mat", "--model", "MODEL"], ["nan.mat", "finite"]),
        (["missing.mat", "--model", "MODEL"], ["missing.mat"]),
        (["SCENE", "--model", "MODEL", "--device", "toaster"], ["toaster"]),
    ],
)
def test_mistakes(
    unsnap: Callable, scene: Path, model: Path, arrays: dict[str, np.ndarray], arguments: list[str], words: list[str]
) -> None:
    save("unfolded.safetensors", Unfolded(GAP(), CNN(2, 4), [0.1]))
    Path("broken.safetensors").write_bytes(model.read_bytes()[:100])
    scipy.io.savemat("small.mat", {"mask": arrays["mask"][:20, :20], "meas": arrays["meas"][:20, :20, 0]})
    scipy.io.savemat("nan.mat", {**arrays, "meas": np.where(arrays["meas"] > 300, np.nan, arrays["meas"])})
    before = {p: p.read_bytes() for p in Path().rglob("*") if p.is_file()}
    names = {"SCENE": str(scene), "MODEL": str(model)}
    failed = unsnap("adapt", *[names.get(a, a) for a in arguments], "-q")
    assert failed.code == 2, failed.err + failed.out
    flat = " ".join(failed.err.split())
    assert flat.startswith("Error: ")
    assert all(word in flat for word in words), flat
    assert before == {p: p.read_bytes() for p in Path().rglob("*") if p.is_file()}


def test_help_has_examples(unsnap: Callable) -> None:
    said = unsnap("adapt", "--help").out
    assert "--model mine.safetensors" in said
    assert "adapted.safetensors" in said
