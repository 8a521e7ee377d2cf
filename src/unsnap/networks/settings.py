"""Checks of constructor arguments, which may come from the metadata of a model file."""

from __future__ import annotations

from typing import Annotated, Any

from unsnap.errors import InputError, short
from unsnap.fields import Within, require

MOST = 2**16
"""Channels and so on; more would not fit into any machine."""
DEEPEST = 500
"""Layers or blocks: each costs time however small it is, and no published network has more."""


def whole(owner: str, least: int = 1, **values: Any) -> None:
    """Every value is an integer >= least."""
    for name, value in values.items():
        require(f"{owner}: {name}", value, Annotated[int, Within(least, _most(name))])


def _most(name: str) -> int:
    return DEEPEST if name in ("layers", "blocks") else MOST


def three(owner: str, **values: Any) -> None:
    """Every value is a list of three integers >= 1."""
    for name, value in values.items():
        require(f"{owner}: {name}", value, Annotated[list[Annotated[int, Within(1, _most(name))]], Within(3, 3)])


def between(owner: str, low: float, high: float, **values: Any) -> None:
    """Every value is a number strictly between low and high."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not low < value < high:
            raise InputError(f"{owner}: {name} must be a number between {low:g} and {high:g}, got {short(value)}")


def flags(owner: str, **values: Any) -> None:
    """Every value is True or False."""
    for name, value in values.items():
        require(f"{owner}: {name}", value, bool)
