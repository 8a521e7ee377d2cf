"""Mistakes in the options are one sentence and exit code 2, like every other mistake."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from unsnap.cli.usage import NAMES, function


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


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_what_needs_no_computing_does_not_wait_for_torch(option: str) -> None:
    program = f"import sys; from unsnap.cli import main; sys.argv[1:] = [{option!r}]; main()"
    done = subprocess.run([sys.executable, "-v", "-c", program], capture_output=True, text=True, check=True)
    assert "import 'unsnap.cli.usage'" in done.stderr
    assert not any(f"import '{name}'" in done.stderr for name in ("torch", "numpy", "numba"))


def test_the_help_shows_of_each_command_what_it_says_of_itself(unsnap: Callable) -> None:
    rows = " ".join(unsnap("--help").out.replace("│", " ").split())
    for name in NAMES:
        first = (function(name).__doc__ or "").split("\n\n")[0]
        assert f"{name} {' '.join(first.split())}" in rows
