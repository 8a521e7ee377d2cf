"""How strongly to denoise at each step: plain lists of numbers, one per iteration."""

from __future__ import annotations

from collections.abc import Sequence


def constant(value: float, n: int) -> list[float]:
    """The same value n times."""
    return [value] * n


def geometric(start: float, stop: float, n: int) -> list[float]:
    """n values from start to stop, each the same multiple of the one before.

    >>> geometric(0.4, 0.1, 3)
    [0.4, 0.2, 0.1]
    """
    if not start > 0 or not stop >= 0:
        raise ValueError(f"a geometric schedule falls from more than 0 to 0 or more, got {start} and {stop}")
    return [start * (stop / start) ** (k / max(n - 1, 1)) for k in range(n)]


def staged(levels: Sequence[float], n: int) -> list[float]:
    """n strengths in [0, 1] units from a few levels given in 255ths, which share the iterations evenly.

    >>> [round(255 * sigma) for sigma in staged([50, 25], 4)]
    [50, 50, 25, 25]
    """
    return [levels[k * len(levels) // n] / 255 for k in range(n)]
