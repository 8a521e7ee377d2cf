"""`unsnap certify NAME`: shipped models by name, and what is said of a model together with its solver."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from laws import forward_mode
from unsnap import zoo
from unsnap.algorithms import GAP
from unsnap.fixed_point import SOLVERS
from unsnap.methods import METHODS
from unsnap.models import Equilibrium, save
from unsnap.models.file import revived
from unsnap.networks import Certified, GradientStep

SMALL: dict[str, Any] = {"blocks": 1, "channels": 4, "hidden": 4}
KEYS = {
    "model", "certified", "map_certified", "descends", "kind", "bound", "solver", "within", "rounding",
    "local_lipschitz", "spectral_radius", "residual", "converged", "evaluations", "statement", "evidence",
    "float32_range", "float32_within",
}  # fmt: skip


@forward_mode
def test_the_command_that_methods_prints_works(unsnap: Callable) -> None:
    (name,) = re.findall(r"unsnap certify (\S+)", METHODS["guided-certified"].reference)
    run = unsnap("certify", name, "--crop", 16, "--iterations", 1, "--json")
    facts = run.json()
    assert run.code == 0, run.err
    assert set(facts) == KEYS
    assert (facts["model"], facts["certified"], facts["kind"]) == ("guided-certified", True, "contraction")
    assert facts["solver"] == "Anderson (safeguard 0.9)"
    assert 152 <= facts["within"] <= 156
    assert 0 < facts["rounding"] < 1e-5


@pytest.mark.parametrize(
    ("name", "words"),
    [("gmm", "a Gaussian mixture"), ("de-gup", "did you mean de-gap"), ("x.safetensors", "does not exist")],
)
def test_names_that_are_no_equilibrium_models(unsnap: Callable, name: str, words: str) -> None:
    run = unsnap("certify", name)
    assert run.code == 2
    assert words in run.err
    assert run.err.count("\n") == 1


@forward_mode
def test_a_file_without_the_suffix_is_not_taken_for_a_model(unsnap: Callable, tmp_path: Path) -> None:
    (tmp_path / "de-gup").write_bytes((zoo.FOLDER / "gmm.safetensors").read_bytes())
    run = unsnap("certify", "de-gup")
    assert run.code == 2
    assert "there is no shipped model 'de-gup'; did you mean de-gap" in run.err


MODELS: dict[str, tuple[str, Any, dict[str, Any], bool, bool, int | None]] = {
    "plain": ("certified", Certified, {"name": "picard"}, True, True, 249),
    "damped": ("certified", Certified, {"name": "picard", "damping": 0.5}, True, True, 501),
    "guarded": ("certified", Certified, {"name": "anderson", "safeguard": 0.9}, True, True, 496),
    "unguarded": ("certified", Certified, {"name": "anderson"}, False, True, None),
    "quasi-Newton": ("certified", Certified, {"name": "broyden"}, False, True, None),
    "descent": ("gradient_step", GradientStep, {"name": "picard"}, False, False, None),
}


@forward_mode
@pytest.mark.parametrize(
    ("name", "made", "solver", "certified", "map_certified", "within"), MODELS.values(), ids=MODELS
)
def test_what_is_said_follows_the_solver(
    unsnap: Callable,
    tmp_path: Path,
    name: str,
    made: Any,
    solver: dict[str, Any],
    certified: bool,
    map_certified: bool,
    within: int | None,
) -> None:
    torch.manual_seed(0)
    network = made(**SMALL) if name == "certified" else made(channels=4, kernel=3, convex=False)
    model = Equilibrium(GAP(), network, solver=revived(solver, SOLVERS), tol=1e-3, max_iter=100)
    path = save(tmp_path / "m.safetensors", model)
    facts = unsnap("certify", path, "--crop", 16, "--iterations", 1, "--json").json()
    assert (facts["certified"], facts["map_certified"]) == (certified, map_certified)
    assert facts["descends"] == (name == "gradient_step")
    assert ("nothing is proven about the solver" in facts["statement"]) == (map_certified and not certified)
    if within is None:
        assert facts["within"] is None
    else:
        assert within <= facts["within"] <= within + 10  # what rounding takes of the tolerance
        assert "(this model stops after 100)" in facts["statement"]
