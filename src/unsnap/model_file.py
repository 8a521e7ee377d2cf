"""One file, one model: weights as safetensors, architecture and solver settings in its metadata."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unsnap.equilibrium import DEQ, STARTS, Step
from unsnap.errors import InputError
from unsnap.fixed_point import anderson, broyden, picard
from unsnap.fixed_point.solver import Solver
from unsnap.io import atomic_file
from unsnap.iterate import Solution, Watch
from unsnap.methods import Method
from unsnap.mixture_file import is_mixture
from unsnap.networks import build
from unsnap.networks.settings import whole
from unsnap.operators import CodedOperator, Snapshot
from unsnap.patch_methods import mixture_method

FORMAT = 1
_SOLVERS: dict[str, Callable[..., Solver]] = {"anderson": anderson, "broyden": broyden, "picard": picard}


@dataclass(frozen=True)
class Recipe:
    """Everything about an equilibrium model that is not a weight; JSON in the file's metadata."""

    network: str
    settings: dict[str, Any] = field(default_factory=dict)
    step: str = "gap"
    strength: float = 1.0
    sigma: float = 0.0
    solver: dict[str, Any] = field(default_factory=lambda: {"name": "anderson"})
    start: str = "least_squares"
    tol: float = 1e-4
    max_iter: int = 100
    about: dict[str, Any] = field(default_factory=dict)
    """Where the weights come from, for people."""

    def __post_init__(self) -> None:
        Step(self.step, self.strength)
        _solver(self.solver)
        if (self.step == "rnn") != (self.network == "rnn"):
            raise ValueError(f"the step {self.step!r} and the network {self.network!r} do not go together")
        if self.start not in STARTS:
            raise ValueError(f"start must be one of {', '.join(STARTS)}, got {self.start!r}")
        whole("recipe", max_iter=self.max_iter)
        for name, value in (("sigma", self.sigma), ("tol", self.tol)):
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
                raise ValueError(f"{name} must be a number >= 0, got {value!r}")
        if not isinstance(self.about, dict):
            raise ValueError(f"about must be a dictionary, got {self.about!r}")

    def model(self) -> DEQ:
        """The model with fresh weights."""
        return DEQ(
            Step(self.step, self.strength),
            build(self.network, self.settings),
            self.sigma,
            solver=_solver(self.solver),
            start=STARTS[self.start],
            tol=self.tol,
            max_iter=self.max_iter,
        )


def save_model(path: str | Path, recipe: Recipe, weights: dict[str, Tensor]) -> Path:
    """Write a model file atomically."""
    from safetensors.torch import save

    target = Path(path)
    if target.suffix != ".safetensors":
        raise InputError(f"{target} must end in .safetensors to be a model file")
    metadata = {"unsnap_model": str(FORMAT), "recipe": json.dumps(asdict(recipe))}
    with atomic_file(target) as temporary:
        temporary.write_bytes(save({k: v.detach().cpu().contiguous() for k, v in weights.items()}, metadata))
    return target


def load_model(path: str | Path) -> tuple[DEQ, Recipe]:
    """The model in a file written by `save_model`, in eval mode."""
    from safetensors import SafetensorError, safe_open

    source = Path(path)
    if not source.is_file():
        raise InputError(f"{source} is not a file; `unsnap import` makes a model file from published weights")
    try:
        with safe_open(source, framework="pt") as file:
            metadata = file.metadata() or {}
            weights = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise InputError(
            f"{source} is not a readable safetensors file ({error}); download or import it again"
        ) from error
    broken = [key for key, value in weights.items() if not bool(torch.isfinite(value).all())]
    if broken:
        raise InputError(f"{source}: {broken[0]} holds NaN or Inf, of no use; import or train it again")
    model, recipe = _built(source, metadata)
    try:
        model.network.load_state_dict(weights)
    except RuntimeError as error:
        first = str(error).splitlines()[1].strip() if "\n" in str(error) else str(error)
        raise InputError(
            f"{source}: its weights do not fit its architecture {recipe.network!r} ({first.rstrip('. ')}); "
            "import or train it again"
        ) from error
    return model.eval(), recipe


def _built(source: Path, metadata: dict[str, str]) -> tuple[DEQ, Recipe]:
    """The model that the metadata describe, before its weights."""
    found = metadata.get("unsnap_model", "none")
    if found != str(FORMAT):
        raise InputError(f"{source} is not an unsnap model of format {FORMAT} (format found: {found}); import it again")
    try:
        recipe = Recipe(**json.loads(metadata.get("recipe", "")))
        return recipe.model(), recipe
    except (TypeError, ValueError, AttributeError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"{source} has settings that cannot be used ({reason}); update unsnap, or import or train it again"
        ) from error


def _solver(settings: dict[str, Any]) -> Solver:
    options = dict(settings)
    name = options.pop("name", None)
    if name not in _SOLVERS:
        raise ValueError(f"solver must be one of {', '.join(_SOLVERS)}, got {name!r}")
    return _SOLVERS[name](**options)


def as_method(path: str | Path) -> Method:
    """The model in a file as a method that `reconstruct`, `bench` and `compare` accept."""
    if is_mixture(path):
        return mixture_method(path)
    model, recipe = load_model(path)
    return Method(
        name=Path(path).stem,
        family="equilibrium",
        summary=f"DE-{recipe.step.upper()} with {recipe.network}",
        reference=str(recipe.about.get("source", "")),
        solve=lambda y, phi, iterations, watch: run(model, str(path), y, phi, iterations, watch),
        iterations=recipe.max_iter,
        tol=recipe.tol,
        early=True,
    )


def run(model: DEQ, name: str, y: Tensor, phi: CodedOperator, iterations: int, watch: Watch) -> Solution:
    """An equilibrium model as the `solve` of a method."""
    if not isinstance(phi, Snapshot):
        raise InputError(f"{name} reconstructs single snapshots, not {type(phi).__name__}")
    try:
        return model.to(y)(y, phi, tol=watch["tol"], max_iter=iterations, callback=watch["callback"])  # type: ignore[no-any-return]
    except ValueError as error:
        raise InputError(f"{name} cannot reconstruct this: {error}") from error
