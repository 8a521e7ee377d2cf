"""What every prior of patches promises, whatever it does with them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from laws import close, each, normal, uniform
from unsnap import Snapshot, simulate
from unsnap.errors import InputError
from unsnap.methods import METHODS
from unsnap.priors.dictionary import Dictionary
from unsnap.priors.wnnm import WNNM

Prior = Callable[[Tensor, float | Tensor], Tensor]
prior = each(
    {
        "wnnm": WNNM(patch=4, group=12, stride=3, radius=5),
        "dictionary": Dictionary(patch=4, frames=2, stride=3, steps=1, atoms=(5, 3), rounds=2, most=8),
    }
)


@pytest.mark.parametrize("shape", [(1, 9, 9), (3, 4, 23), (8, 31, 10), (11, 7, 5), (4, 4, 4), (2, 3, 12, 11)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_any_size(prior: Prior, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x = uniform(*shape).to(dtype)
    for sigma in (1e-6, 0.1, 10.0):
        out = prior(x, sigma)
        assert out.shape == x.shape
        assert out.dtype == dtype
        assert bool(torch.isfinite(out).all())
    assert torch.equal(prior(x, 0.0), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_samples_are_independent_and_sigma_is_per_sample(prior: Prior, dtype: torch.dtype) -> None:
    x = (simulate.render(8, 20, 20, seed=0).reshape(2, 4, 20, 20) + 0.05 * normal(2, 4, 20, 20)).to(dtype)
    both = prior(x, torch.tensor([0.05, 0.1], dtype=torch.float64))
    assert torch.equal(both[0], prior(x[0], 0.05))
    assert torch.equal(both[1], prior(x[1], 0.1))
    assert prior(x[:0], 0.1).shape == (0, 4, 20, 20)


def test_scale_and_offset_go_through(prior: Prior) -> None:
    x = simulate.render(4, 20, 20, seed=0).double() + 0.05 * normal(4, 20, 20)
    close(prior(64 * x, 64 * 0.05), 64 * prior(x, 0.05), 1e-12 if isinstance(prior, WNNM) else 1e-9)
    close(prior(x + 0.25, 0.05), prior(x, 0.05) + 0.25, 1e-9)


def test_result_does_not_depend_on_the_threads(prior: Prior) -> None:
    x = uniform(4, 64, 64, dtype=torch.float32)
    threads, results = torch.get_num_threads(), []
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            results.append(prior(x, 0.1))
    finally:
        torch.set_num_threads(threads)
    close(*results, 0 if isinstance(prior, WNNM) else 1e-6)


def test_not_a_number_neither_crashes_nor_spreads_everywhere(prior: Prior) -> None:
    x = uniform(2, 40, 40)
    x[0, 0, 0] = float("nan")
    out = prior(x, 0.1)
    assert bool(out[0, 0, 0].isnan())
    far = out[1:, 25:, 25:] if isinstance(prior, WNNM) else out[:, 25:, 25:]
    assert bool(torch.isfinite(far).all())


def test_bad_sigma(prior: Prior) -> None:
    for sigma in (-0.1, float("nan")):
        with pytest.raises(ValueError, match="sigma must be a number >= 0"):
            prior(uniform(2, 9, 9), sigma)


@pytest.mark.parametrize(("name", "patch"), [("desci", 9), ("gap-dictionary", 8), ("gmm", 8), ("gmm-online", 8)])
def test_too_small_is_said_before_the_start(name: str, patch: int) -> None:
    y, phi, seen = torch.ones(patch - 1, 30), Snapshot(torch.ones(3, patch - 1, 30)), []
    words = rf"a video of {patch - 1}×30 pixels is too small for patches of {patch}×{patch}; use .*gap-tv3d$"
    with pytest.raises(InputError, match=rf"^method '{name}' cannot serve this: {words}"):
        METHODS[name](y, phi, callback=lambda k, x, change: seen.append(k))
    assert not seen
