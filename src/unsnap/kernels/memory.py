"""Memory that was freed goes back to the system: malloc keeps it, of small pictures up to four videos."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

MUCH = 1 << 20
"""Bytes of an array from which it is worth the half a millisecond that it takes."""


def give_back() -> None:
    """What is free in malloc's heap, between arrays that live, is the system's again; nothing where there is no glibc.

    Arrays of up to 32 MB lie in that heap, and whether one fits where another was is chance.
    """
    _trim()(0)


@cache
def _trim() -> Callable[[int], int]:
    try:
        trim: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return lambda padding: 0
    return trim
