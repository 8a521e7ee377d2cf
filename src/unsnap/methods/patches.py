"""Recipes on patches: Gaussian mixtures, and a dictionary learned on the way."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from unsnap import zoo
from unsnap.algorithms import gap
from unsnap.algorithms.iterate import Solution, Watch
from unsnap.algorithms.schedules import constant, geometric
from unsnap.errors import InputError
from unsnap.methods.method import SHIPPED, Check, Method, Solve, plane_by_plane
from unsnap.operators import RGB, CodedOperator, Snapshot
from unsnap.priors.channels import across
from unsnap.priors.checks import check_size
from unsnap.priors.dictionary import Dictionary, learning
from unsnap.priors.gmm import GMM
from unsnap.priors.tv import TV

_PAPER = "Yang, Yuan, Liao, Llull, Brady, Sapiro & Carin, IEEE Trans. Image Process. 2014"
_DICTIONARY = Dictionary(patch=8, frames=2, stride=3, steps=1, atoms=(11, 3), rounds=1)


def _shipped(updates: int) -> Solve:
    def solve(y: Tensor, phi: CodedOperator, n: int, watch: Watch) -> Solution:
        model = zoo.shared("gmm")
        if not isinstance(model, GMM):
            raise InputError("the shipped mixture is not what it should be; install unsnap again")
        return replace(model, updates=updates)(y, phi, n, **watch)

    return solve


def _dictionary(y: Tensor, phi: CodedOperator, n: int, watch: Watch) -> Solution:
    start = gap(y, phi, across(TV(temporal=0.2, isotropic=False, iterations=4), phi), constant(0.1, 40)).x
    return gap(y, phi, across(learning(_DICTIONARY), phi), geometric(20 / 255, 4 / 255, n), x0=start, **watch)


def _fits(patch: int) -> Check:
    return lambda frames, height, width: check_size(patch, height, width)


def _gmm(name: str, summary: str, updates: int, tol: float, cpu_seconds: float) -> Method:
    count = max(2, 1 + updates)  # without updates, the second finds what the first has found, and says so
    return Method(
        name, "Gaussian mixture", summary, _PAPER, plane_by_plane(_shipped(updates)), count, tol, needs=SHIPPED,
        check=_fits(8), serves=(Snapshot, RGB), cpu_seconds=cpu_seconds,
    )  # fmt: skip


PATCHES = (
    _gmm("gmm", "mean of space-time patches under a trained Gaussian mixture, in closed form", 0, 1e-2, 13),
    _gmm("gmm-online", "the same, and the mixture learns from the patches it has found, three times", 3, 5e-2, 60),
    Method(
        "gap-dictionary",
        "plug-and-play",
        "accelerated GAP with K-SVD: patches sparse in a dictionary learned from the video itself, no weights",
        "Yang & Zhao 2022, with the K-SVD of Elad & Aharon, IEEE Trans. Image Process. 2006",
        _dictionary,
        iterations=16,
        tol=2e-2,
        cpu_seconds=25,
        check=_fits(_DICTIONARY.patch),
    ),
)
