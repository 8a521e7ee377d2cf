"""`reconstruct` takes whatever a person has at hand, and changes none of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from laws import seeded
from unsnap import TV, Equilibrium, Snapshot, Unfolded, gap, load, reconstruct, save, stream
from unsnap.algorithms import GAP
from unsnap.errors import InputError
from unsnap.masks import bernoulli
from unsnap.methods import get
from unsnap.networks import CNN
from unsnap.operators import Dispersed, Multishot
from unsnap.run import measure
from unsnap.scene import Scene
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


@pytest.mark.parametrize(
    "call",
    [
        lambda: reconstruct(Y[:-1], MASKS, "gap-tv"),
        lambda: reconstruct(Y.expand(3, 24, 20), MASKS.expand(2, 4, 24, 20), "gap-tv"),
        lambda: reconstruct(Y, MASKS, "gap-tv", tol=float("nan")),
        lambda: reconstruct(Y, MASKS, "interpolation", tol=-1.0),
        lambda: next(stream([Y[:-1]], MASKS, "gap-tv")),
        lambda: gap(Y[:-1], Snapshot(MASKS), TV(), [0.1]),
        lambda: gap(Y, Snapshot(MASKS), TV(), []),
        lambda: gap(Y.numpy(), Snapshot(MASKS), TV(), [0.1]),  # type: ignore[arg-type]
        lambda: load("de-gap")(Y.numpy(), Snapshot(MASKS)),
    ],
)
def test_a_wrong_argument_is_an_input_error(call: Callable[[], object]) -> None:
    with pytest.raises(InputError, match=r" must .*, got "):
        call()


def test_one_precision_leaves_no_trace_in_another() -> None:
    """Weights are shared by all calls of a process: none may change them."""
    before = reconstruct(Y, MASKS, "de-gap").x
    coarse = get("pnp")(Y.bfloat16(), Snapshot(MASKS.bfloat16()), iterations=1).x
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


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_captures_in_half_precision_are_computed_with_in_single(kind: torch.dtype) -> None:
    y, masks = Y.to(kind), MASKS.to(kind)
    for camera in (masks, Snapshot(masks)):
        assert torch.equal(reconstruct(y, camera, iterations=2).x, reconstruct(y.float(), MASKS, iterations=2).x)


def test_arrays_that_torch_cannot_share_are_copied() -> None:
    locked = Y.numpy().copy()
    locked.flags.writeable = False
    expected = reconstruct(Y, MASKS, "gap-tv3d", iterations=2).x
    assert torch.equal(reconstruct(locked, MASKS, "gap-tv3d", iterations=2).x, expected)
    backwards = np.ascontiguousarray(Y.numpy()[:, ::-1])[:, ::-1]
    assert torch.equal(reconstruct(backwards, MASKS, "gap-tv3d", iterations=2).x, expected)


def test_complex_numbers_are_refused() -> None:
    with pytest.raises(InputError, match=r"y must be real, got torch\.complex64"):
        reconstruct(1j * Y, MASKS, "gap-tv")


def test_gradients_that_are_not_recorded_are_told() -> None:
    with pytest.warns(RuntimeWarning, match="reconstruct records no gradients"):
        reconstruct(Y, MASKS.clone().requires_grad_(), "gap-tv", iterations=1)


@pytest.mark.parametrize("camera", [MASKS, Snapshot(MASKS), Snapshot(MASKS.expand(2, 4, 24, 20))])
@pytest.mark.parametrize("white", [10, 255])
def test_a_snapshot_in_counts_is_told(camera: object, white: float) -> None:
    with pytest.warns(UserWarning, match="times as bright as a white video behind these masks; divide it by"):
        reconstruct(white * Y, camera, "gap-tv", iterations=1)  # type: ignore[arg-type]


ONE_HOT = torch.eye(4)[torch.arange(480) % 4].T.reshape(4, 24, 20)


@pytest.mark.parametrize("noise", [0.0, 1.0])
@pytest.mark.parametrize("masks", [MASKS, 1e-3 * MASKS, MASKS - 0.5, ONE_HOT])
def test_white_and_noise_are_not_taken_for_counts(masks: torch.Tensor, noise: float) -> None:
    y = Snapshot(masks).A(torch.ones_like(TRUTH))
    y = y + noise * float(masks.max()) * torch.randn(y.shape, generator=seeded(1))
    reconstruct(y, masks, "gap-tv", iterations=1)  # a warning would be an error


def test_a_denoiser_is_no_method() -> None:
    with pytest.raises(InputError, match=r"got function; a denoiser\(x, sigma\) is used as unsnap.gap"):
        reconstruct(Y, MASKS, lambda x, sigma: x)  # type: ignore[arg-type]


def test_one_frame_keeps_its_details() -> None:
    """Its only mask deviates from no mean; that is not a reason to expect infinite noise."""
    i = torch.arange(32.0)
    picture = 0.5 + 0.06 * torch.sin(2.3 * i[:, None] + 1.3 * i)
    y = picture + 0.002 * torch.randn(32, 32, generator=seeded())
    found = reconstruct(y, torch.ones(1, 32, 32)).x[0]
    assert float((found - picture).square().mean().sqrt()) < 0.005


@pytest.mark.parametrize("name", ["de-gap", "pnp", "gap-tv3d"])
def test_snapshot_and_masks_of_two_precisions(name: str) -> None:
    found = get(name)(Y, Snapshot(MASKS.double()), iterations=2).x
    assert found.dtype == torch.float64


def test_a_scene_without_snapshots_and_a_method_for_other_cameras_are_measured() -> None:
    _, result = measure(Scene(Y[None][:0], MASKS), get("gap-tv"))
    assert (result.snapshots, result.residual) == (0, 0)
    cube = Scene.of(TRUTH[None], MASKS, "dispersed:0,1")
    _, result = measure(cube, replace(get("gap-tv3d"), serves=(Dispersed,)), iterations=2)
    assert result.iterations == 2
