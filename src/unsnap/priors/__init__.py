"""Everything that denoises without weights, as values with `denoiser(x, sigma)` and `value(x)`."""

from unsnap.priors.dictionary import Dictionary
from unsnap.priors.gmm import GMM, Mixture
from unsnap.priors.tv import TV
from unsnap.priors.wavelet import Wavelet
from unsnap.priors.wnnm import WNNM

__all__ = ["GMM", "TV", "WNNM", "Dictionary", "Mixture", "Wavelet"]
