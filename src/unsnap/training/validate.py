"""What counts: the reconstruction at several depths and at the fixed point, on clips that training never sees."""

from __future__ import annotations

import torch
from torch import Tensor

from unsnap.algorithms import gap
from unsnap.equilibrium import DEQ
from unsnap.masks import bernoulli
from unsnap.metrics import psnr
from unsnap.schedules import geometric
from unsnap.training.clips import Clips, bounce
from unsnap.training.coding import Coded

DEPTHS = (5, 20, 80)
FRAMES = 8


def coded_views(clips: Clips, size: int, seed: int = 0) -> Coded:
    """The middle of each clip's first frames behind Bernoulli masks, all of one size; small clips are enlarged."""
    side = min(size, max(min(video.shape[1:]) for video in clips.videos))
    truth = torch.stack([_middle(video, side) for video in clips.videos])
    generator = torch.Generator().manual_seed(seed)
    masks = torch.stack([bernoulli(FRAMES, side, side, generator=generator) for _ in truth])
    return Coded(truth, masks, (masks * truth).sum(1))


@torch.no_grad()
def validate(model: DEQ, views: Coded) -> dict[str, float]:
    """Mean PSNR after 5, 20 and 80 plain iterations and at the fixed point, with the residual there."""
    views, state = views.begun(model)
    f = model.bind(views.y, views.phi, views.guessed)
    scores: dict[str, float] = {}
    for k in range(1, max(DEPTHS) + 1):
        state = f(state)
        if k in DEPTHS:
            scores[f"psnr_{k}"] = float(psnr(state[0], views.truth).mean())
    solution = model(views.y, views.phi, guessed=views.guessed, max_iter=40, tol=1e-4)
    scores["psnr_fixed"] = float(psnr(solution.x, views.truth).mean())
    scores["residual"] = float(solution.final.max())
    return scores


@torch.no_grad()
def validate_denoiser(model: DEQ, views: Coded, seed: int = 0) -> dict[str, float]:
    """PSNR of denoising at three levels, and of plug-and-play with it, which is what it is for."""
    generator = torch.Generator().manual_seed(seed)
    scores = {}
    for level in (10, 25, 50):
        noise = torch.randn(views.truth.shape, generator=generator).to(views.truth)
        noisy = views.truth + level / 255 * noise
        scores[f"denoised_{level}"] = float(psnr(model.network(noisy, level / 255), views.truth).mean())
    solution = gap(views.y, views.phi, model.network, geometric(60 / 255, 6 / 255, 40), early=False)
    scores["psnr_fixed"] = float(psnr(solution.x, views.truth).mean())
    return scores


def _middle(video: Tensor, side: int) -> Tensor:
    """(8, side, side): shorter clips go to and fro."""
    height, width = video.shape[1:]
    cut = min(side, height, width)
    top, left = (height - cut) // 2, (width - cut) // 2
    frames = video[[bounce(t, len(video)) for t in range(FRAMES)], top : top + cut, left : left + cut] / 255
    if cut == side:
        return frames
    return torch.nn.functional.interpolate(frames[None], (side, side), mode="bilinear", align_corners=False)[0]
