"""Simulation: the forward model exactly, and noise with the variance it promises."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from unsnap import masks
from unsnap.errors import InputError
from unsnap.io import save_arrays
from unsnap.simulate import Noise, chain, gaussian, quantise, saturate, shot, simulate
from unsnap.simulate.recording import Recording


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def video(*shape: int) -> Tensor:
    return torch.rand(shape, generator=seeded(9), dtype=torch.float64)


CODE = masks.bernoulli(4, 12, 10, generator=seeded(1))
FLAT = torch.full((400, 400), 2.0, dtype=torch.float64)

NOISES: dict[str, Noise] = {
    "gaussian": gaussian(0.1),
    "shot": shot(200.0),
    "shot and read": shot(200.0, read=3.0),
    "chain": chain(shot(500.0, read=2.0), saturate(3.0), quantise(10, 4.0)),
}


def test_snapshot_is_the_masked_sum_of_its_frames() -> None:
    x = video(8, 12, 10)
    scene = simulate(x, CODE)
    for n in range(2):
        expected = sum(CODE[t].double() * x[4 * n + t] for t in range(4))
        torch.testing.assert_close(scene.measurement[n], expected, rtol=1e-14, atol=0)
    assert torch.equal(scene.truth, x.reshape(2, 4, 12, 10))
    assert scene.measurement.dtype == torch.float64


def test_incomplete_rest_is_dropped_and_recorded() -> None:
    x = video(11, 12, 10)
    scene = simulate(x, CODE)
    assert (scene.snapshots, scene.frames, scene.meta["dropped_frames"]) == (2, 4, 3)
    assert torch.equal(scene.measurement, simulate(x[:8], CODE).measurement)


def test_grouped_video_and_masks_per_snapshot() -> None:
    x = video(3, 4, 12, 10)
    own = torch.rand(3, 4, 12, 10, generator=seeded(2), dtype=torch.float64)
    scene = simulate(x, own)
    torch.testing.assert_close(scene.measurement, torch.einsum("nthw,nthw->nhw", own, x))
    assert torch.equal(simulate(x.flatten(0, 1), own).measurement, scene.measurement)


@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES.keys())
def test_noise_is_decided_by_the_seed_and_leaves_its_input_alone(noise: Noise) -> None:
    y = 2 * video(20, 20)
    kept = y.clone()
    first = noise(y, seeded(1))
    assert torch.equal(y, kept)
    assert torch.equal(first, noise(y, seeded(1)))
    assert not torch.equal(first, noise(y, seeded(2)))
    x = video(4, 12, 10)
    one, two = (simulate(x, CODE, noise=noise, generator=seeded(5)).measurement for _ in range(2))
    assert torch.equal(one, two)
    assert not torch.equal(one, simulate(x, CODE).measurement)


@pytest.mark.parametrize(
    ("noise", "variance"),
    [
        (gaussian(0.3), 0.09),
        (shot(50.0), 2 / 50),
        (shot(50.0, read=10.0), 2 / 50 + (10 / 50) ** 2),
        (chain(gaussian(0.3), gaussian(0.4)), 0.25),
    ],
    ids=["gaussian", "shot", "shot and read", "chain"],
)
def test_noise_has_the_promised_mean_and_variance(noise: Noise, variance: float) -> None:
    noisy = noise(FLAT, seeded())
    assert float(noisy.mean()) == pytest.approx(2.0, abs=6 * (variance / FLAT.numel()) ** 0.5)
    assert float(noisy.var()) == pytest.approx(variance, rel=0.03)


def test_shot_counts_whole_electrons_and_darkness_is_silent() -> None:
    counts = shot(25.0)(FLAT, seeded()) * 25
    torch.testing.assert_close(counts, counts.round(), rtol=0, atol=1e-9)
    dark = torch.tensor([[0.0, -0.5]])
    assert torch.equal(shot(25.0)(dark, seeded()), torch.zeros(1, 2))


def test_quantise_takes_the_nearest_of_its_levels() -> None:
    y = torch.tensor([-1.0, 0.0, 0.4, 0.6, 1.4, 2.6, 3.0, 9.0], dtype=torch.float64)
    expected = torch.tensor([0.0, 0.0, 0.0, 1.0, 1.0, 3.0, 3.0, 3.0], dtype=torch.float64)
    torch.testing.assert_close(quantise(2, 3.0)(y, None), expected)
    fine = 4 * video(1000)
    once = quantise(8, 4.0)(fine, None)
    assert float((once - fine).abs().max()) <= 4 / 255 / 2 + 1e-12
    assert len(once.unique()) <= 256
    torch.testing.assert_close(quantise(8, 4.0)(once, None), once)


def test_saturate_clips_from_above_only_and_chain_keeps_the_order() -> None:
    y = torch.tensor([-1.0, 0.5, 7.0])
    assert saturate(2.0)(y, None).tolist() == [-1.0, 0.5, 2.0]
    double: Noise = lambda z, generator: 2 * z  # noqa: E731
    assert chain(double, saturate(2.0))(y, None).tolist() == [-2.0, 1.0, 2.0]
    assert chain(saturate(2.0), double)(y, None).tolist() == [-2.0, 1.0, 4.0]
    assert torch.equal(chain()(y, None), y)


def test_dead_pixels_read_nothing_and_are_closed_in_the_masks() -> None:
    x = video(8, 12, 10)
    scene = simulate(x, torch.ones(4, 12, 10), noise=gaussian(0.1), generator=seeded(), dead=0.1)
    dead = scene.masks.square().sum(0) == 0
    assert int(dead.sum()) == scene.meta["dead_pixels"] == 12
    assert bool((scene.measurement[:, dead] == 0).all())
    assert bool((scene.measurement[:, ~dead] != 0).all())
    quiet = simulate(x, torch.ones(4, 12, 10), generator=seeded(), dead=0.1)
    torch.testing.assert_close(quiet.measurement, (quiet.masks * quiet.truth).sum(-3))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: gaussian(-0.1), "sigma.*-0.1"),
        (lambda: gaussian(float("inf")), "sigma.*inf"),
        (lambda: shot(0.0), "photons.*0.0"),
        (lambda: shot(10.0, read=-1.0), "read.*-1"),
        (lambda: quantise(0, 1.0), "bits.*0"),
        (lambda: quantise(8, 0.0), "full_scale.*0"),
        (lambda: saturate(float("nan")), "level.*nan"),
        (lambda: simulate(video(3, 12, 10), CODE), "at least the T = 4 frames.*got 3"),
        (lambda: simulate(video(2, 5, 12, 10), CODE), r"T = 4 frames.*\(2, 5, 12, 10\)"),
        (lambda: simulate(video(8, 10, 12), CODE), r"masks must match.*\(4, 12, 10\)"),
        (lambda: simulate(video(8, 12, 10), torch.ones(3, 4, 12, 10)), r"masks must match.*\(3, 4, 12, 10\)"),
        (lambda: simulate(video(12, 10), CODE), r"video.*\(12, 10\)"),
        (lambda: simulate(video(8, 12, 10), torch.ones(12, 10)), r"masks.*\(12, 10\)"),
        (lambda: simulate((video(8, 12, 10) * 255).to(torch.uint8), CODE), "uint8; divide 8-bit frames by 255"),
        (lambda: simulate(video(8, 12, 10) * 255, CODE), r"\[0, 1\], got \[.*25\d"),
        (lambda: simulate(video(8, 12, 10) - 0.5, CODE), r"\[0, 1\], got \[-0"),
        (lambda: simulate(video(8, 12, 10).log().log(), CODE), "finite"),
        (lambda: simulate(video(8, 12, 10), CODE / 0), "masks must be real and finite"),
        (lambda: simulate(video(8, 12, 10), CODE, dead=1.0), "dead.*1.0"),
    ],
)
def test_bad_arguments_are_named(call: Callable[[], object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        call()


@pytest.mark.parametrize("suffix", [".npz", ".mat"])
def test_masks_of_a_file_are_in_its_order_and_of_every_shot(tmp_path: Path, suffix: str) -> None:
    given = torch.rand(2, 16, 16, 16, generator=seeded()).numpy()
    one, both = given[0], given
    if suffix == ".mat":
        one, both = one.transpose(1, 2, 0), both.transpose(2, 3, 1, 0)
    save_arrays(tmp_path / f"one{suffix}", mask=one)
    save_arrays(tmp_path / f"both{suffix}", mask=both)
    recording = Recording(frames=16, size="16x16", masks=tmp_path / f"one{suffix}")
    torch.testing.assert_close(recording.of().masks, torch.from_numpy(given[0]), rtol=0, atol=0)
    with pytest.raises(InputError, match="every shot"):
        replace(recording, shots=2).of()
    found = replace(recording, shots=2, masks=tmp_path / f"both{suffix}").of().masks
    torch.testing.assert_close(found, torch.from_numpy(given), rtol=0, atol=0)
