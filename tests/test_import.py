"""The front door: quick to open, with every name that is promised behind it, and examples that run."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import unsnap

SLOW = ("numba", "scipy", "matplotlib", "av", "h5py", "pywt", "typer", "rich", "PIL", "tifffile")


def loaded_after(program: str) -> set[str]:
    report = f"{program}\nimport sys\nprint(*sorted(m for m in {SLOW} if m in sys.modules))"
    return set(
        subprocess.run([sys.executable, "-c", report], check=True, capture_output=True, text=True).stdout.split()
    )


def test_import_is_light() -> None:
    assert loaded_after("from unsnap import InputError, Scene, Snapshot, TV, gap, psnr") == set()


def test_the_public_names() -> None:
    assert len(unsnap.__all__) <= 40
    assert len(set(unsnap.__all__)) == len(unsnap.__all__)
    assert dir(unsnap) == sorted(unsnap.__all__)


def test_every_public_name_is_there_and_documented() -> None:
    for name in set(unsnap.__all__) - {"__version__", "METHODS"}:
        thing = getattr(unsnap, name)
        assert thing.__name__ == name
        assert thing.__module__.startswith("unsnap.")
        assert inspect.cleandoc(thing.__doc__ or ""), name
        assert not thing.__doc__.startswith(f"{name}("), "a dataclass's generated signature is no documentation"


def test_unknown_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="module 'unsnap' has no attribute 'nonsense'"):
        _ = unsnap.nonsense


def test_version_is_a_version() -> None:
    assert all(part.isdigit() for part in unsnap.__version__.split("."))


ROOT = Path(unsnap.__path__[0])
MODULES = ["unsnap", *(m.name for m in pkgutil.walk_packages([str(ROOT)], "unsnap."))]


def source(module: str) -> str:
    path = ROOT.joinpath(*module.split(".")[1:])
    return (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text(encoding="utf-8")


WITH_EXAMPLES = [m for m in MODULES if ">>> " in source(m)]


@pytest.mark.parametrize("module", WITH_EXAMPLES)
def test_examples_in_docstrings_run(module: str) -> None:
    assert doctest.testmod(importlib.import_module(module)).failed == 0


@pytest.mark.parametrize(
    "module", ["unsnap.operators.snapshot", "unsnap.priors.tv", "unsnap.algorithms.gap", "unsnap.run"]
)
def test_there_are_examples(module: str) -> None:
    assert doctest.testmod(importlib.import_module(module)).attempted > 1
