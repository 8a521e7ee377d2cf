"""Weights that come with the package: one safetensors file and one card (Markdown) each."""

from __future__ import annotations

import difflib
from functools import lru_cache
from pathlib import Path

from unsnap.errors import InputError
from unsnap.models import Equilibrium, Model, file
from unsnap.models.file import AnyModel, Description

FOLDER = Path(__file__).parent


def names() -> list[str]:
    """The models that `load` knows."""
    return sorted(path.stem for path in FOLDER.glob(f"*{file.SUFFIX}"))


def load(name: str | Path) -> AnyModel:
    """A shipped model, or the model in a file (.safetensors), of its own: call it as `model(y, phi)`, or train it.

    >>> load("de-gap").iteration
    GAP()
    """
    return file.load(path_of(name))


def trainable(name: str | Path) -> Model:
    """The same for a model with networks; an InputError for a mixture."""
    model = load(name)
    if not isinstance(model, Model):
        raise InputError(f"{name} is a Gaussian mixture, which has no network; name a model such as de-gap")
    return model


def equilibrium(name: str | Path) -> Equilibrium:
    """The same for an equilibrium model; an InputError for any other."""
    model = load(name)
    if not isinstance(model, Equilibrium):
        kind = "an unfolded model" if isinstance(model, Model) else "a Gaussian mixture"
        raise InputError(f"{name} is {kind}, not an equilibrium; name one such as de-gap")
    return model


def description(name: str | Path) -> Description:
    """Architecture, start, solver and history of a model, without reading its weights."""
    return file.description(path_of(name))


def card(name: str) -> str:
    """What a shipped model was trained on, what it can do, and what it cannot."""
    return path_of(name).with_suffix(".md").read_text(encoding="utf-8")


@lru_cache(maxsize=8)
def shared(name: str) -> AnyModel:
    """One copy of a shipped model for all callers of this process, who must not change it (`models.base.fitted`)."""
    return load(name)


def path_of(name: str | Path) -> Path:
    """The file of a shipped model, or the path that was given."""
    if str(name).endswith(file.SUFFIX):
        return Path(name)
    if str(name) not in names():
        there = Path(name)
        if there.is_dir() or (there.suffix and there.exists()):
            raise InputError(
                f"{there} is no model file (*{file.SUFFIX}); a run of `unsnap train` has its own in best{file.SUFFIX}"
            )
        near = difflib.get_close_matches(str(name), names(), n=3, cutoff=0.4) or names()
        raise InputError(f"there is no shipped model {str(name)!r}; did you mean {', '.join(near)}?")
    return FOLDER / f"{name}{file.SUFFIX}"
