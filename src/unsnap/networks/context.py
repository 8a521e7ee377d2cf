"""What a network may be shown of the measurement beside the estimate, on the scale of the video."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from unsnap.noise import noise_map
from unsnap.operators import Snapshot

SMALLEST = 16
"""Height and width from which `guess` searches for similar patches."""


def unit_masks(phi: Snapshot) -> Tensor:
    """The masks with their largest value as 1: the scale of a camera's masks carries no information."""
    return phi.masks / phi.peak().unsqueeze(-3)


def picture(y: Tensor, phi: Snapshot) -> Tensor:
    """The snapshot as a picture (..., H, W): y over the sum of masks, dark where the light vanishes or cancels."""
    light = phi.masks.sum(-3)
    seen = light.abs() > 1e-3 * phi.peak()
    return torch.where(seen, y / torch.where(seen, light, 1), 0)


def noise(y: Tensor, phi: Snapshot) -> Tensor:
    """The noise of the snapshot as a picture (..., H, W); a white frame behind an open mask is 1."""
    return noise_map(y, phi.masks) / phi.peak()


@torch.no_grad()
def guess(y: Tensor, phi: Snapshot) -> Tensor:
    """The best video (..., T, H, W) that a few seconds buy without weights; no gradient.

    Low-rank groups of similar patches, or GAP-TV where a patch does not fit.
    """
    from unsnap.methods import METHODS

    return METHODS["gap-wnnm" if min(y.shape[-2:]) >= SMALLEST else "gap-tv3d"](y, phi).x


def from_guess(
    run: Callable[[Tensor, float | Tensor, Tensor], Tensor], look: nn.Module, shown: Tensor, guessed: Tensor
) -> Callable[[Tensor, float | Tensor], Tensor]:
    """The denoiser that changes the middle between x and the guess; `look(shown)`, its view of it all, is kept."""
    kept: list[Tensor] = []

    def denoise(x: Tensor, sigma: float | Tensor) -> Tensor:
        if torch.is_grad_enabled():  # the weights of `look` are to be learned
            return run(x, sigma, look(shown)) - (x - guessed) / 2
        if not kept:
            kept.append(look(shown))
        return run(x, sigma, kept[0]) - (x - guessed) / 2

    return denoise


@torch.no_grad()
def total_variation(y: Tensor, phi: Snapshot) -> Tensor:
    """The GAP-TV video (..., T, H, W), which costs less than one evaluation of most networks; no gradient."""
    from unsnap.methods import METHODS

    return METHODS["gap-tv3d"](y, phi).x
