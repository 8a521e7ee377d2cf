"""Metrics: exact values, a naive twin of SSIM, and agreement with scikit-image where it is installed."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from unsnap import metrics
from unsnap.errors import InputError


def pair(*shape: int, noise: float = 0.1) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    truth = torch.rand(shape, generator=generator, dtype=torch.float64)
    truth = (truth + truth.roll(1, -1) + truth.roll(1, -2)) / 3
    return truth + noise * torch.randn(shape, generator=generator, dtype=torch.float64), truth


def naive_ssim(estimate: Tensor, truth: Tensor, size: int = 11) -> float:
    """The definition: weighted moments in each window that fits, one window at a time."""
    x, y = estimate.clamp(0, 1).numpy(), truth.numpy()
    offsets = np.arange(size) - size // 2
    weights = np.exp(-(offsets[:, None] ** 2 + offsets[None] ** 2) / (2 * 1.5**2))
    weights /= weights.sum()
    values = []
    for i in range(x.shape[0] - size + 1):
        for j in range(x.shape[1] - size + 1):
            a, b = x[i : i + size, j : j + size], y[i : i + size, j : j + size]
            ma, mb = (weights * a).sum(), (weights * b).sum()
            va, vb = (weights * (a - ma) ** 2).sum(), (weights * (b - mb) ** 2).sum()
            cov = (weights * (a - ma) * (b - mb)).sum()
            values.append((2 * ma * mb + 1e-4) * (2 * cov + 9e-4) / ((ma**2 + mb**2 + 1e-4) * (va + vb + 9e-4)))
    return float(np.mean(values))


def test_psnr_of_a_known_error_per_frame() -> None:
    truth = torch.full((2, 3, 8, 9), 0.5)
    error = torch.tensor([[0.1, 0.01, 0.2], [0.001, 0.3, 0.05]])
    found = metrics.psnr(truth + error[..., None, None], truth)
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, -20 * error.double().log10(), rtol=1e-4, atol=0)


def test_estimate_is_clipped_before_it_is_compared() -> None:
    truth = torch.zeros(1, 16, 16)
    truth[:, :8] = 1
    wild = torch.where(truth > 0, 7.0, -3.0)
    assert metrics.psnr(wild, truth).item() == math.inf
    assert metrics.ssim(wild, truth).item() == pytest.approx(1, abs=1e-12)


def test_identical_videos() -> None:
    _, truth = pair(2, 20, 21)
    assert metrics.psnr(truth, truth).tolist() == [math.inf] * 2
    torch.testing.assert_close(metrics.ssim(truth, truth), torch.ones(2, dtype=torch.float64))


def test_nan_is_not_hidden() -> None:
    estimate, truth = pair(2, 20, 21)
    estimate[0, 5, 5] = math.nan
    for values in (metrics.psnr(estimate, truth), metrics.ssim(estimate, truth)):
        assert values.isnan().tolist() == [True, False]


@pytest.mark.parametrize(("height", "width"), [(11, 11), (20, 17), (40, 12)])
def test_ssim_equals_its_naive_twin(height: int, width: int) -> None:
    estimate, truth = pair(2, height, width)
    expected = [naive_ssim(e, t) for e, t in zip(estimate, truth, strict=True)]
    torch.testing.assert_close(metrics.ssim(estimate, truth).tolist(), expected, rtol=1e-10, atol=0)


@pytest.mark.parametrize(("height", "width", "size"), [(10, 30, 9), (7, 8, 7), (4, 9, 3), (1, 5, 1)])
def test_small_frames_get_the_largest_odd_window_that_fits(height: int, width: int, size: int) -> None:
    estimate, truth = pair(1, height, width)
    found = metrics.ssim(estimate, truth).item()
    assert found == pytest.approx(naive_ssim(estimate[0], truth[0], size), rel=1e-9)


def test_strips_do_not_change_ssim(monkeypatch: pytest.MonkeyPatch) -> None:
    estimate, truth = pair(1, 60, 33)
    whole = metrics.ssim(estimate, truth)
    for rows in (1, 7, 50):
        monkeypatch.setattr(metrics, "_STRIP", rows)
        torch.testing.assert_close(metrics.ssim(estimate, truth), whole, rtol=1e-12, atol=0)


@pytest.mark.parametrize("noise", [0.01, 0.1, 0.4])
def test_agrees_with_scikit_image(noise: float) -> None:
    reference = pytest.importorskip("skimage.metrics")
    estimate, truth = pair(2, 300, 64, noise=noise)
    clipped = estimate.clamp(0, 1)
    for k in range(2):
        _, full = reference.structural_similarity(
            truth[k].numpy(), clipped[k].numpy(), gaussian_weights=True, sigma=1.5, use_sample_covariance=False,
            data_range=1, win_size=11, full=True,
        )  # fmt: skip
        assert metrics.ssim(estimate, truth)[k].item() == pytest.approx(full[5:-5, 5:-5].mean(), rel=1e-9)
        expected = reference.peak_signal_noise_ratio(truth[k].numpy(), clipped[k].numpy(), data_range=1)
        assert metrics.psnr(estimate, truth)[k].item() == pytest.approx(expected, rel=1e-12)


def test_score_averages_frames_then_snapshots_of_known_truth() -> None:
    estimate, truth = pair(3, 4, 16, 18)
    estimate[1] = 0.5 * (estimate[1] + truth[1])
    found = metrics.score(estimate, truth[:2])
    per_frame = metrics.psnr(estimate[:2], truth[:2])
    assert found.psnr_per_snapshot == pytest.approx([float(per_frame[0].mean()), float(per_frame[1].mean())])
    assert found.psnr_per_snapshot[1] > found.psnr_per_snapshot[0] + 5
    assert found.psnr == pytest.approx(sum(found.psnr_per_snapshot) / 2)
    assert found.ssim == pytest.approx(sum(found.ssim_per_snapshot) / 2)
    assert found.ssim_per_snapshot[1] == pytest.approx(metrics.ssim(estimate, truth)[1].mean().item())


def test_float32_is_compared_in_float64() -> None:
    estimate, truth = (v.float() for v in pair(1, 32, 32, noise=1e-6))
    torch.testing.assert_close(metrics.psnr(estimate, truth), metrics.psnr(estimate.double(), truth.double()))
    assert metrics.psnr(estimate, truth).item() > 100


@pytest.mark.parametrize(
    ("estimate", "truth"),
    [((2, 4, 8, 8), (3, 4, 8, 8)), ((2, 4, 8, 8), (2, 4, 8, 9)), ((4, 8, 8), (4, 8, 8)), ((2, 4, 8, 8), (0, 4, 8, 8))],
)
def test_score_refuses_shapes_that_do_not_match(estimate: tuple[int, ...], truth: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="got shapes"):
        metrics.score(torch.zeros(estimate), torch.zeros(truth))


@pytest.mark.parametrize("measure", [metrics.psnr, metrics.ssim, metrics.score])
def test_numpy_arrays_are_as_good_as_tensors(measure: Callable) -> None:
    estimate, truth = pair(1, 2, 16, 12)
    expected = measure(estimate, truth)
    for found in (measure(estimate.numpy(), truth.numpy()), measure(estimate.numpy(), truth)):
        assert torch.equal(found, expected) if isinstance(found, Tensor) else found == expected
    with pytest.raises(InputError, match="truth must be a tensor or a numeric array, got str"):
        measure(estimate, "a")


@pytest.mark.parametrize("measure", [metrics.psnr, metrics.ssim])
def test_measures_refuse_shapes_that_do_not_match(measure: Callable[[Tensor, Tensor], Tensor]) -> None:
    with pytest.raises(InputError, match=r"\(1, 8, 8\) and \(1, 8, 9\)"):
        measure(torch.zeros(1, 8, 8), torch.zeros(1, 8, 9))
    with pytest.raises(InputError, match="same shape"):
        measure(torch.zeros(8, 8), torch.zeros(8, 8))
