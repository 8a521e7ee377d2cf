"""The rendered scene: measured properties of a photographic recording that a toy square would not have."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from unsnap.errors import InputError
from unsnap.simulate import render

SEEDS = [0, 1, 2, 3]


@pytest.fixture(scope="module", params=SEEDS)
def clip(request: pytest.FixtureRequest) -> Tensor:
    return render(8, 128, 128, seed=request.param)


def test_range_and_exposure(clip: Tensor) -> None:
    assert clip.shape == (8, 128, 128)
    assert clip.dtype == torch.float32
    assert clip.min() >= 0
    assert clip.max() <= 1
    assert 0.4 < float(clip.mean()) < 0.5
    assert 0.12 < float(clip.std()) < 0.3
    filled = torch.histc(clip, 10, 0, 1) / clip.numel()
    assert int((filled > 0.005).sum()) >= 9
    assert float(((clip == 0) | (clip == 1)).float().mean()) < 0.02


def test_texture_everywhere(clip: Tensor) -> None:
    blocks = clip[0].unfold(0, 16, 16).unfold(1, 16, 16).std((-2, -1))
    assert float((blocks > 0.01).float().mean()) > 0.97


def test_fine_detail_in_the_spectrum(clip: Tensor) -> None:
    frame = clip[0] - clip[0].mean()
    window = torch.hann_window(128)
    power = torch.fft.fft2(frame * window[:, None] * window).abs().square()
    frequency = torch.fft.fftfreq(128)
    radius = torch.hypot(frequency[:, None], frequency)
    assert 0.01 < float(power[radius > 0.15].sum() / power.sum()) < 0.3
    assert float(power[radius > 0.05].sum() / power.sum()) > 0.1


def test_objects_move_and_the_background_hardly(clip: Tensor) -> None:
    change = (clip[1:] - clip[:-1]).abs()
    moving = (change > 0.05).float().mean((-2, -1))
    assert bool((moving > 0.04).all())
    assert bool((moving < 0.45).all())
    assert float(change.median()) < 0.02
    # Not one jump but a continuing motion: the difference grows with the distance in time.
    assert float((clip[7] - clip[0]).abs().mean()) > 1.5 * float(change.mean())


def test_seed_decides_the_scene() -> None:
    scenes = [render(1, 64, 64, seed=s) for s in range(8)]
    assert torch.equal(scenes[3], render(1, 64, 64, seed=3))
    for i in range(8):
        for j in range(i):
            assert float((scenes[i] - scenes[j]).abs().mean()) > 0.08
    assert min(float(scene.std()) for scene in scenes) > 0.08
    assert render(1, supersample=1).shape == (1, 256, 256)


def test_a_frame_does_not_depend_on_how_many_follow() -> None:
    assert torch.equal(render(2, 48, 64, seed=5), render(6, 48, 64, seed=5)[:2])


def test_speed_scales_time() -> None:
    assert torch.equal(render(3, 48, 48, seed=2, speed=2.0), render(5, 48, 48, seed=2)[::2])
    still = render(2, 48, 48, seed=2, speed=0.0)
    assert torch.equal(still[0], still[1])


def test_motion_goes_on_in_a_long_recording() -> None:
    late = render(3, 64, 64, seed=1, speed=500.0)
    now, soon = render(1, 64, 64, seed=1), late[2]
    assert float((late[1] - soon).abs().mean()) > 0.02
    assert 0.3 < float(soon.mean()) < 0.6
    assert float((now[0] - soon).abs().mean()) > 0.02


def test_scene_is_the_same_at_other_resolutions() -> None:
    large, small = render(1, 192, 240, seed=4)[0].numpy(), render(1, 96, 120, seed=4)[0].numpy()
    shrunk = large.reshape(96, 2, 120, 2).mean((1, 3))
    assert np.corrcoef(shrunk.ravel(), small.ravel())[0, 1] > 0.9


@pytest.mark.parametrize("size", [(16, 16), (17, 40), (100, 16), (33, 300)])
@pytest.mark.parametrize("supersample", [1, 3])
def test_any_size(size: tuple[int, int], supersample: int) -> None:
    for seed in range(2):
        made = render(3, *size, seed=seed, supersample=supersample)
        assert made.shape == (3, *size)
        assert bool(torch.isfinite(made).all())
        assert float(made.std()) > 0.08


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"frames": 0}, "frames.*got 0"),
        ({"frames": 1, "height": 15}, "height.*at least 16, got 15"),
        ({"frames": 1, "width": 31.5}, "width.*31.5"),
        ({"frames": 1, "supersample": 0}, "supersample.*got 0"),
        ({"frames": 1, "speed": float("nan")}, "speed.*nan"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, float], words: str) -> None:
    with pytest.raises(InputError, match=words):
        render(**arguments)
