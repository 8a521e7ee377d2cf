"""How strongly to denoise at each step: plain lists of numbers, one per iteration."""

from __future__ import annotations


def constant(value: float, n: int) -> list[float]:
    """The same value n times."""
    return [value] * n


def geometric(start: float, stop: float, n: int) -> list[float]:
    """n values from start to stop, each the same multiple of the one before.

    >>> geometric(0.4, 0.1, 3)
    [0.4, 0.2, 0.1]
    """
    return [start * (stop / start) ** (k / max(n - 1, 1)) for k in range(n)]


def stages(values: list[float], each: int) -> list[float]:
    """Every value repeated `each` times: the piecewise-constant schedules of the plug-and-play papers.

    >>> stages([0.2, 0.1], 2)
    [0.2, 0.2, 0.1, 0.1]
    """
    return [value for value in values for _ in range(each)]
