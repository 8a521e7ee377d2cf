"""Schedules are plain lists of the promised length and values."""

from __future__ import annotations

import itertools

import pytest

from unsnap.algorithms.schedules import constant, geometric, staged


@pytest.mark.parametrize("n", [0, 1, 2, 7])
def test_lengths(n: int) -> None:
    assert constant(0.3, n) == [0.3] * n
    assert len(geometric(0.5, 0.01, n)) == n
    assert len(staged([50, 25], n)) == n


@pytest.mark.parametrize(("start", "stop"), [(0.5, 0.01), (0.01, 0.5), (1e-6, 1e6), (0.2, 0.2)])
def test_geometric_has_one_ratio_and_both_ends(start: float, stop: float) -> None:
    values = geometric(start, stop, 9)
    assert values[0] == start
    assert values[-1] == pytest.approx(stop, rel=1e-12)
    ratios = [b / a for a, b in itertools.pairwise(values)]
    assert ratios == pytest.approx([(stop / start) ** (1 / 8)] * 8, rel=1e-12)


def test_geometric_of_one_value_is_the_start() -> None:
    assert geometric(0.4, 0.1, 1) == [0.4]


def test_stages_share_the_iterations_in_their_order() -> None:
    assert staged([51, 255, 102], 6) == [0.2, 0.2, 1.0, 1.0, 0.4, 0.4]
    assert [255 * s for s in staged([4, 2], 5)] == pytest.approx([4, 4, 4, 2, 2])
