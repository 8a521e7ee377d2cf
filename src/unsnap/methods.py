"""Name -> ready-made recipe: the one list that the command line, the benchmark and the studio share.

A recipe with a schedule always runs to the schedule's end; one that minimises an objective stops at its tolerance.
The numbers were chosen on validation clips with `benchmarks/tune.py`, never on the benchmark scenes (gap-tv's weight is
nearer to the published one than the best there, which gains it 0.03 dB; gap-wnnm's come from scratch runs on the
same clips, and `benchmarks/noisy_snapshots.py` shows what its knowledge of the noise is worth).
"""

from __future__ import annotations

import difflib
from collections.abc import Callable

import torch
from torch import Tensor
from typing_extensions import Unpack

from unsnap.algorithms import admm, fista, gap, gd, noisy_gap, pgd
from unsnap.errors import InputError
from unsnap.iterate import Callback, Denoiser, Solution, Watch
from unsnap.method import SHIPPED, Check, Method, Solve
from unsnap.noise import noise_map
from unsnap.operators import CodedOperator, Snapshot
from unsnap.patch_methods import PATCHES
from unsnap.plug_and_play import RECIPES, staged
from unsnap.priors import TV, WNNM, Wavelet
from unsnap.priors.wnnm import rematching
from unsnap.schedules import constant, geometric

__all__ = ["DEFAULT", "METHODS", "Method", "get", "reconstruct"]


def _gap(denoise: Denoiser, sigma: float) -> Solve:
    return lambda y, phi, n, watch: gap(y, phi, denoise, constant(sigma, n), **watch)


def _admm(denoise: Denoiser, weight: float) -> Solve:
    def solve(y: Tensor, phi: CodedOperator, n: int, watch: Watch) -> Solution:
        rho = 0.003 * phi.squared_norm()
        return admm(y, phi, denoise, constant(weight / rho, n), rho=rho, **watch)

    return solve


def _proximal(solver: Callable[..., Solution], denoise: Denoiser, weight: float) -> Solve:
    def solve(y: Tensor, phi: CodedOperator, n: int, watch: Watch) -> Solution:
        alpha = 1 / phi.squared_norm()
        return solver(y, phi, denoise, constant(alpha * weight, n), alpha=alpha, **watch)

    return solve


def _gd(prior: TV, weight: float) -> Solve:
    def solve(y: Tensor, phi: CodedOperator, n: int, watch: Watch) -> Solution:
        alpha = 1.8 / (phi.squared_norm() + weight * prior.curvature)
        return gd(y, phi, lambda x: weight * prior.value(x), n, alpha=alpha, **watch)

    return solve


def _desci(y: Tensor, phi: CodedOperator, n: int, watch: Watch) -> Solution:
    # The paper's levels and patches, and one level more: 3 gains 1.2 dB on the cleanest of the validation clips.
    schedule = staged((100, 50, 25, 12, 6, 3), n)
    start = gap(y, phi, _TV2D, constant(0.15, 40)).x
    return gap(y, phi, rematching(WNNM.published, 20), schedule, x0=start, **watch)


def low_rank(y: Tensor, phi: CodedOperator, noise: Tensor, n: int = 16, **watch: Unpack[Watch]) -> Solution:
    """The recipe of gap-wnnm for a noise (..., H, W) that is known."""
    start = gap(y, _legible(phi, noise), _TV3D, constant(0.2, 100)).x
    clean, least = rematching(lambda sigma: _WNNM, 8), _in_video(noise, phi, start)

    def denoise(x: Tensor, sigma: float | Tensor, /) -> Tensor:
        return clean(x, least.clamp(min=float(sigma)))

    how: Watch = {"early": False, **watch}
    return noisy_gap(y, phi, denoise, geometric(60 / 255, 8 / 255, n), noise=noise, x0=start, **how)


def _in_video(noise: Tensor, phi: CodedOperator, video: Tensor) -> Tensor:
    """(..., 1, H, W): about what noise of the snapshots leaves in the frames, at most 30/255."""
    each = (0.6 * noise / phi.contrast()).nan_to_num().clamp(max=30 / 255)
    return each.reshape(*video.shape[:-3], -1, *video.shape[-2:]).square().mean(-3, keepdim=True).sqrt()


