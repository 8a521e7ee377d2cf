"""Everything that denoises without weights, as values with `denoiser(x, sigma)` and `value(x)`."""

from typing import NamedTuple

from unsnap.algorithms.iterate import Denoiser
from unsnap.priors.dictionary import Dictionary
from unsnap.priors.gmm import GMM, Mixture
from unsnap.priors.group_filter import GroupFilter
from unsnap.priors.tv import TV
from unsnap.priors.wavelet import Wavelet
from unsnap.priors.wnnm import WNNM
from unsnap.registry import Registry

__all__ = ["GMM", "PRIORS", "TV", "WNNM", "Dictionary", "GroupFilter", "Mixture", "Prior", "Wavelet"]


class Prior(NamedTuple):
    """A denoiser and the strength that suits it inside GAP, in units where white is 1."""

    denoise: Denoiser
    sigma: float


PRIORS: Registry[Prior] = Registry("prior", {}, Prior)
"""What plug-ins bring, by name: `--method gap-NAME` is accelerated GAP with it. Our own have methods of their own."""
