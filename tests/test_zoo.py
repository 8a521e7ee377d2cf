"""The shipped models: small, described, converging, and better than the classical method they start from."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from unsnap import methods, psnr, zoo
from unsnap.errors import InputError
from unsnap.masks import bernoulli, gray
from unsnap.models.stability import certify
from unsnap.operators import Snapshot
from unsnap.simulate import render

EQUILIBRIA = ["de-gap", "de-agap", "de-agap-certified", "de-rnn", "guided-certified"]


def scene(frames: int, height: int, width: int, seed: int = 5) -> tuple[torch.Tensor, Snapshot]:
    video = render(frames, height, width, seed=seed)
    return video, Snapshot(bernoulli(frames, height, width, generator=torch.Generator().manual_seed(seed)))


def test_what_is_shipped() -> None:
    assert {*EQUILIBRIA, "shift-net", "denoiser", "gmm"} <= set(zoo.names())


@pytest.mark.parametrize("name", zoo.names())
def test_a_shipped_file_is_small_and_has_a_card(name: str) -> None:
    path = Path(zoo.__file__).parent / f"{name}.safetensors"
    assert path.stat().st_size <= 6 * 2**20
    card = zoo.card(name)
    for word in (
        "Architecture",
        "Data and licences",
        "Command",
        "Seed",
        "Minutes trained",
        "Results",
        "Ablation",
        "Classical",
        "Limits",
        "Certificate",
    ):
        assert f"**{word}**" in card, f"the card of {name} says nothing about {word}"


@pytest.mark.parametrize("name", EQUILIBRIA)
def test_the_method_and_the_recipe_agree(name: str) -> None:
    facts, method = zoo.description(name), methods.get(name)
    assert (method.tol, method.iterations) == (facts["tol"], facts["max_iter"])


@pytest.mark.parametrize("name", [*EQUILIBRIA, "shift-net", "pnp"])
@pytest.mark.parametrize("size", [(4, 24, 40), (11, 17, 31), (1, 16, 16)])
def test_any_number_of_frames_and_any_size(name: str, size: tuple[int, int, int]) -> None:
    video, phi = scene(*size)
    solution = methods.get(name)(phi.A(video), phi, iterations=3)
    assert solution.x.shape == video.shape
    assert bool(torch.isfinite(solution.x).all())


@pytest.mark.parametrize("name", EQUILIBRIA)
def test_the_scale_of_the_masks_does_not_matter(name: str) -> None:
    video = render(8, 24, 24, seed=2)
    masks = gray(8, 24, 24, generator=torch.Generator().manual_seed(0))
    small, large = (methods.get(name)(Snapshot(m).A(video), Snapshot(m), iterations=3).x for m in (masks, 255 * masks))
    assert torch.allclose(small, large, atol=1e-3)


def test_the_flagship_beats_gap_tv_on_a_scene_it_was_not_trained_on() -> None:
    gains = []
    for seed in (21, 22):
        video, phi = scene(8, 48, 48, seed)
        y = phi.A(video)
        scores = [float(psnr(methods.get(name)(y, phi).x, video).mean()) for name in ("gap-tv", "de-gap")]
        gains.append(scores[1] - scores[0])
    assert sum(gains) / len(gains) > 0.5, gains


def test_the_certified_models_hold_their_certificates() -> None:
    splitting = certify(zoo.load("de-agap-certified"))
    assert (splitting.certified, splitting.kind) == (True, "splitting")
    certificate = certify(zoo.load("guided-certified"))
    assert certificate.certified
    assert certificate.kind == "contraction"
    assert certificate.bound is not None
    assert certificate.bound < 1
    assert math.isfinite(certificate.bound)


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(InputError, match="de-gap"):
        zoo.load("degap")


def test_loading_twice_gives_two_models() -> None:
    first, second = zoo.load("de-gap"), zoo.load("de-gap")
    assert first is not second
    assert zoo.shared("de-gap") is zoo.shared("de-gap")


def test_a_run_or_its_checkpoint_is_not_taken_for_a_misspelt_name(tmp_path: Path) -> None:
    (tmp_path / "checkpoint.pt").touch()
    for path in (tmp_path, tmp_path / "checkpoint.pt"):
        with pytest.raises(InputError, match=r"is no model file .* has its own in best\.safetensors"):
            zoo.load(path)
