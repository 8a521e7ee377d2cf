"""Weights that come with the package: one safetensors file and one card (Markdown) each."""

from __future__ import annotations

import difflib
from functools import lru_cache
from pathlib import Path

from unsnap.equilibrium import DEQ
from unsnap.errors import InputError
from unsnap.mixture_file import is_mixture, load_mixture
from unsnap.model_file import Recipe, load_model
from unsnap.priors.gmm import Mixture

FOLDER = Path(__file__).parent


def names() -> list[str]:
    """The models that `load` knows."""
    return sorted(path.stem for path in FOLDER.glob("*.safetensors"))


def load(name: str) -> DEQ | Mixture:
    """A shipped model: one ready to call as `model(y, phi)`, with `.network` its denoiser(x, sigma), or a mixture.

    >>> model = load("de-gap")
    >>> model.step.name
    'gap'
    """
    path = _path(name)
    return load_mixture(path) if is_mixture(path) else load_model(path)[0]


def equilibrium(name: str) -> DEQ:
    """A shipped equilibrium model; an InputError for a mixture."""
    model = load(name)
    if isinstance(model, Mixture):
        raise InputError(
            f"{name} is a Gaussian mixture, which has no network; name an equilibrium model such as de-gap"
        )
    return model


def recipe(name: str) -> Recipe:
    """Architecture, solver and history of a shipped model."""
    return load_model(_path(name))[1]


def card(name: str) -> str:
    """What a shipped model was trained on, what it can do, and what it cannot."""
    return _path(name).with_suffix(".md").read_text(encoding="utf-8")


@lru_cache(maxsize=8)
def shared(name: str) -> DEQ:
    """One copy of a model for all callers of this process, who must not change it."""
    return equilibrium(name)


@lru_cache(maxsize=2)
def shared_mixture(name: str) -> Mixture:
    """One copy of a mixture for all callers of this process."""
    return load_mixture(_path(name))


def _path(name: str) -> Path:
    if name not in names():
        near = difflib.get_close_matches(name, names(), n=3, cutoff=0.4) or names()
        raise InputError(f"there is no shipped model {name!r}; did you mean {', '.join(near)}?")
    return FOLDER / f"{name}.safetensors"
