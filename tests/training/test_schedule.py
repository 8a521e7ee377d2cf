"""Stages and rates as functions of how much of the run is done."""

from __future__ import annotations

from dataclasses import replace

import pytest

from unsnap.training import Config
from unsnap.training.schedule import gaussian_share, learning_rate, progress

CONFIG = Config(steps=100, gaussian=0.1, blend=0.3, gaussian_share=0.2, rate=1e-3, warmup=10)


def test_gaussian_share() -> None:
    assert [gaussian_share(CONFIG, p) for p in (0, 0.05, 0.0999)] == [1, 1, 1]
    assert gaussian_share(CONFIG, 0.2) == pytest.approx(0.2 + 0.8 * 0.5)
    assert [gaussian_share(CONFIG, p) for p in (0.3, 0.7, 1.0)] == pytest.approx([0.2] * 3)
    shares = [gaussian_share(CONFIG, k / 100) for k in range(101)]
    assert shares == sorted(shares, reverse=True)


def test_gaussian_share_without_a_ramp() -> None:
    assert gaussian_share(Config(steps=1, gaussian=0, blend=0, gaussian_share=0), 0) == 0
    assert gaussian_share(Config(steps=1, gaussian=0.5, blend=0.1, gaussian_share=0), 0.6) == 0
    assert gaussian_share(Config(steps=1, gaussian=1, blend=1), 0.99) == 1


def test_learning_rate_warms_up_and_falls() -> None:
    assert learning_rate(CONFIG, 5, 0.0) == pytest.approx(5e-4)
    assert learning_rate(CONFIG, 10, 0.0) == pytest.approx(1e-3)
    assert learning_rate(CONFIG, 50, 0.5) == pytest.approx(0.51e-3)
    assert learning_rate(CONFIG, 100, 1.0) == pytest.approx(0.02e-3)
    assert learning_rate(CONFIG, 200, 1.5) == pytest.approx(0.02e-3)


def test_rate_end_is_what_is_left_at_the_end() -> None:
    steady, half = replace(CONFIG, rate_end=1.0), replace(CONFIG, rate_end=0.5)
    assert [learning_rate(steady, 50, done) for done in (0.2, 0.5, 1.0)] == pytest.approx([1e-3] * 3)
    assert [learning_rate(half, 50, done) for done in (0.5, 1.0)] == pytest.approx([0.75e-3, 0.5e-3])


def test_whichever_ends_first() -> None:
    both = Config(steps=100, minutes=2)
    assert progress(both, 50, 6) == 0.5
    assert progress(both, 50, 90) == 0.75
    assert progress(Config(minutes=2), 10**6, 60) == 0.5


def test_a_short_run_is_not_all_warm_up() -> None:
    """A tenth of it at the most, whatever `warmup` says."""
    short = Config(steps=20, rate=1e-3, warmup=200)
    assert learning_rate(short, 1, 0.05) == pytest.approx(0.5e-3, rel=0.01)
    assert max(learning_rate(short, k, k / 20) for k in range(1, 21)) > 0.97e-3
