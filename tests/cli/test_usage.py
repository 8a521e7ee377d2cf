"""Mistakes in the options are one sentence and exit code 2, like every other mistake."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["recon", "x.mat"], ["recon", "unsnap --help"]),
        (["reconstruct"], ["FILE", "reconstruct --help"]),
        (["reconstruct", "x.mat", "--seed", "99999999999999999999"], ["--seed", "reconstruct --help"]),
        (["simulate", "-o", "s.npz", "--seed", "-1"], ["--seed", "simulate --help"]),
        (["bench", "x.mat", "--fast\n"], ["--fast", "bench --help"]),
    ],
)
def test_one_sentence(unsnap: Callable, arguments: list[str], words: list[str]) -> None:
    run = unsnap(*arguments)
    assert run.code == 2
    assert run.out == ""
    (line,) = run.err.splitlines()
    assert line.startswith("Error: ")
    assert all(word in line for word in words)
