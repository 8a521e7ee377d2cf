"""The scale of masks and snapshots cancels exactly, from the smallest numbers of float32 to the largest."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
import torch
from torch import Tensor

from unsnap import GAP, Equilibrium, Snapshot, Unfolded, reconstruct
from unsnap.doctor import diagnose
from unsnap.errors import InputError
from unsnap.io.scene_file import interpret
from unsnap.masks import bernoulli
from unsnap.networks import Certified
from unsnap.operators import Multishot
from unsnap.scene import Scene
from unsnap.simulate import render

POWERS = (-149, -126, -100, -60, -21, -3, 7, 21, 60, 100, 120)
MASKS = bernoulli(4, 16, 20, generator=torch.Generator().manual_seed(0))
VIDEO = (render(4, 16, 20, seed=1) > 0.5).float()  # y holds whole numbers, which denormal numbers can tell apart
Y = Snapshot(MASKS).A(VIDEO)


def times(values: Tensor, power: int) -> Tensor:
    return (values.double() * 2.0**power).float()


@pytest.mark.parametrize("method", ["gap-tv", "admm-tv3d", "pgd-tv3d", "gd-tv3d", "gap-wnnm"])
def test_a_method_gives_the_same_video_at_every_scale(method: str) -> None:
    expected = reconstruct(Y, MASKS, method, iterations=3)
    for power in POWERS:
        found = reconstruct(times(Y, power), times(MASKS, power), method, iterations=3)
        torch.testing.assert_close(found.x, expected.x, rtol=0, atol=1e-5, msg=lambda m, p=power: f"2^{p}: {m}")


def test_a_model_gives_the_same_bits_at_every_scale() -> None:
    torch.manual_seed(0)
    model = Equilibrium(GAP(), Certified(blocks=1, channels=4, hidden=4), max_iter=5)
    with torch.no_grad():
        expected = model(Y[None], Snapshot(MASKS)).x
        for power in POWERS:
            assert torch.equal(model(times(Y, power)[None], Snapshot(times(MASKS, power))).x, expected), power


def test_every_sample_has_a_scale_of_its_own() -> None:
    masks = torch.stack([times(MASKS, p) for p in (-140, 0, 110)])
    y, phi = Snapshot(masks).normalised(torch.stack([times(Y, p) for p in (-140, 0, 110)]))
    for k in range(3):
        torch.testing.assert_close(y[k] / phi.masks[k].max(), Y, rtol=0, atol=0)
    shots = Multishot(torch.stack([MASKS, MASKS.flip(0)]))
    both = shots.A(VIDEO[None])
    tiny, camera = shots.scaled(2.0**-100).normalised(times(both, -100))
    torch.testing.assert_close(camera.A_dagger(tiny), shots.A_dagger(both), rtol=0, atol=0)


def test_ordinary_scales_are_left_alone() -> None:
    phi = Snapshot(255 * MASKS)
    y, same = phi.normalised(Y)
    assert y is Y
    assert same is phi


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_what_is_not_finite_reaches_no_map(value: float) -> None:
    broken = Y.clone()
    broken[0, 0] = value
    certified = Certified(blocks=1, channels=4, hidden=4)
    for model in (Equilibrium(GAP(), certified), Unfolded(GAP(), [certified], [0.1])):
        with pytest.raises(InputError, match="y must be finite"):
            model(broken[None], Snapshot(MASKS))
    with pytest.raises(InputError, match="y must be finite"):
        reconstruct(broken, MASKS, "gap-tv")
    with pytest.raises(InputError, match=r"y reaches .* times the largest mask"):
        reconstruct(1e20 * Y, MASKS, "gap-tv")


# ---------------------------------------------------------------------- files


@pytest.mark.parametrize("truth", [True, False])
@pytest.mark.parametrize("power", [-1000, -140, -100, 60, 100, 900])
def test_a_file_of_any_scale_is_the_same_scene(power: int, truth: bool) -> None:
    arrays = {"meas": Y.double().numpy(), "mask": MASKS.double().numpy()}
    known = {"orig": VIDEO.double().numpy()} if truth else {}
    plain = interpret({**arrays, **known}, "a.npz")
    scene = interpret({k: a * 2.0**power for k, a in arrays.items()} | known, "a.npz")
    assert torch.equal(scene.measurement, plain.measurement)
    assert torch.equal(scene.masks, plain.masks)
    assert scene.meta["mask_scale"] == 2.0**power
    assert [(f.level, f.subject) for f in diagnose(scene)] == [(f.level, f.subject) for f in diagnose(plain)]


def test_units_that_cannot_be_are_refused_by_name() -> None:
    arrays = {"meas": Y.numpy(), "mask": MASKS.numpy()}
    for scale in (1e-300, 1e-38, 1e38, 1e300):
        with pytest.raises(InputError, match=r"a\.npz: the measurement reaches .* --scale"):
            interpret(arrays, "a.npz", scale=scale)


def test_the_doctor_looks_at_any_scene() -> None:
    generator = np.random.default_rng(0)
    for k in range(40):
        powers = generator.integers(-149, 127, 3)
        y, m, x = (times(part, int(p)) for part, p in zip((Y[None], MASKS, VIDEO[None]), powers, strict=True))
        findings = []
        with contextlib.suppress(InputError):  # a snapshot in units that cannot be the masks'
            findings = diagnose(Scene(y, m, x if k % 2 else None))
        assert all(finding.text for finding in findings)
