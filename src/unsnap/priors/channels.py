r"""Priors across colours and bands: what the channels of one pixel have in common is denoised once.

The channels are turned by an orthonormal basis B, cleaned each on its own, and turned back: $B^\top D_\sigma(Bx)$.
Noise that is alike in all channels stays so. The colours of a mosaic are turned to brightness and two differences;
bands to the few principal components that hold nearly all of a natural spectrum; the rest, mostly noise, is left out.
"""

from __future__ import annotations

import torch
from torch import Tensor

from unsnap.algorithms.iterate import Denoiser
from unsnap.operators import RGB, CodedOperator

COMPONENTS = 5
"""Principal components that are kept of a spectrum of more than three bands."""
_OPPONENT = ((3**-0.5, 3**-0.5, 3**-0.5), (2**-0.5, 0.0, -(2**-0.5)), (6**-0.5, -2 * 6**-0.5, 6**-0.5))


def across(denoise: Denoiser, phi: CodedOperator) -> Denoiser:
    """The denoiser of videos (..., T, H, W) for the videos of a camera with any number of channels.

    >>> from unsnap import TV, Snapshot
    >>> tv = TV()
    >>> across(tv, Snapshot(torch.ones(2, 4, 4))) is tv
    True
    """
    if phi.channels == 1:
        return denoise

    def turned(x: Tensor, sigma: float | Tensor, /) -> Tensor:
        return in_basis(denoise, basis(x, phi))(x, sigma)

    return turned


def across_pictures(network: Denoiser, phi: CodedOperator) -> Denoiser:
    """The same for a network that knows pictures in [0, 1]: brightness is the mean, differences lie around a half.

    Bands are left as they are, the frames of a video.
    """
    colours = len(_OPPONENT)
    if phi.channels != colours or isinstance(phi, RGB):
        return across(network, phi) if isinstance(phi, RGB) else network

    def turned(parts: Tensor, sigma: float | Tensor, /) -> Tensor:
        grey = parts.new_tensor([0.0, 0.5, 0.5]).reshape(colours, 1, 1, 1)
        scale = 3**-0.5
        return (network(parts * scale + grey, sigma * scale) - grey) / scale

    return across(turned, phi)


def in_basis(denoise: Denoiser, rows: Tensor) -> Denoiser:
    """The denoiser of components (..., K, T, H, W) for videos (..., C·T, H, W), with the basis rows (..., K, C)."""

    def turned(x: Tensor, sigma: float | Tensor, /) -> Tensor:
        if isinstance(sigma, Tensor) and sigma.ndim:  # one per sample, or a map
            sigma = sigma.unsqueeze(-4 if sigma.ndim == x.ndim else -1)
        return from_components(denoise(components(x, rows), sigma), rows)

    return turned


def basis(video: Tensor, phi: CodedOperator) -> Tensor:
    """Orthonormal rows (..., K, C) for videos (..., C·T, H, W): the strongest first, of a mosaic brightness.

    Three detectors see each colour everywhere; together the colours gain nothing there (measured), so they stay apart.
    """
    channels = phi.channels
    if isinstance(phi, RGB):
        return torch.eye(channels).to(video)
    if channels == len(_OPPONENT):
        return video.new_tensor(_OPPONENT)
    return phi.ask("basis", lambda: _principal(torch.unflatten(video.detach(), -3, (channels, -1)).flatten(-3)))


def _principal(spectra: Tensor) -> Tensor:
    """(..., K, C) of spectra (..., C, pixels)."""
    vectors = torch.linalg.eigh(spectra @ spectra.mT).eigenvectors  # in ascending order of their eigenvalues
    strongest: Tensor = vectors.flip(-1)[..., :COMPONENTS].mT
    return strongest


def components(video: Tensor, rows: Tensor) -> Tensor:
    """(..., K, T, H, W) of a video (..., C·T, H, W)."""
    return torch.einsum("...kc,...cthw->...kthw", rows, torch.unflatten(video, -3, (rows.shape[-1], -1)))


def from_components(parts: Tensor, rows: Tensor) -> Tensor:
    """The video of which these are the components, nearest to it if some were left out."""
    return torch.einsum("...kc,...kthw->...cthw", rows, parts).flatten(-4, -3)
