"""Memory that was freed goes back to the system: malloc keeps it, of small pictures up to four videos."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

MUCH = 1 << 20
"""Bytes that are worth the milliseconds that giving back takes, and getting new pages."""


def give_back(needed: int) -> None:
    """What is free between the arrays in malloc's heap is the system's again, before `needed` bytes are asked for.

    Arrays of up to 32 MB lie in that heap, and whether one fits where another was is chance. Nothing is done for a few
    bytes, nor where malloc is not glibc's.
    """
    if needed >= MUCH:
        _trim()(0)


@cache
def _trim() -> Callable[[int], int]:
    try:
        trim: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return lambda padding: 0
    return trim
