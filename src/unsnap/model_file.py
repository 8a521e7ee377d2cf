"""One file, one model: weights as safetensors, architecture and solver settings in its metadata."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from unsnap.equilibrium import DEQ, STARTS, Step
from unsnap.errors import InputError
from unsnap.fixed_point import anderson, broyden, picard
from unsnap.fixed_point.solver import Solver
from unsnap.io import atomic_file
from unsnap.iterate import Solution, Watch
from unsnap.methods import Method
from unsnap.networks import build
from unsnap.operators import CodedOperator, Snapshot

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
    from safetensors.torch import save_file

    target = Path(path)
    if target.suffix != ".safetensors":
        raise InputError(f"{target} must end in .safetensors to be a model file")
    metadata = {"unsnap_model": str(FORMAT), "recipe": json.dumps(asdict(recipe))}
    with atomic_file(target) as temporary:
        save_file({k: v.detach().cpu().contiguous() for k, v in weights.items()}, temporary, metadata)
    return target


def load_model(path: str | Path) -> tuple[DEQ, Recipe]:
    """The model in a file written by `save_model`, in eval mode."""
    from safetensors import SafetensorError, safe_open

    source = Path(path)
    if not source.is_file():
        raise InputError(f"{source} does not exist; `unsnap import` makes a model file from published weights")
    try:
        with safe_open(source, framework="pt") as file:
            metadata = file.metadata() or {}
            weights = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise InputError(
            f"{source} is not a readable safetensors file ({error}); download or import it again"
        ) from error
    recipe = _recipe(source, metadata)
    model = recipe.model()
    try:
        model.network.load_state_dict(weights)
    except RuntimeError as error:
        first = str(error).splitlines()[1].strip() if "\n" in str(error) else str(error)
        raise InputError(f"{source}: its weights do not fit its architecture {recipe.network!r} ({first})") from error
    return model.eval(), recipe


def _recipe(source: Path, metadata: dict[str, str]) -> Recipe:
    if metadata.get("unsnap_model") != str(FORMAT):
        found = metadata.get("unsnap_model", "none")
        raise InputError(f"{source} is not an unsnap model of format {FORMAT} (format found: {found}); import it again")
    try:
        recipe = Recipe(**json.loads(metadata["recipe"]))
        Step(recipe.step, recipe.strength)
        _solver(recipe.solver)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{source} has unreadable metadata ({error}); import or train it again") from error
    if recipe.start not in STARTS:
        raise InputError(f"{source} asks for the start {recipe.start!r}; known are {', '.join(STARTS)}")
    return recipe


def _solver(settings: dict[str, Any]) -> Solver:
    options = dict(settings)
    return _SOLVERS[options.pop("name")](**options)


def as_method(path: str | Path) -> Method:
    """The model in a file as a method that `reconstruct`, `bench` and `compare` accept."""
    model, recipe = load_model(path)

    def solve(y: Tensor, phi: CodedOperator, iterations: int, watch: Watch) -> Solution:
        if not isinstance(phi, Snapshot):
            raise InputError(f"{path} reconstructs single snapshots, not {type(phi).__name__}")
        model.to(y.device)
        return model(y, phi, tol=watch["tol"], max_iter=iterations, callback=watch["callback"])  # type: ignore[no-any-return]

    return Method(
        name=Path(path).stem,
        family="equilibrium",
        summary=f"DE-{recipe.step.upper()} with {recipe.network}",
        reference=str(recipe.about.get("source", "")),
        solve=solve,
        iterations=recipe.max_iter,
        tol=recipe.tol,
        early=True,
    )
