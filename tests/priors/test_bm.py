"""BM3D and BM4D: the packages are called as they want to be called, or asked for in one sentence."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from laws import close, seeded
from unsnap.errors import InputError
from unsnap.masks import bernoulli
from unsnap.methods import METHODS
from unsnap.operators import Snapshot
from unsnap.priors.bm import BM3D, BM4D
from unsnap.simulate import render

Array = npt.NDArray[Any]


@pytest.fixture(autouse=True)
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, tuple[int, ...], float]]:
    """Stand-ins with the packages' signatures (z, sigma_psd, profile="np", ...) and habits: double out, 3-D volumes."""
    seen: list[tuple[str, tuple[int, ...], float]] = []

    def stand_in(name: str, dimensions: int) -> None:
        def function(z: Array, sigma_psd: float, profile: str = "np", stage_arg: Any = None) -> Array:
            assert isinstance(z, np.ndarray)
            assert isinstance(sigma_psd, float)
            assert z.ndim == dimensions
            if min(z.shape[:2]) < 8:
                raise ValueError("Image cannot be smaller than block size!")
            seen.append((name, z.shape, sigma_psd))
            mean = z.mean() if dimensions == 2 else z.mean(axis=(0, 1))  # of every slice along the last axis
            return z.astype(np.float64) + sigma_psd * (mean - z)

        module = ModuleType(name)
        module.__spec__ = ModuleSpec(name, None)
        setattr(module, name, function)
        monkeypatch.setitem(sys.modules, name, module)

    stand_in("bm3d", 2)
    stand_in("bm4d", 3)
    return seen


@pytest.mark.parametrize("prior", [BM3D(), BM4D()])
def test_videos_and_batches(prior: BM3D | BM4D, calls: list[Any]) -> None:
    x = torch.rand(2, 3, 10, 12, generator=seeded())
    before = x.clone()
    sigma = torch.tensor([0.25, 0.5])
    expected = x + sigma[:, None, None, None] * (x.mean((-2, -1), keepdim=True) - x)
    found = prior(x, sigma)
    close(found, expected, 1e-6)
    assert found.dtype == x.dtype
    assert torch.equal(x, before)
    for level in (0.5, sigma[1], sigma[1:]):
        close(prior(x[1], level), expected[1], 1e-6)
    shapes = {shape for _, shape, _ in calls}
    assert shapes == ({(10, 12)} if isinstance(prior, BM3D) else {(10, 12, 3)})  # time is the volume's last axis
    assert {level for *_, level in calls} == {0.25, 0.5}


@pytest.mark.parametrize("prior", [BM3D(), BM4D()])
def test_sigma_zero_changes_nothing_and_below_is_refused(prior: BM3D | BM4D, calls: list[Any]) -> None:
    x = torch.rand(3, 9, 9, generator=seeded())
    assert torch.equal(prior(x, 0.0), x)
    assert calls == []
    assert prior(x[None][:0], 0.1).shape == (0, 3, 9, 9)
    with pytest.raises(ValueError, match="sigma must be a number >= 0"):
        prior(x, -0.1)


@pytest.mark.parametrize("name", ["bm3d", "bm4d"])
def test_recipes_follow_the_schedule(name: str, calls: list[Any]) -> None:
    phi = Snapshot(bernoulli(4, 16, 16, generator=seeded()))
    solution = METHODS[f"pnp-{name}"](phi.A(render(4, 16, 16, seed=1)), phi)
    assert solution.iterations == 40
    levels = [round(255 * level) for _, _, level in calls]
    each = len(calls) // 40
    assert each == (4 if name == "bm3d" else 1)
    assert levels == [level for level in (50, 25, 12, 6) for _ in range(10 * each)]


@pytest.mark.parametrize("name", ["bm3d", "bm4d"])
def test_what_cannot_run_is_said_in_one_sentence(name: str, monkeypatch: pytest.MonkeyPatch, calls: list[Any]) -> None:
    method = METHODS[f"pnp-{name}"]
    assert method.missing() is None
    with pytest.raises(InputError, match=f"video of 7×30 pixels is too small for the blocks of {name}, at least"):
        method(torch.ones(7, 30), Snapshot(torch.ones(3, 7, 30)))
    delattr(sys.modules[name], name)
    with pytest.raises(InputError, match=f"the package {name} cannot be used .*install it again"):
        method(torch.ones(9, 9), Snapshot(torch.ones(3, 9, 9)))
    monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    sentence = method.missing() or ""
    assert f"package {name} is not installed" in sentence
    assert f"`pip install {name}`" in sentence
    assert calls == []
