"""The still picture that explains a snapshot, filled in where nothing was measured: where total variation begins."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d, interpolate

from unsnap.operators import CodedOperator

LITTLE = 0.03
"""What the next coarser scale counts, of the usual light of a pixel."""
CANCELLED = 1e-4
"""Where less than this is left of the light there is no picture to be found."""


def still(y: Tensor, phi: CodedOperator) -> Tensor:
    r"""Videos (..., T, H, W) of one picture each, $\sum_t(\Phi^\top y)_t / \sum_t(\Phi^\top\Phi 1)_t$, coarse to fine.

    $\Phi^+y$ is black where nothing was measured and dark along what the masks cannot tell apart, and total variation
    takes thousands of iterations to fill that in. Gortler et al., *The lumigraph*, SIGGRAPH 1996 (pull-push).
    Signed masks cancel in these sums, and the less is left of them the less they say of the picture.
    """
    seen = _summed(phi.A_adjoint(y), phi.channels)
    light = most = _white(phi)
    if bool((phi.masks < 0).any()):
        most = _white(phi.with_masks(phi.masks.abs()))
        left = torch.where(light > 0, light / most, 0).clamp(max=1).square()
        seen, light = left * seen, left * light
    lead, size = seen.shape[:-2], seen.shape[-2:]
    seen, light, most = (v.expand_as(seen).reshape(-1, 1, *size) for v in (seen, light, most))
    usual = phi.ask("light", lambda: _mean(most)).clamp(min=torch.finfo(y.dtype).tiny)
    mean = phi.ask("still", lambda: torch.where(_mean(light) > CANCELLED * usual, _mean(seen) / _mean(light), 0))
    picture = _filled(seen, light, usual, mean).reshape(*lead, 1, *size)
    return picture.expand(*lead, phi.video[0] // phi.channels, *size).flatten(-4, -3)


def _white(phi: CodedOperator) -> Tensor:
    """What comes back to every place of a white video."""
    return _summed(phi.A_adjoint(phi.A(phi.masks.new_ones(phi.video))), phi.channels)


def _summed(video: Tensor, channels: int) -> Tensor:
    """Over the frames of each colour: (..., colours · T, H, W) -> (..., colours, H, W)."""
    return torch.unflatten(video, -3, (channels, -1)).sum(-3)


def _mean(pictures: Tensor) -> Tensor:
    """(n, 1, 1, 1), row by row, so that it does not depend on the number of threads."""
    return pictures.mean(-1, keepdim=True).mean(-2, keepdim=True)


def _filled(seen: Tensor, light: Tensor, usual: Tensor, mean: Tensor) -> Tensor:
    """seen / light of (n, 1, H, W), where there is little light what the same gives at half the size."""
    if max(seen.shape[-2:]) == 1:
        guess = mean
    else:
        half = (-(-seen.shape[-2] // 2), -(-seen.shape[-1] // 2))
        coarse = _filled(adaptive_avg_pool2d(seen, half), adaptive_avg_pool2d(light, half), usual, mean)
        guess = interpolate(coarse, seen.shape[-2:], mode="bilinear", align_corners=False)
    return (seen + LITTLE * usual * guess) / (light + LITTLE * usual)
