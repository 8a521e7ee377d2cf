"""The noise of a snapshot, seen without its video: exact where frames are planes, never above what is there."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from laws import close, seeded, uniform
from unsnap.algorithms.noise import noise_map
from unsnap.masks import bernoulli, gray, shifted
from unsnap.simulate import render

SIZE = (96, 80)
CAMERAS = {
    "binary": bernoulli(8, *SIZE, generator=seeded()),
    "four frames": bernoulli(4, *SIZE, generator=seeded()),
    "grey": gray(14, *SIZE, generator=seeded()),
    "shifted": shifted(10, *SIZE, generator=seeded()),
    "many frames": bernoulli(24, *SIZE, generator=seeded()),
    "bright": 255 * bernoulli(8, *SIZE, generator=seeded()),
}


def planes(frames: int) -> Tensor:
    """Every frame another slope and height."""
    down, right = torch.meshgrid(torch.linspace(0, 1, SIZE[0]), torch.linspace(0, 1, SIZE[1]), indexing="ij")
    a, b, c = uniform(3, frames, 1, 1, dtype=torch.float32)
    return 0.2 + 0.3 * a + 0.2 * b * down + 0.2 * c * right


def snapshot(masks: Tensor, level: float) -> Tensor:
    y = (masks * planes(len(masks))).sum(0)
    return y + level * torch.randn(y.shape, generator=seeded(3))


@pytest.mark.parametrize("camera", list(CAMERAS))
@pytest.mark.parametrize("level", [0.003, 0.05, 1.0])
def test_finds_the_noise_of_planes(camera: str, level: float) -> None:
    masks = CAMERAS[camera]
    found = noise_map(snapshot(masks, level), masks)
    assert found.shape == SIZE
    assert 0.75 * level < float(found.mean()) < 1.1 * level


@pytest.mark.parametrize("camera", list(CAMERAS))
def test_planes_alone_are_clean(camera: str) -> None:
    masks = CAMERAS[camera]
    y = snapshot(masks, 0.0)
    assert float(noise_map(y, masks).max()) < 1e-4 * float(y.abs().max())


def test_shot_noise_follows_the_light() -> None:
    masks, ramp = CAMERAS["binary"], torch.linspace(0.05, 1, SIZE[1])
    light = (masks * ramp).sum(0)
    y = light + 0.03 * light.sqrt() * torch.randn(SIZE, generator=seeded(4))
    found = noise_map(y, masks)
    wanted = 0.03 * (8 * 0.5 * ramp).sqrt()
    inner = slice(10, -10)
    assert bool((found.mean(0)[inner] < 1.15 * wanted[inner]).all())
    assert float(found[:, -15:].mean()) > 1.5 * float(found[:, :15].mean())
    assert float(found[:, -1].mean()) > float(found[:, -8].mean()), "the border is as bright as what is inside"
    close(found[0], found[SIZE[0] // 2], 0.1)


def test_errors_of_the_masks_follow_the_square_of_the_light() -> None:
    masks, ramp = CAMERAS["binary"], torch.linspace(0.05, 1, SIZE[1])
    light = (masks * ramp).sum(0)
    y = light * (1 + 0.05 * torch.randn(SIZE, generator=seeded(6)))
    found = noise_map(y, masks)
    assert float(found[:, -15:].mean()) > 4 * float(found[:, :15].mean())
    assert 0.1 < float(found[:, -15:].mean()) < 0.22


def test_texture_hides_noise_but_only_upwards() -> None:
    masks = bernoulli(8, 96, 96, generator=seeded())
    y = (masks * render(8, 96, 96, seed=0)).sum(0)
    noise = torch.randn(96, 96, generator=seeded(5))
    levels = [float(noise_map(y + level * noise, masks).mean()) for level in (0.0, 0.05, 0.2)]
    assert levels[0] < levels[1] < levels[2]
    assert levels[2] > 0.15


def test_units() -> None:
    masks = CAMERAS["grey"].double()
    y = snapshot(CAMERAS["grey"], 0.05).double()
    found = noise_map(y, masks)
    close(noise_map(1e3 * y, masks), 1e3 * found, 1e-9)
    close(noise_map(y, 7 * masks), found, 1e-9)


def test_a_sample_does_not_feel_its_neighbours() -> None:
    masks = torch.stack([CAMERAS["binary"], CAMERAS["bright"]])
    y = torch.stack([snapshot(masks[0], 0.05), snapshot(masks[1], 1.0)])
    both = noise_map(y, masks)
    for k in range(2):
        close(both[k], noise_map(y[k], masks[k]), 1e-7)
    shared = noise_map(y, masks[0])
    close(shared[1], noise_map(y[1], masks[0]), 1e-7)


@pytest.mark.parametrize("size", [(1, 1), (9, 300), (0, 5)])
def test_too_small_counts_as_clean(size: tuple[int, int]) -> None:
    found = noise_map(torch.rand(3, *size), torch.rand(8, *size))
    assert found.shape == (3, *size)
    assert not bool(found.any())


def test_dead_masks() -> None:
    y = 0.1 * torch.randn(40, 40, generator=seeded())
    assert 0.08 < float(noise_map(y, torch.zeros(8, 40, 40)).mean()) < 0.13
    assert not bool(noise_map(torch.zeros(40, 40), torch.zeros(8, 40, 40)).any())


def test_a_large_snapshot_costs_no_more_windows() -> None:
    masks = bernoulli(4, 700, 600, generator=seeded())
    y = 0.5 * masks.sum(0) + 0.05 * torch.randn(700, 600, generator=seeded(1))
    assert 0.04 < float(noise_map(y, masks).mean()) < 0.055
