"""Recipes that know patches: Gaussian mixtures (shipped, or of a file), and a dictionary learned on the way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from torch import Tensor

from unsnap.algorithms import gap
from unsnap.iterate import Solution, Watch
from unsnap.method import SHIPPED, Check, Method, Solve
from unsnap.operators import CodedOperator
from unsnap.priors.dictionary import Dictionary, learning
from unsnap.priors.gmm import GMM, Mixture, check_size
from unsnap.priors.tv import TV
from unsnap.schedules import constant, geometric

_PAPER = "Yang, Yuan, Liao, Llull, Brady, Sapiro & Carin, IEEE Trans. Image Process. 2014"
_UPDATES = 3
_DICTIONARY = Dictionary(patch=8, frames=2, stride=3, steps=1, atoms=(11, 3), rounds=1)


def mixture_method(path: str | Path) -> Method:
    """The mixture in a file as a method that `reconstruct`, `bench` and `compare` accept."""
    from unsnap.mixture_file import load_mixture

    mixture = load_mixture(path)
    return Method(
        name=Path(path).stem,
        family="Gaussian mixture",
        summary=f"{len(mixture.weights)} Gaussians on {mixture.patch}×{mixture.patch}×{mixture.frames} patches",
        reference=_PAPER,
        solve=_mixture(lambda: mixture, 0),
        iterations=2,
        tol=1e-2,
        early=False,
        check=_fits(mixture.patch),
    )


def _shipped() -> Mixture:
    from unsnap.zoo import shared_mixture

    return shared_mixture("gmm")


def _mixture(source: Callable[[], Mixture], updates: int) -> Solve:
    def solve(y: Tensor, phi: CodedOperator, n: int, watch: Watch) -> Solution:
        return GMM(source(), updates=updates)(y, phi, n, **watch)

    return solve


def _dictionary(y: Tensor, phi: CodedOperator, n: int, watch: Watch) -> Solution:
    start = gap(y, phi, TV(temporal=0.2, isotropic=False, iterations=4), constant(0.1, 40)).x
    return gap(y, phi, learning(_DICTIONARY), geometric(20 / 255, 4 / 255, n), x0=start, **watch)


def _fits(patch: int) -> Check:
    return lambda frames, height, width: check_size(patch, height, width)


PATCHES = (
    Method(
        "gmm",
        "Gaussian mixture",
        "mean of space-time patches under a trained Gaussian mixture, in closed form: no iteration",
        _PAPER,
        _mixture(_shipped, 0),
        # The second finds what the first has found, and says so.
        iterations=2,
        tol=1e-2,
        early=False,
        cpu_seconds=13,
        needs=SHIPPED,
        check=_fits(8),
    ),
    Method(
        "gmm-online",
        "Gaussian mixture",
        "the same, and the mixture learns from the patches it has found, three times",
        _PAPER,
        _mixture(_shipped, _UPDATES),
        iterations=1 + _UPDATES,
        tol=5e-2,
        early=False,
        cpu_seconds=60,
        needs=SHIPPED,
        check=_fits(8),
    ),
    Method(
        "gap-dictionary",
        "plug-and-play",
        "accelerated GAP with K-SVD: patches sparse in a dictionary learned from the video itself, no weights",
        "Yang & Zhao 2022, with the K-SVD of Elad & Aharon, IEEE Trans. Image Process. 2006",
        _dictionary,
        iterations=16,
        tol=2e-2,
        early=False,
        cpu_seconds=25,
        check=_fits(_DICTIONARY.patch),
    ),
)
