"""Everything that denoises without weights, as values with `denoiser(x, sigma)` and `value(x)`."""

from unsnap.priors.tv import TV
from unsnap.priors.wavelet import Wavelet

__all__ = ["TV", "Wavelet"]
