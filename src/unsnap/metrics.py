"""PSNR and SSIM as the field's benchmark computes them.

Both compare frame by frame in float64, with the estimate clipped to [0, 1] and a peak of 1; a score is the mean over
the frames of a snapshot, then over snapshots. Identical frames have PSNR inf and SSIM 1; NaN stays NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from unsnap.arrays import tensor_of
from unsnap.errors import InputError

_WINDOW, _SIGMA = 11, 1.5
_C1, _C2 = 0.01**2, 0.03**2
_STRIP = 256  # rows filtered at a time: bounds the memory at any resolution


@dataclass(frozen=True)
class Score:
    """Means over frames, then snapshots; PSNR in dB."""

    psnr: float
    ssim: float
    psnr_per_snapshot: list[float]
    ssim_per_snapshot: list[float]


def psnr(estimate: Tensor | NDArray[Any], truth: Tensor | NDArray[Any]) -> Tensor:
    """Peak signal-to-noise ratio -10 log₁₀ MSE in dB of videos (..., T, H, W), per frame: (..., T)."""
    return _per_frame(_psnr_frame, estimate, truth)


def ssim(estimate: Tensor | NDArray[Any], truth: Tensor | NDArray[Any]) -> Tensor:
    """Structural similarity of videos (..., T, H, W), per frame: (..., T).

    Gaussian window 11 × 11 with σ = 1.5, population statistics, K₁ = 0.01, K₂ = 0.03, mean over the region where the
    window fits (Wang et al. 2004, their ssim.m). In frames smaller than that, the window is the largest odd one that
    fits.
    """
    return _per_frame(_ssim_frame, estimate, truth)


def score(estimate: Tensor | NDArray[Any], truth: Tensor | NDArray[Any]) -> Score:
    """Score of an estimate (N, T, H, W) against the truth (M, T, H, W) known for its first M <= N snapshots."""
    estimate, truth = tensor_of(estimate, "estimate"), tensor_of(truth, "truth")
    fits = estimate.ndim == truth.ndim == 4 and estimate.shape[1:] == truth.shape[1:]
    if not fits or not 0 < truth.shape[0] <= estimate.shape[0]:
        raise InputError(
            f"estimate must be (N, T, H, W) and truth (M, T, H, W) with 1 <= M <= N, "
            f"got shapes {tuple(estimate.shape)} and {tuple(truth.shape)}"
        )
    known = estimate[: truth.shape[0]]
    psnrs, ssims = psnr(known, truth).mean(-1), ssim(known, truth).mean(-1)
    return Score(float(psnrs.mean()), float(ssims.mean()), psnrs.tolist(), ssims.tolist())


def _per_frame(
    measure: Callable[[Tensor, Tensor], Tensor], estimate: Tensor | NDArray[Any], truth: Tensor | NDArray[Any]
) -> Tensor:
    estimate, truth = tensor_of(estimate, "estimate"), tensor_of(truth, "truth")
    if estimate.shape != truth.shape or estimate.ndim < 3 or estimate.numel() == 0:
        raise InputError(
            f"estimate and truth must have the same shape (..., T, H, W), "
            f"got {tuple(estimate.shape)} and {tuple(truth.shape)}"
        )
    pairs = zip(estimate.flatten(0, -3), truth.flatten(0, -3), strict=True)
    values = [measure(x.to(torch.float64).clamp(0, 1), y.to(torch.float64)) for x, y in pairs]
    return torch.stack(values).reshape(estimate.shape[:-2])


def _psnr_frame(x: Tensor, y: Tensor) -> Tensor:
    return -10 * torch.log10((x - y).square().mean())


def _ssim_frame(x: Tensor, y: Tensor) -> Tensor:
    size = min(_WINDOW, *(n - 1 + n % 2 for n in x.shape))
    offsets = torch.arange(size, dtype=x.dtype, device=x.device) - size // 2
    window = torch.exp(-0.5 * (offsets / _SIGMA) ** 2)
    window = window / window.sum()
    rows, columns = x.shape[0] - size + 1, x.shape[1] - size + 1
    strips = [slice(top, min(top + _STRIP, rows) + size - 1) for top in range(0, rows, _STRIP)]
    return torch.stack([_ssim_map(x[s], y[s], window).sum() for s in strips]).sum() / (rows * columns)


def _ssim_map(x: Tensor, y: Tensor, window: Tensor) -> Tensor:
    mean_x, mean_y = _filter(x, window), _filter(y, window)
    product, power = mean_x * mean_y, mean_x.square() + mean_y.square()
    covariance = _filter(x * y, window) - product
    variances = _filter(x.square() + y.square(), window) - power
    return (2 * product + _C1) * (2 * covariance + _C2) / ((power + _C1) * (variances + _C2))


def _filter(image: Tensor, window: Tensor) -> Tensor:
    return _filter_rows(_filter_rows(image, window).mT, window).mT


def _filter_rows(image: Tensor, window: Tensor) -> Tensor:
    # Shifted sums instead of a convolution call: no im2col copy, which would be 11 images large.
    rows = image.shape[0] - len(window) + 1
    out = window[0] * image[:rows]
    for k in range(1, len(window)):
        out += window[k] * image[k : k + rows]
    return out
