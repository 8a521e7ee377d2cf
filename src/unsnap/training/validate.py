"""What counts: the reconstruction of clips that training never sees, at several depths and at the end."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from unsnap.algorithms import gap
from unsnap.algorithms.schedules import geometric
from unsnap.errors import InputError
from unsnap.masks import bernoulli
from unsnap.metrics import psnr
from unsnap.models import Batch, Equilibrium, Model
from unsnap.operators import Snapshot
from unsnap.training.clips import Clips, bounce
from unsnap.training.coding import window

DEPTHS = (5, 20, 80)
FRAMES = 8


def coded_views(clips: Clips, size: int, seed: int = 0, camera: Tensor | None = None) -> Batch:
    """The middle of each clip's first frames behind Bernoulli masks, all of one size; small clips are enlarged.

    camera: masks of which each clip gets a window instead.
    """
    side = min(size, max(min(video.shape[1:]) for video in clips.videos), *(() if camera is None else camera.shape[1:]))
    frames, generator = FRAMES if camera is None else len(camera), torch.Generator().manual_seed(seed)
    truth = torch.stack([_middle(video, side, frames) for video in clips.videos])
    if camera is None:
        masks = [bernoulli(frames, side, side, generator=generator) for _ in truth]
    else:
        masks = [window(camera, side, side, generator) for _ in truth]
    phi = Snapshot(torch.stack(masks))
    return Batch(truth, phi.A(truth), phi)


@torch.no_grad()
def gives_videos(model: Model, views: Batch) -> bool:
    """Is anything finite in what one application makes of the views? Weights from a file may overflow at once."""
    views = views.select(slice(1))
    video = views.phi.A_dagger(views.y)
    if isinstance(model, Equilibrium):
        return bool(model.bind(views.y, views.phi, video)(model.iteration.start(video))[0].isfinite().all())
    return bool(model(views.y, views.phi, start=video).x.isfinite().all())


@torch.no_grad()
def validate(model: Model, views: Batch) -> dict[str, float]:
    """Mean PSNR: of an equilibrium after 5, 20 and 80 plain iterations and at rest, with the residual there.

    `psnr_fixed` is what the model gives and what checkpoints are chosen by, for unfolded models too; `psnr_other` is
    the same iteration started at the least-squares video, and `apart` the distance between both ends, relative to the
    first, of the view where it is largest: of a true equilibrium about the residual.
    """
    views = views.started(model)
    scores: dict[str, float] = {"psnr_start": _psnr(views.start, views)}
    if not isinstance(model, Equilibrium):
        return {**scores, "psnr_fixed": _psnr(model(views.y, views.phi, start=views.start).x, views)}
    f, state = model.bind(views.y, views.phi, views.start), views.state or ()
    for k in range(1, max(DEPTHS) + 1):
        state = f(state)
        if k in DEPTHS:
            scores[f"psnr_{k}"] = _psnr(state[0], views)
    try:
        solution, other = (
            model(views.y, views.phi, start=views.start, state=state, max_iter=40, tol=1e-4)
            for state in (views.start, views.phi.A_dagger(views.y))
        )
    except ValueError as error:  # the map is not finite anywhere: these weights are lost
        raise InputError(f"the weights give no video to validate ({error}); go on from earlier ones") from error
    scores["psnr_fixed"] = _psnr(solution.x, views)
    scores["residual"] = float(solution.final.max())
    scores["psnr_other"] = _psnr(other.x, views)
    scores["apart"] = float(((other.x - solution.x).flatten(1).norm(dim=1) / solution.x.flatten(1).norm(dim=1)).max())
    return scores


@torch.no_grad()
def validate_denoiser(network: nn.Module, views: Batch, seed: int = 0) -> dict[str, float]:
    """PSNR of denoising at three levels, and of plug-and-play with it, which is what it is for."""
    generator = torch.Generator().manual_seed(seed)
    scores = {}
    for level in (10, 25, 50):
        noise = torch.randn(views.truth.shape, generator=generator).to(views.truth)
        scores[f"denoised_{level}"] = _psnr(network(views.truth + level / 255 * noise, level / 255), views)
    solution = gap(views.y, views.phi, network, geometric(60 / 255, 6 / 255, 40), early=False)
    scores["psnr_fixed"] = _psnr(solution.x, views)
    return scores


def _psnr(x: Tensor | None, views: Batch) -> float:
    return float("nan") if x is None else float(psnr(x, views.truth).mean())


def _middle(video: Tensor, side: int, count: int) -> Tensor:
    """(count, side, side): shorter clips go to and fro."""
    height, width = video.shape[1:]
    cut = min(side, height, width)
    top, left = (height - cut) // 2, (width - cut) // 2
    frames = video[[bounce(t, len(video)) for t in range(count)], top : top + cut, left : left + cut] / 255
    if cut == side:
        return frames
    return torch.nn.functional.interpolate(frames[None], (side, side), mode="bilinear", align_corners=False)[0]