def _legible(phi: CodedOperator, noise: Tensor) -> CodedOperator:
    """The camera without the pixels whose light is hardly more than their noise: a start shows them as salt."""
    dark = phi.masks.square().sum(-3) < (4 * noise) ** 2
    if not bool(dark.any()):
        return phi
    masks = phi.masks.expand(*dark.shape[:-2], *phi.masks.shape[-3:]) if dark.ndim >= phi.masks.ndim else phi.masks
    return type(phi)(torch.where(dark.unsqueeze(-3), 0, masks))


def _wnnm(y: Tensor, phi: CodedOperator, n: int, watch: Watch) -> Solution:
    return low_rank(y, phi, noise_map(y, phi.masks), n, **watch)


def _fits(prior: WNNM) -> Check:
    return lambda frames, height, width: prior.check_size(height, width)


def _shipped(name: str) -> Solve:
    def solve(y: Tensor, phi: CodedOperator, n: int, watch: Watch) -> Solution:
        from unsnap.model_file import run
        from unsnap.zoo import shared

        return run(shared(name), name, y, phi, n, watch)

    return solve


def _plug_and_play(y: Tensor, phi: CodedOperator, n: int, watch: Watch) -> Solution:
    from unsnap.zoo import shared

    return gap(y, phi, shared("denoiser").to(y).network, geometric(60 / 255, 6 / 255, n), **watch)


# Four dual updates and one evaluation are the "five inner iterations" of the field's GAP-TV code.
_TV2D = TV(iterations=4)
_TV3D = TV(temporal=0.2, isotropic=False, iterations=4)
# Inside an algorithm that minimises an objective, the prox has to be close to exact.
_TV3D_EXACT = TV(temporal=0.2, isotropic=False, iterations=10)
_TV3D_SMOOTH = TV(temporal=0.2, isotropic=False, smoothing=0.02)
# Few large patches in small groups: what a level costs falls by ten, what it gains by little.
_WNNM = WNNM(patch=10, group=16, stride=8, radius=7)

