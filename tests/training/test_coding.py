"""Random cameras: exact without noise, of every kind, one for each sample."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from laws import close, seeded, uniform
from unsnap import Scene, save_scene
from unsnap.errors import InputError
from unsnap.training.coding import camera_masks, code, random_masks

TRUTH = uniform(64, 4, 8, 8, dtype=torch.float32)


def test_without_noise_the_snapshot_is_the_operator() -> None:
    coded = code(TRUTH, 0.0, seeded())
    close(coded.y, coded.phi.A(coded.truth), 1e-7)
    exact = code(TRUTH.double(), 0.0, seeded())
    close(exact.y, exact.phi.A(exact.truth), 1e-15)
    kept = (coded.truth == TRUTH).flatten(1).all(1)
    assert 36 < int(kept.sum()) < 60, "a quarter is dimmed"
    gain = (coded.truth / TRUTH).flatten(1)
    close(gain, gain[:, :1].expand_as(gain), 1e-6)
    assert bool(((gain > 0.19) & (gain < 1.001)).all())
    assert not torch.equal(coded.phi.masks[0], coded.phi.masks[1])


def test_half_of_the_samples_are_noisy_and_none_too_much() -> None:
    coded = code(TRUTH, 0.1, seeded())
    size = (coded.y - coded.phi.A(coded.truth)).square().mean((-2, -1)).sqrt()
    assert 16 < int((size < 1e-6).sum()) < 48
    assert 0.05 < float(size.max()) < 0.13


def test_cameras_of_every_kind() -> None:
    generator = seeded()
    masks = [random_masks(3, 12, 12, generator=generator) for _ in range(200)]
    assert all(bool(((m >= 0) & (m <= 1)).all()) and m.shape == (3, 12, 12) for m in masks)
    grey = [m for m in masks if bool(((m > 0) & (m < 1)).any())]
    binary = [m for m in masks if not bool(((m > 0) & (m < 1)).any())]
    moves = [(a, b) for a in (-1, 0, 1) for b in (-1, 0, 1) if a or b]
    inner = (slice(2, -2), slice(2, -2))
    shifted = [m for m in binary if any(torch.equal(m[1].roll(s, (0, 1))[inner], m[0][inner]) for s in moves)]
    sparse = [m for m in binary if float(m.mean()) < 0.4]
    assert len(grey) > 15
    assert len(shifted) > 15
    assert len(sparse) > 10
    assert len(binary) > 100


@pytest.mark.parametrize("shape", [(1, 5, 7), (16, 1, 1)])
def test_any_shape(shape: tuple[int, int, int]) -> None:
    generator = seeded()
    for _ in range(30):
        assert random_masks(*shape, generator=generator).shape == shape


def test_some_of_the_samples() -> None:
    coded = code(TRUTH, 0.1, seeded())
    part = coded.select(slice(2, 5))
    assert torch.equal(part.y, coded.y[2:5])
    assert torch.equal(part.phi.masks, coded.phi.masks[2:5])


def test_one_camera_gives_windows_of_its_own_masks(tmp_path: Path) -> None:
    own = uniform(3, 12, 10, dtype=torch.float32)
    own /= own.max()
    save_scene(tmp_path / "capture.npz", Scene.of(uniform(1, 3, 12, 10, seed=1, dtype=torch.float32), 7 * own))
    camera = camera_masks(str(tmp_path / "capture.npz"), 8)
    close(camera, own, 1e-6)
    masks = code(TRUTH[:, :3], 0.0, seeded(), camera).phi.masks
    places = {(i, j) for i in range(5) for j in range(3)}
    seen = {(i, j) for m in masks for i, j in places if torch.equal(m, camera[:, i : i + 8, j : j + 8])}
    assert seen == places
    with pytest.raises(InputError, match="no smaller than crop"):
        camera_masks(str(tmp_path / "capture.npz"), 11)
