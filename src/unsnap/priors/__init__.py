"""Everything that denoises without weights, as values with `denoiser(x, sigma)` and `value(x)`."""

from unsnap.priors.tv import TV
from unsnap.priors.wavelet import Wavelet
from unsnap.priors.wnnm import WNNM

__all__ = ["TV", "WNNM", "Wavelet"]
