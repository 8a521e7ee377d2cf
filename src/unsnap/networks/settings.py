"""Checks of constructor arguments, which may come from the metadata of a model file."""

from __future__ import annotations

from typing import Any

from unsnap.errors import InputError


def whole(owner: str, least: int = 1, **values: Any) -> None:
    """Every value is an integer >= least."""
    for name, value in values.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise InputError(f"{owner}: {name} must be a whole number >= {least}, got {value!r}")


def between(owner: str, low: float, high: float, **values: Any) -> None:
    """Every value is a number strictly between low and high."""
    for name, value in values.items():
        if not isinstance(value, (int, float)) or not low < value < high:
            raise InputError(f"{owner}: {name} must be a number between {low:g} and {high:g}, got {value!r}")


def flags(owner: str, **values: Any) -> None:
    """Every value is True or False."""
    for name, value in values.items():
        if not isinstance(value, bool):
            raise InputError(f"{owner}: {name} must be true or false, got {value!r}")
