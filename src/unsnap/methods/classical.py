"""Optimisation and plug-and-play with priors that have no weights.

A recipe with a schedule always runs to the schedule's end; one that minimises an objective stops at its tolerance.
The numbers were chosen on validation clips with `benchmarks/tune.py`, never on the benchmark scenes (gap-tv's weight is
nearer to the published one than the best there, which gains it 0.03 dB).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from unsnap.algorithms import admm, fista, gap, gd, pgd
from unsnap.algorithms.iterate import Denoiser, Solution, Watch
from unsnap.algorithms.schedules import constant
from unsnap.methods.method import Method, Solve, plane_by_plane
from unsnap.models import Interpolation, TotalVariation
from unsnap.operators import CodedOperator, Multishot, Snapshot
from unsnap.priors import TV, Wavelet
from unsnap.priors.channels import across, basis, components

# Four dual updates and one evaluation are the "five inner iterations" of the field's GAP-TV code.
_TV2D = TV(iterations=4)
# Inside an algorithm that minimises an objective, the prox has to be close to exact.
_TV3D_EXACT = TV(temporal=0.2, isotropic=False, iterations=10)
_TV3D_SMOOTH = TV(temporal=0.2, isotropic=False, smoothing=0.02)


def gap_with(denoise: Denoiser, sigma: float) -> Solve:
    """Accelerated GAP with one strength throughout; the prior sees the components of colours and bands."""
    return lambda y, phi, n, watch: gap(y, phi, across(denoise, phi), constant(sigma, n), **watch)


def _gap_tv(y: Tensor, phi: CodedOperator, n: int, watch: Watch) -> Solution:
    return gap(y, phi, _TV2D, constant(0.15, n), **watch)  # frame by frame, colours and bands too: the field's protocol


def _openness(y: Tensor, phi: CodedOperator) -> float | Tensor:
    """The most open mask over ‖Φ‖, squared, of each sample: weights are for masks in [0, 1], whatever their units."""
    peak = phi.peak().reshape(*phi.samples, -1).amax(-1)
    share = peak.square() / phi.positive_squared_norms()
    if not phi.samples:
        return float(share)
    lead = y.shape[: y.ndim - len(phi.image)]
    return share.expand(torch.broadcast_shapes(lead, share.shape))  # type: ignore[no-untyped-call]


def _times(denoise: Denoiser, share: float | Tensor) -> Denoiser:
    return lambda x, sigma: denoise(x, sigma * share)


def _admm(denoise: Denoiser, weight: float) -> Solve:
    rho = 0.003

    def solve(y: Tensor, phi: CodedOperator, n: int, watch: Watch) -> Solution:
        prox = _times(across(denoise, phi), _openness(y, phi))
        return admm(*phi.unit(y), prox, constant(weight / rho, n), rho=rho, **watch)

    return solve


def _proximal(solver: Callable[..., Solution], denoise: Denoiser, weight: float) -> Solve:
    def solve(y: Tensor, phi: CodedOperator, n: int, watch: Watch) -> Solution:
        prox = _times(across(denoise, phi), _openness(y, phi))
        return solver(*phi.unit(y), prox, constant(weight, n), alpha=1.0, **watch)

    return solve


def _gd(prior: TV, weight: float) -> Solve:
    def solve(y: Tensor, phi: CodedOperator, n: int, watch: Watch) -> Solution:
        own = weight * _openness(y, phi)
        alpha = 1.8 / (1 + own * prior.curvature)

        def value(x: Tensor) -> Tensor:
            if phi.channels == 1:
                return own * prior.value(x)
            return own * prior.value(components(x, basis(x, phi))).sum(-1)

        size = alpha if isinstance(alpha, float) else alpha[..., None, None, None]
        return gd(*phi.unit(y), value, n, alpha=size, **watch)

    return solve


def _tv3d(y: Tensor, phi: CodedOperator, n: int, watch: Watch, start: Tensor | None = None) -> Solution:
    return TotalVariation().solve(y, phi, n, start, **watch)


def _interpolation(y: Tensor, phi: CodedOperator, n: int, watch: Watch) -> Solution:
    return Interpolation().solve(y, phi)


def _minimiser(
    name: str, summary: str, reference: str, solve: Solve, iterations: int, tol: float, cpu_seconds: float, bytes_: int
) -> Method:
    return Method(
        name, "optimisation", summary, reference, solve, iterations, tol, early=True, cpu_seconds=cpu_seconds, grid=1,
        footprint=bytes_,
    )  # fmt: skip


CLASSICAL = (
    Method(
        "gap-tv3d",
        "plug-and-play",
        "accelerated GAP with space-time total variation",
        "Yuan, ICIP 2016, with differences in time as well",
        _tv3d,
        warm=_tv3d,
        cpu_seconds=0.18,
        reach=16,
        grid=1,
        footprint=28,
    ),
    Method(
        "gap-tv",
        "plug-and-play",
        "accelerated GAP with 2-D total variation: the field's baseline and its protocol",
        "Yuan, ICIP 2016",
        _gap_tv,
        cpu_seconds=0.19,
        reach=16,
        grid=1,
        footprint=24,
    ),
    Method(
        "gap-wavelet",
        "plug-and-play",
        "accelerated GAP with translation-invariant wavelet shrinkage",
        "Liao, Li & Carin, SIAM J. Imaging Sci. 2014",
        gap_with(Wavelet("haar", levels=2), 0.18),
        cpu_seconds=1.6,
        footprint=85,
    ),
    Method(
        "interpolation",
        "interpolation",
        "normalised convolution between what each pixel saw and when: for shutters open in few of many frames",
        "Knutsson & Westin, CVPR 1993",
        plane_by_plane(_interpolation),
        iterations=1,
        serves=(Snapshot, Multishot),
        cpu_seconds=0.3,
        reach=5,
        grid=1,
        footprint=60,
    ),
    _minimiser(
        "admm-tv3d",
        "ADMM on ½‖y − Φx‖² + 0.005·TV in space-time, with an inexact proximal step",
        "Boyd, Parikh, Chu, Peleato & Eckstein, Found. Trends Mach. Learn. 2011",
        _admm(_TV3D_EXACT, 0.005), 300, 3e-4, 0.33, 60,
    ),
    _minimiser(
        "fista-tv3d", "FISTA on ½‖y − Φx‖² + 0.005·TV in space-time", "Beck & Teboulle, SIAM J. Imaging Sci. 2009",
        _proximal(fista, _TV3D_EXACT, 0.005), 500, 1e-3, 1.3, 52,
    ),
    _minimiser(
        "pgd-tv3d", "proximal gradient, 0.02·TV: FISTA without its momentum",
        "Combettes & Wajs, Multiscale Model. Simul. 2005", _proximal(pgd, _TV3D_EXACT, 0.02), 1000, 5e-4, 1.7, 52,
    ),
    _minimiser(
        "gd-tv3d", "gradient descent by autograd on the objective with 0.02·TV, Huber-smoothed",
        "Zhao, Mathematical Cookbook for SCI, arXiv 2202.07437, 2022", _gd(_TV3D_SMOOTH, 0.02), 1000, 5e-4, 12, 224,
    ),
)  # fmt: skip
