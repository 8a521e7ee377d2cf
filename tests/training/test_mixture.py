"""Expectation maximisation: it climbs, it finds what was planted, and the command around it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

from laws import close, normal, seeded, uniform
from unsnap.cli.app import app
from unsnap.errors import InputError
from unsnap.models import load
from unsnap.training import mixture as em
from unsnap.training.mixture import MixtureConfig, clustered, fit

TINY = MixtureConfig(components=3, rank=4, patch=3, frames=2, patches=300, iterations=12, floor=1e-5)


def planted(n: int = 300) -> Tensor:
    """Patches of three kinds: dark, bright and striped."""
    kinds = torch.arange(n) % 3
    base = torch.stack([0.1 * normal(n, 2, 3, 3), 1 + 0.1 * normal(n, 2, 3, 3, seed=1), normal(n, 1, 1, 3, seed=2)
                        .expand(n, 2, 3, 3) + 0.01 * normal(n, 2, 3, 3, seed=3)], 1)  # fmt: skip
    return base[torch.arange(n), kinds]


@pytest.mark.parametrize("floor", [1e-5, 0.02])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_likelihood_never_falls(floor: float, seed: int) -> None:
    seen: list[float] = []
    config = MixtureConfig(**{**vars(TINY), "floor": floor, "components": 5})
    fit(planted(), config, seeded(seed), report=lambda k, value: seen.append(value))
    assert len(seen) == 12
    assert all(after >= before - 1e-9 for before, after in pairwise(seen)), seen
    assert seen[-1] > seen[0]


def test_one_component_is_mean_and_leading_covariance() -> None:
    x = planted()
    m = fit(x, MixtureConfig(**{**vars(TINY), "components": 1}), seeded())
    flat = x.flatten(1)
    close(m.means[0].flatten(), flat.mean(0))
    values = torch.linalg.eigvalsh(torch.cov(flat.T, correction=0))
    factor = m.factors[0].flatten(0, 2)
    close(m.white[0], values[:-4].mean(), 1e-9)
    close(torch.linalg.eigvalsh(factor.T @ factor) + m.white[0], values[-4:], 1e-9)


def test_planted_kinds_are_told_apart() -> None:
    x = planted()
    m = fit(x, TINY, seeded())
    labels = m.log_joint(x).argmax(1).reshape(-1, 3)
    assert all(len(set(labels[:, kind].tolist())) <= 1 + (kind == 2) for kind in range(3))
    close(m.weights.sum(), torch.ones((), dtype=torch.float64))


def test_the_floor_holds_and_alike_patches_do_no_harm() -> None:
    m = fit(torch.full((300, 2, 3, 3), 0.5).double(), TINY, seeded())
    assert float(m.white.min()) >= TINY.floor
    assert bool(torch.isfinite(m.log_joint(torch.full((1, 2, 3, 3), 0.5).double())).any())


def test_the_start_is_one_cluster_each() -> None:
    shares, m = clustered(planted(), TINY, seeded())
    close(shares.sum(1), torch.ones(300, dtype=torch.float64))
    assert bool(((shares == 0) | (shares == 1)).all())
    assert m.factors.shape == (3, 2, 3, 3, 4)


def test_the_seed_decides() -> None:
    first, second = (fit(uniform(300, 2, 3, 3), TINY, seeded(4)) for _ in range(2))
    assert torch.equal(first.factors, second.factors)


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"components": 0}, "components must be a whole number from 1 to 10000, got 0"),
        ({"floor": 0.0}, "floor must be a number above 0"),
        ({"rank": 2.5}, "rank"),
        ({"rank": 512}, "rank must be below the 512 numbers"),
        ({"patches": 10}, "need 64 patches, got 10"),
        ({"width": 3}, "no setting 'width'; known are components"),
    ],
)
def test_bad_settings(settings: dict[str, Any], word: str) -> None:
    with pytest.raises(InputError, match=word):
        MixtureConfig.of(settings)


# The command

SMALL = ["--set", "settings.components=3", "--set", "settings.rank=6", "--set", "settings.patches=80"]


@pytest.fixture
def train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return lambda *arguments: CliRunner().invoke(app, ["train", "--model", "gmm", *arguments])


@pytest.fixture
def clips(tmp_path: Path) -> str:
    np.savez(tmp_path / "clip.npz", frames=(255 * uniform(10, 32, 32)).byte().numpy())
    (tmp_path / "broken.gif").write_bytes(b"GIF89a")
    return str(tmp_path)


def test_command_writes_a_mixture_and_prints_the_likelihood(train: Callable[..., Any], clips: str) -> None:
    done = train(clips, "-o", "run", "--steps", "3", *SMALL)
    assert done.exit_code == 0, done.output
    assert done.output.count("log-likelihood") == 3
    assert load("run/best.safetensors").mixture.factors.shape == (3, 8, 8, 8, 6)
    assert [p.name for p in Path("run").iterdir()] == ["best.safetensors"]
    assert "Skipped" in done.output
    again = train(clips, "-o", "run", "--steps", "3", *SMALL)
    assert again.exit_code == 2
    assert "run/best.safetensors exists" in " ".join(again.output.split())


def test_interruption_leaves_nothing(train: Callable[..., Any], clips: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(em.Mixture, "log_joint", interrupted)
    assert train(clips, "-o", "run", *SMALL).exit_code == 130
    assert not list(Path().rglob("*"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere"], ["nowhere", "folder"]),
        (["--resume", "run"], ["--resume", "--model gmm"]),
        (["--network", "cnn"], ["--network"]),
        (["--validation", "clips"], ["--validation"]),
        (["--set", "batch=4"], ["batch", "no effect"]),
        (["--set", "settings.width=4"], ["width", "components"]),
        (["--set", "settings.components=many"], ["components", "many"]),
    ],
)
def test_mistakes(train: Callable[..., Any], arguments: list[str], words: list[str]) -> None:
    failed = train(*arguments)
    flat = " ".join(failed.output.split())
    assert failed.exit_code == 2, flat
    assert flat.startswith("Error: ")
    assert all(word in flat for word in words), flat
    assert not list(Path().rglob("*"))