DEFAULT = "de-gap"

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method(
            "de-gap",
            "equilibrium",
            "deep equilibrium GAP with a U-net over all frames alike, from gap-wnnm's video",
            "Zhao, Zheng & Yuan, AAAI 2023, with our network and training",
            _shipped("de-gap"),
            iterations=60,
            tol=1e-4,
            early=True,
            needs=SHIPPED,
            cpu_seconds=4.2,
        ),
        Method(
            "de-gap-certified",
            "equilibrium",
            "deep equilibrium GAP with a denoiser that provably converges, whatever the masks",
            "this library: unsnap certify de-gap-certified",
            _shipped("de-gap-certified"),
            iterations=73,
            tol=1e-5,
            early=True,
            needs=SHIPPED,
            cpu_seconds=12,
        ),
        Method(
            "de-rnn",
            "equilibrium",
            "a small recurrent network over the frames as the whole iteration, from gap-wnnm's video",
            "Zhao, Zheng & Yuan, AAAI 2023, with our network and training",
            _shipped("de-rnn"),
            iterations=60,
            tol=1e-4,
            early=True,
            needs=SHIPPED,
            cpu_seconds=5.3,
        ),
        Method(
            "pnp",
            "plug-and-play",
            "accelerated GAP with our space-time denoiser, sigma from 60 to 6 of 255",
            "Yuan, Liu, Suo & Dai, CVPR 2020, with our denoiser",
            _plug_and_play,
            iterations=40,
            tol=1e-2,
            early=False,
            needs=SHIPPED,
            cpu_seconds=11,
        ),
        Method(
            "gap-wnnm",
            "rank minimisation",
            "GAP that knows the noise, with low-rank groups of similar patches: DeSCI's idea in seconds, no weights",
            "Liu, Yuan, Suo, Brady & Dai, TPAMI 2019, with fewer, larger patches",
            _wnnm,
            iterations=16,
            tol=1e-2,
            early=False,
            cpu_seconds=2.5,
            check=_fits(_WNNM),
        ),
        Method(
            "gap-tv3d",
            "plug-and-play",
            "accelerated GAP with space-time total variation",
            "Yuan, ICIP 2016, with differences in time as well",
            _gap(_TV3D, 0.1),
            iterations=40,
            tol=1e-2,
            early=False,
            cpu_seconds=0.18,
        ),
        Method(
            "gap-tv",
            "plug-and-play",
            "accelerated GAP with 2-D total variation: the field's baseline and its protocol",
            "Yuan, ICIP 2016",
            _gap(_TV2D, 0.15),
            iterations=40,
            tol=1e-2,
            early=False,
            cpu_seconds=0.19,
        ),
        Method(
            "gap-wavelet",
            "plug-and-play",
            "accelerated GAP with translation-invariant wavelet shrinkage",
            "Liao, Li & Carin, SIAM J. Imaging Sci. 2014",
            _gap(Wavelet("haar", levels=2), 0.18),
            iterations=40,
            tol=1e-2,
            early=False,
            cpu_seconds=1.6,
        ),
        Method(
            "admm-tv3d",
            "optimisation",
            "ADMM on ½‖y − Φx‖² + 0.005·TV in space-time, with an inexact proximal step",
            "Boyd, Parikh, Chu, Peleato & Eckstein, Found. Trends Mach. Learn. 2011",
            _admm(_TV3D_EXACT, 0.005),
            iterations=300,
            tol=3e-4,
            early=True,
            cpu_seconds=0.33,
        ),
        Method(
            "fista-tv3d",
            "optimisation",
            "FISTA on ½‖y − Φx‖² + 0.005·TV in space-time",
            "Beck & Teboulle, SIAM J. Imaging Sci. 2009",
            _proximal(fista, _TV3D_EXACT, 0.005),
            iterations=500,
            tol=1e-3,
            early=True,
            cpu_seconds=1.3,
        ),
        Method(
            "pgd-tv3d",
            "optimisation",
            "proximal gradient, 0.02·TV: FISTA without its momentum",
            "Combettes & Wajs, Multiscale Model. Simul. 2005",
            _proximal(pgd, _TV3D_EXACT, 0.02),
            iterations=1000,
            tol=5e-4,
            early=True,
            cpu_seconds=1.7,
        ),
        Method(
            "gd-tv3d",
            "optimisation",
            "gradient descent by autograd on the objective with 0.02·TV, Huber-smoothed",
            "Zhao, Mathematical Cookbook for SCI, arXiv 2202.07437, 2022",
            _gd(_TV3D_SMOOTH, 0.02),
            iterations=1000,
            tol=5e-4,
            early=True,
            cpu_seconds=12,
        ),
        Method(
            "desci",
            "rank minimisation",
            "accelerated GAP with the weighted nuclear norm of groups of similar patches in space-time: minutes",
            "Liu, Yuan, Suo, Brady & Dai, TPAMI 2019",
            _desci,
            iterations=120,
            tol=1e-2,
            early=False,
            cpu_seconds=320,
            check=_fits(WNNM.published(100 / 255)),
        ),
        *PATCHES,
        *RECIPES,
    )
}


def get(name: str) -> Method:
    """The method of that name, or in that model file (.safetensors); an InputError suggests the nearest names."""
    if name.endswith(".safetensors"):
        from unsnap.model_file import as_method

        return as_method(name)
    if name not in METHODS:
        near = difflib.get_close_matches(name, METHODS, n=3, cutoff=0.4) or list(METHODS)
        raise InputError(f"method {name!r} is not known; did you mean {', '.join(near)}? (`unsnap methods` lists all)")
    return METHODS[name]


def reconstruct(
    y: Tensor,
    masks: Tensor | CodedOperator,
    method: str = DEFAULT,
    *,
    iterations: int | None = None,
    tol: float | None = None,
    callback: Callback | None = None,
) -> Solution:
    """Video(s) (..., T, H, W) behind snapshot(s) y (..., H, W) taken through masks (T, H, W); intensities in [0, 1].

    >>> import torch
    >>> from unsnap.masks import bernoulli
    >>> masks = bernoulli(4, 32, 32, generator=torch.Generator().manual_seed(0))
    >>> reconstruct((masks * 0.5).sum(0), masks).x.shape
    torch.Size([4, 32, 32])
    """
    phi = masks if isinstance(masks, CodedOperator) else Snapshot(masks)
    return get(method)(y, phi, iterations=iterations, tol=tol, callback=callback)
