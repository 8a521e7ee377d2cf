r"""Plug-and-play with published denoisers, as their papers run them.

Accelerated GAP (or ADMM) with sigma falling in stages: Yuan, Liu, Suo & Dai, *Plug-and-play algorithms for large-scale
snapshot compressive imaging*, CVPR 2020; Yuan, Liu, Suo, Durand & Dai, *Plug-and-play algorithms for video snapshot
compressive imaging*, TPAMI 2021. Other people's weights cannot be shipped: `published` says where they are looked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from unsnap.algorithms import admm, gap
from unsnap.algorithms.descent import Energy, descent
from unsnap.algorithms.iterate import Denoiser, Solution, Watch
from unsnap.algorithms.schedules import staged
from unsnap.methods.method import Check, Method, Solve, plane_by_plane
from unsnap.methods.published import Weights
from unsnap.models.base import fitted
from unsnap.models.starts import TotalVariation, first_video
from unsnap.operators import CodedOperator
from unsnap.priors import bm
from unsnap.priors.channels import across_pictures

FFDNET = Weights(
    "ffdnet",
    ("ffdnet_net_gray.pth", "net_gray.pth", "ffdnet_gray.pth"),
    "liuyang12/PnP-SCI_python (packages/ffdnet/models/net_gray.pth) or cszn/KAIR (ffdnet_gray.pth)",
)
FASTDVDNET = Weights(
    "fastdvdnet",
    ("fastdvdnet_gray.pth", "model_gray.pth", "fastdvdnet.pth"),
    "liuyang12/PnP-SCI_python (packages/fastdvdnet/model_gray.pth) or m-tassano/fastdvdnet (model.pth, in colour)",
)
DNCNN = {level: Weights("dncnn", (f"dncnn_{level}.pth",), "cszn/KAIR") for level in (50, 25, 15)}

MFOE = Weights("mfoe", ("MFoE_groupsize_4.pth", "mfoe.pth"), "StanislasDucotterd/MFoE (trained_models)")
BIAS_FREE = Weights(
    "bias_free_unet",
    ("unet_bf_0-100.tensors.pt", "unet_bf_0-55.tensors.pt"),
    "LabForComputationalVision/bias_free_denoising (pretrained/unet, as plain tensors)",
)

Needs = tuple[str, Check]
"""what to get, and whether it is here"""
Source = Callable[[Tensor], Denoiser]
"""source(y): the denoiser, on the device and in the precision of the snapshot"""


def nearest(denoisers: dict[int, Denoiser]) -> Denoiser:
    """Of denoisers trained for one noise level (in 255ths) each, the one whose level is nearest to sigma."""

    def denoise(x: Tensor, sigma: float | Tensor, /) -> Tensor:
        wanted = 255 * float(torch.as_tensor(sigma).max())
        return denoisers[min(denoisers, key=lambda level: abs(level - wanted))](x, sigma)

    return denoise


def _gap(source: Source, levels: Sequence[float]) -> Solve:
    def solve(y: Tensor, phi: CodedOperator, n: int, watch: Watch) -> Solution:
        return gap(y, phi, across_pictures(source(y), phi), staged(levels, n), x0=first_video(y, phi), **watch)

    return solve


def _admm(source: Source, levels: Sequence[float]) -> Solve:
    def solve(y: Tensor, phi: CodedOperator, n: int, watch: Watch) -> Solution:
        # The authors' code has 0.01 with 0/1 masks and 8 frames, where the squared norm is 8.
        denoise, start = across_pictures(source(y), phi), first_video(y, phi)
        return admm(*phi.unit(y), denoise, staged(levels, n), rho=0.01 / 8, x0=start, **watch)

    return solve


def _descent(sigma: float) -> Solve:
    def solve(y: Tensor, phi: CodedOperator, n: int, watch: Watch) -> Solution:
        energy = cast(Energy, fitted(MFOE.network(), y))
        return descent(y, phi, energy, sigma, n, x0=TotalVariation()(y, phi), **watch)

    return plane_by_plane(solve)


def _ffdnet(y: Tensor) -> Denoiser:
    return fitted(FFDNET.network(), y)


def _fastdvdnet(y: Tensor) -> Denoiser:
    return fitted(FASTDVDNET.network(), y)


def _dncnn(y: Tensor) -> Denoiser:
    return nearest({level: fitted(weights.network(), y) for level, weights in DNCNN.items() if weights.is_here})


def disturbed(network: Denoiser) -> Denoiser:
    """A blind denoiser that obeys sigma: as much noise is added first, for it removes what it finds and no more.

    It takes the errors of an early iterate for texture, and those of a late one for noise: left alone it smooths at
    all times as it likes. Every sample gets the same noise, and every run draws it anew from the same seed.
    """
    generator = torch.Generator().manual_seed(0)

    def denoise(x: Tensor, sigma: float | Tensor, /) -> Tensor:
        return network(x + sigma * torch.randn(x.shape[-3:], generator=generator).to(x), sigma)

    return denoise


def _bias_free(y: Tensor) -> Denoiser:
    return disturbed(fitted(BIAS_FREE.network(), y))


def _has_any(name: str, *files: Weights) -> Check:
    def check(frames: int, height: int, width: int) -> None:
        for weights in [one for one in files if one.is_here] or files[:1]:
            weights.network(name)

    return check


_FALLING = (50, 25, 12, 6)

_YUAN = "Yuan, Liu, Suo & Dai, CVPR 2020"


def _pnp(name: str, summary: str, reference: str, solve: Solve, needs: Needs, **facts: Any) -> Method:
    return Method(name, "plug-and-play", summary, reference, solve, needs=needs[0], check=needs[1], **facts)


def _files(name: str, *files: Weights, called: str = "") -> Needs:
    return called or files[0].names[0], _has_any(name, *files)


def _package(name: str) -> Needs:
    return f"package {name}", lambda frames, height, width: bm.check(name, height, width)


PLUG_AND_PLAY = (
    _pnp(
        "pnp-ffdnet", "accelerated GAP with FFDNet frame by frame, sigma 50, 25, 12, 6 of 255, 10 iterations each",
        _YUAN, _gap(_ffdnet, _FALLING), _files("pnp-ffdnet", FFDNET), cpu_seconds=26,
    ),
    _pnp(
        "admm-ffdnet", "pnp-ffdnet with ADMM in place of GAP",
        _YUAN, _admm(_ffdnet, _FALLING), _files("admm-ffdnet", FFDNET), cpu_seconds=27,
    ),
    _pnp(
        "pnp-fastdvdnet",
        "accelerated GAP with FastDVDnet on five frames at a time, sigma 100, 50, 25, 12 of 255, 20 iterations each",
        "Yuan, Liu, Suo, Durand & Dai, TPAMI 2021",
        _gap(_fastdvdnet, (100, 50, 25, 12)), _files("pnp-fastdvdnet", FASTDVDNET), iterations=80,
    ),
    _pnp(
        "pnp-dncnn",
        "accelerated GAP with the DnCNN networks for sigma 50, 25 and, for half of the time, 15 of 255; of those whose "
        "files are there, the one nearest to sigma",
        "Zhang, Zuo, Chen, Meng & Zhang, IEEE Trans. Image Process. 2017, in the scheme of Yuan et al., CVPR 2020",
        _gap(_dncnn, (50, 25, 15, 15)), _files("pnp-dncnn", *DNCNN.values(), called="any of dncnn_{50,25,15}.pth"),
    ),
    _pnp(
        "pnp-biasfree", "pnp-ffdnet with a blind U-net without biases, which is told sigma by noise of that size",
        "Mohan, Kadkhodaie, Simoncelli & Fernandez-Granda, ICLR 2020, in the scheme of Yuan et al., CVPR 2020",
        _gap(_bias_free, _FALLING), _files("pnp-biasfree", BIAS_FREE),
    ),
    _pnp(
        "pgd-mfoe",
        "accelerated projected descent of an explicit energy (multivariate fields of experts) from total variation, "
        "which never raises it; frame by frame, so hardly above its start",
        "Ducotterd & Unser, arXiv:2508.06490, 2025", _descent(5 / 255), _files("pgd-mfoe", MFOE), tol=1e-3,
    ),
    _pnp(
        "pnp-bm3d", "accelerated GAP with BM3D frame by frame",
        "Dabov, Foi, Katkovnik & Egiazarian, IEEE Trans. Image Process. 2007",
        _gap(lambda y: bm.BM3D(), _FALLING), _package("bm3d"), cpu_seconds=5000,
    ),
    _pnp(
        "pnp-bm4d", "accelerated GAP with BM4D on the video as a volume",
        "Maggioni, Katkovnik, Egiazarian & Foi, IEEE Trans. Image Process. 2013",
        _gap(lambda y: bm.BM4D(), _FALLING), _package("bm4d"), cpu_seconds=5000,
    ),
)  # fmt: skip
