"""One file, one model: weights as safetensors, and everything else that decides the video in its metadata.

    {"kind": "equilibrium", "iteration": {"name": "gap"}, "network": {"name": "shift", "settings": {...}},
     "sigma": 0.0, "start": {"name": "low_rank", "patch": 10, ...}, "solver": {"name": "anderson", ...}, ...}

Iteration, start and solver are values: their name and their numbers. A kind of model is one entry of `KINDS`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields, is_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import torch
from torch import Tensor, nn

from unsnap import networks
from unsnap.algorithms import ITERATIONS
from unsnap.errors import InputError, short
from unsnap.fields import Share, Size, Within, check, parsed, require
from unsnap.fixed_point import SOLVERS, unroll
from unsnap.fixed_point.backward import Unroll
from unsnap.io import atomic_file
from unsnap.io.budget import claim
from unsnap.io.checks import existing
from unsnap.models.base import Model, check_calls
from unsnap.models.bounds import check_numbers, within
from unsnap.models.equilibrium import Equilibrium
from unsnap.models.format_1 import from_format_1, is_format_1
from unsnap.models.starts import STARTS
from unsnap.models.unfolded import Unfolded
from unsnap.networks.foreign import check_weights
from unsnap.priors.gmm import GMM, Mixture
from unsnap.registry import Registry

FORMAT = 2
SUFFIX = ".safetensors"
AnyModel = Model | GMM
Description = dict[str, Any]
Weights = dict[str, Tensor]
_Evaluations = Annotated[int, Within(1, 10**6)]
_Stages = Annotated[list[dict[str, Any]], Within(1, 1000)]


def save(path: str | Path, model: AnyModel, *, overwrite: bool = True) -> Path:
    """Write a model file atomically; an InputError if it holds something that nobody could load again.

    Means and factors of a Gaussian mixture are kept in 16 bits.
    """
    from safetensors.torch import save as as_bytes

    target = Path(path)
    if target.suffix != SUFFIX:
        raise InputError(f"{target} must end in {SUFFIX} to be a model file")
    weights = {k: v.detach().cpu().contiguous() for k, v in _kind_of(model).weights(model).items()}
    facts = describe(model)
    check_weights("this model", weights)
    try:
        text = json.dumps(facts)
        content = as_bytes(weights, {"unsnap_model": str(FORMAT), "model": text})
        _kind_of(model).fill(build(json.loads(text)), weights)
    except InputError as error:
        raise InputError(
            f"this model cannot be saved, as nobody could load it again ({error}); make it with other values"
        ) from error
    except (TypeError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise InputError(
            f"this model cannot be saved, as nobody could load it again ({reason}); its settings and `about` must be "
            "numbers and words, and no two networks may share their weights: one for all stages is given alone"
        ) from error
    with atomic_file(target, overwrite=overwrite) as temporary:
        temporary.write_bytes(content)
    return target


def load(path: str | Path) -> AnyModel:
    """The model in a file written by `save` (or by an unsnap of format 1), in eval mode; call it as `model(y, phi)`."""
    source = Path(path)
    description, weights = _read(source, weights=True)
    check_weights(source, weights)
    return _built(source, description, weights)


def description(path: str | Path) -> Description:
    """All about the model in a file but its weights, which are not read."""
    return _read(Path(path), weights=False)[0]


def describe(model: AnyModel) -> Description:
    """A model without its weights, as JSON has it."""
    kind = _kind_of(model)
    return {"kind": next(name for name, known in KINDS.items() if known is kind), **kind.describe(model)}


def build(described: Mapping[str, Any], weights: Weights | None = None) -> AnyModel:
    """The model of a description with fresh weights; it may have no more of them than a file holds, if given."""
    facts = dict(described)
    kind = _kind(facts.pop("kind", None))
    check_numbers(facts)
    with within(facts, weights), torch.random.fork_rng(devices=[]):  # nobody else's random numbers change
        return kind.build(facts)


# ---------------------------------------------------------------------- kinds of models


class Kind(NamedTuple):
    """How one kind of model is described, built again, and what its tensors are."""

    type: type
    describe: Callable[[Any], Description]
    build: Callable[[Description], AnyModel]
    weights: Callable[[Any], Weights]
    fill: Callable[[Any, Weights], AnyModel]


def _describe_equilibrium(model: Equilibrium) -> Description:
    learned = isinstance(model.sigma, nn.Parameter)
    if isinstance(model.sigma, Tensor) and model.sigma.numel() != 1:
        raise InputError(
            f"a model with a sigma of shape {tuple(model.sigma.shape)} cannot be saved; give it one number"
        )
    return {
        "iteration": described(model.iteration, ITERATIONS),
        "network": networks.describe(model.network),
        "sigma": float(model.sigma.detach() if learned else model.sigma),
        "learned_sigma": learned,
        "start": described(model.start, STARTS),
        "solver": described(model.solver, SOLVERS),
        "tol": model.tol,
        "max_iter": model.max_iter,
        # The other ways back change the gradient alone, which is chosen again by whoever goes on training.
        **({"unroll": model.backward.steps} if isinstance(model.backward, Unroll) else {}),
        "about": model.about,
    }


def _build_equilibrium(facts: Description) -> Equilibrium:
    facts = dict(facts)
    network, iteration = _network(facts.pop("network")), revived(facts.pop("iteration"), ITERATIONS)
    start, solver = revived(facts.pop("start"), STARTS), revived(facts.pop("solver"), SOLVERS)
    check_calls(iteration, network)
    sigma, tol, max_iter = facts.pop("sigma"), facts.pop("tol"), facts.pop("max_iter")
    learned, steps = facts.pop("learned_sigma", False), facts.pop("unroll", None)
    for name, value, kind in (
        ("learned_sigma", learned, bool), ("sigma", sigma, float if learned else Size), ("tol", tol, Share),
        ("max_iter", max_iter, _Evaluations), ("unroll", 1 if steps is None else steps, _Evaluations),
    ):  # fmt: skip
        require(name, value, kind)
    level = nn.Parameter(torch.tensor(float(sigma))) if learned else sigma
    backward = None if steps is None else unroll(steps)
    return Equilibrium(
        iteration, network, level, start=start, solver=solver, backward=backward, tol=tol, max_iter=max_iter,
        about=_about(facts),
    )  # fmt: skip


def _describe_unfolded(model: Unfolded) -> Description:
    return {
        "iteration": described(model.iteration, ITERATIONS),
        "networks": [networks.describe(network) for network in model.networks],
        "sigmas": model.sigmas.tolist(),
        "learn_sigmas": model.sigmas.requires_grad,
        "start": described(model.start, STARTS),
        "about": model.about,
    }


def _build_unfolded(facts: Description) -> Unfolded:
    facts = dict(facts)
    iteration, start = revived(facts.pop("iteration"), ITERATIONS), revived(facts.pop("start"), STARTS)
    stages, sigmas, learn = facts.pop("networks"), facts.pop("sigmas"), facts.pop("learn_sigmas", False)
    about = _about(facts)
    require("learn_sigmas", learn, bool)
    require("networks", stages, _Stages)
    require("sigmas", sigmas, Annotated[list[float if learn else Size], Within(1, 1000)])  # type: ignore[misc]
    built = [_network(net) for net in stages]
    for network in built:
        check_calls(iteration, network)
    return Unfolded(iteration, built, sigmas, start=start, learn_sigmas=learn, about=about)


def _describe_mixture(model: GMM) -> Description:
    numbers = {f.name: getattr(model, f.name) for f in fields(model) if f.name != "mixture"}
    return {**numbers, "about": dict(model.about)}


def _build_mixture(facts: Description) -> GMM:
    return GMM(Mixture.empty(), **facts)


def _mixture_weights(model: GMM) -> Weights:
    """Means and factors in 16 bits."""
    own = vars(model.mixture)
    return {k: v.half() if k in ("means", "factors") else v.float() for k, v in own.items()}


def _fill(model: Model, weights: Weights) -> Model:
    for key, own in model.state_dict().items():
        if key in weights and weights[key].is_floating_point() != own.is_floating_point():
            raise ValueError(f"{key} is of type {weights[key].dtype}, not {own.dtype}")
    for key, own in (*model.named_parameters(), *model.named_buffers()):
        if key in weights and weights[key].dtype == torch.float64:  # what is in half precision can be computed with
            own.data = own.data.double()
    model.load_state_dict(weights)
    return model.eval()


def _fill_mixture(model: GMM, weights: Weights) -> GMM:
    for key, value in weights.items():
        if not value.is_floating_point():
            raise ValueError(f"{key} is of type {value.dtype}, not a real number")
    return replace(model, mixture=Mixture(**{k: v.float() for k, v in weights.items()}).checked())


def _state(model: Model) -> Weights:
    return dict(model.state_dict())


KINDS: dict[str, Kind] = {
    "equilibrium": Kind(Equilibrium, _describe_equilibrium, _build_equilibrium, _state, _fill),
    "unfolded": Kind(Unfolded, _describe_unfolded, _build_unfolded, _state, _fill),
    "mixture": Kind(GMM, _describe_mixture, _build_mixture, _mixture_weights, _fill_mixture),
}


def _kind_of(model: AnyModel) -> Kind:
    for kind in KINDS.values():
        if type(model) is kind.type:
            return kind
    raise InputError(f"{type(model).__name__} is no kind of model that a file can hold; these are {', '.join(KINDS)}")


def _kind(name: object) -> Kind:
    if not isinstance(name, str) or name not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {short(name)}")
    return KINDS[name]


# ---------------------------------------------------------------------- values as JSON


def described(value: object, known: Mapping[str, Callable[..., Any]]) -> Description:
    """A frozen dataclass as its registered name and its fields."""
    kind = type(value)
    names = {n for n, make in known.items() if make is kind}
    # A solver is registered by the function that makes it.
    names |= {n for n, make in known.items() if not isinstance(make, type) and n == kind.__name__.lower()}
    name = next(iter(names), None) or (known.name_of(kind) if isinstance(known, Registry) else None)
    if name is None or not is_dataclass(value) or isinstance(value, type):
        raise InputError(f"{value!r} cannot be saved in a model file; use a registered value: {', '.join(known)}")
    numbers = {k: str(v).removeprefix("torch.") if isinstance(v, torch.dtype) else v for k, v in asdict(value).items()}
    return {"name": name, **numbers}


def revived(facts: Mapping[str, Any], known: Mapping[str, Callable[..., Any]]) -> Any:
    """The value that `described` described."""
    require("iteration, start and solver", facts, dict)
    numbers = dict(facts)
    name = numbers.pop("name", None)
    find = getattr(known, "find", None)
    make = find(name) if find is not None and isinstance(name, str) else known.get(name)
    if make is None:
        raise ValueError(f"name must be one of {', '.join(known)}, got {short(name)}")
    history = numbers.get("history")
    if isinstance(history, str):
        numbers["history"] = getattr(torch, history)
    numbers = {**getattr(make, "IN_OLD_FILES", {}), **numbers}
    check(f"{name}: ", make, numbers)
    return make(**numbers)


def _network(facts: Mapping[str, Any]) -> nn.Module:
    require("network", facts, dict)
    require("settings", facts["settings"], dict)
    return networks.build(str(facts["name"]), dict(facts["settings"]))


def _about(facts: Description) -> Description:
    """What is left of a description: nothing but words for people."""
    about = facts.pop("about", {})
    if facts or not isinstance(about, dict):
        found = f"{short(about)} and {short(list(facts))}"
        raise ValueError(f"about must be a dictionary, and nothing else is known, got {found}")
    return about


# ---------------------------------------------------------------------- reading


def _read(source: Path, *, weights: bool) -> tuple[Description, Weights]:
    from safetensors import SafetensorError, safe_open

    if existing(source).is_dir():
        raise InputError(f"{source} is not a file; `unsnap import` makes a model file from published weights")
    claim(source, 3 * source.stat().st_size if weights else 0)  # as read, as weights, and while they are copied
    try:
        with safe_open(source, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {key: file.get_tensor(key) for key in file.keys()} if weights else {}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise InputError(
            f"{source} is not a readable safetensors file ({error}); download or import it again"
        ) from error
    found = metadata.get("unsnap_model", "none")
    try:
        if is_format_1(metadata):
            return from_format_1(metadata, tensors)
        if found == str(FORMAT):
            return dict(parsed(metadata.get("model", ""), "its description")), tensors
    except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError, RecursionError) as error:
        raise _unusable(source, error) from error
    raise InputError(
        f"{source} is not an unsnap model of format 1 or {FORMAT} (format found: {found}); import it again"
    )


def _built(source: Path, facts: Description, weights: Weights) -> AnyModel:
    try:
        kind = _kind(facts.get("kind"))
        model = build(facts, weights)
    except InputError as error:
        raise InputError(f"{source} cannot be used: {error}") from error
    except (TypeError, ValueError, AttributeError, RuntimeError, LookupError, ArithmeticError) as error:
        raise _unusable(source, error) from error
    try:
        return kind.fill(model, weights)
    except (RuntimeError, TypeError, ValueError, LookupError) as error:
        first = str(error).splitlines()[1].strip() if "\n" in str(error) else str(error)
        raise InputError(
            f"{source}: its weights do not fit its architecture ({first.rstrip('. ')}); import or train it again"
        ) from error


def _unusable(source: Path, error: Exception) -> InputError:
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return InputError(
        f"{source} has settings that cannot be used ({reason}); update unsnap, or import or train it again"
    )
