"""`reconstruct` takes whatever a person has at hand, and changes none of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from laws import seeded
from unsnap import Equilibrium, Snapshot, Unfolded, load, reconstruct, save
from unsnap.algorithms import GAP
from unsnap.errors import InputError
from unsnap.masks import bernoulli
from unsnap.methods import get
from unsnap.networks import CNN
from unsnap.operators import Multishot
from unsnap.simulate import render

MASKS = bernoulli(4, 24, 20, generator=seeded())
TRUTH = render(4, 24, 20, seed=0)
Y = Snapshot(MASKS).A(TRUTH)


def test_a_name_a_path_a_method_and_a_model_are_all_methods(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Equilibrium(GAP(), CNN(2, 4).eval(), tol=1e-2)
    path = save(tmp_path / "mine.safetensors", model)
    expected = reconstruct(Y, MASKS, model).x
    for method in (path, str(path), get(path), load(path)):
        assert torch.equal(reconstruct(Y, MASKS, method).x, expected)
    unfolded = Unfolded(GAP(), CNN(2, 4), [0.1, 0.1])
    solution = reconstruct(Y, MASKS, unfolded)
    assert solution.iterations == 2
    with torch.no_grad():
        assert torch.equal(solution.x, unfolded(Y, Snapshot(MASKS)).x)
    assert torch.equal(reconstruct(Y, MASKS, "gap-tv").x, get("gap-tv")(Y, Snapshot(MASKS)).x)


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.uint8])
def test_numpy_arrays_are_as_good_as_tensors(kind: type) -> None:
    y, masks = Y.numpy().astype(np.float64), MASKS.numpy().astype(kind)
    found = reconstruct(y, masks, "gap-tv3d").x
    assert found.dtype == (torch.float64 if kind is np.float64 else torch.float32)
    torch.testing.assert_close(found.float(), reconstruct(Y, MASKS, "gap-tv3d").x, rtol=0, atol=1e-4)
    with pytest.raises(InputError, match="y must be a tensor or a numeric array"):
        reconstruct(np.array(["a"]), masks)


def test_one_precision_leaves_no_trace_in_another() -> None:
    """Weights are shared by all calls of a process: none may change them."""
    before = reconstruct(Y, MASKS, "de-gap").x
    coarse = reconstruct(Y.bfloat16(), MASKS.bfloat16(), "pnp", iterations=1).x
    double = reconstruct(Y.double(), MASKS.double(), "de-gap").x
    assert (coarse.dtype, double.dtype) == (torch.bfloat16, torch.float64)
    assert torch.equal(reconstruct(Y, MASKS, "de-gap").x, before)
    model = Equilibrium(GAP(), CNN(2, 4), tol=1e-2)
    weights = {key: value.clone() for key, value in model.state_dict().items()}
    reconstruct(Y.double(), MASKS.double(), model)
    assert all(torch.equal(value, weights[key]) for key, value in model.state_dict().items())


def test_a_method_is_refused_for_a_camera_it_does_not_serve() -> None:
    phi = Multishot(torch.stack([MASKS, MASKS.flip(0)]))
    with pytest.raises(InputError, match=r"'gmm' serves .* Snapshot or RGB, not Multishot; use .*gap-tv3d"):
        reconstruct(phi.A(TRUTH), phi, "gmm")
    assert reconstruct(phi.A(TRUTH), phi).x.shape == TRUTH.shape
