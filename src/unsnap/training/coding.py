"""Random cameras for training: masks of every kind and a little noise, so that one model serves every camera."""

from __future__ import annotations

import torch
from torch import Tensor

from unsnap import masks as mask_sets
from unsnap.errors import InputError
from unsnap.io import load_scene
from unsnap.models import Batch
from unsnap.operators import Snapshot


def code(truth: Tensor, noise: float, generator: torch.Generator, camera: Tensor | None = None) -> Batch:
    """Put a random camera before each video (B, T, H, W); a quarter of the scenes is dimmed, half has noise.

    noise: its largest standard deviation; that of every second noisy sensor grows as the root of the light. camera:
    masks (T, H, W) of which each sample gets a window instead.
    """
    gain, kind, level, dim = torch.rand(4, len(truth), 1, 1, generator=generator)
    truth = truth * torch.where(dim < 0.25, 0.2 + 0.8 * gain, 1)[..., None]
    if camera is None:
        masks = [random_masks(*video.shape, generator=generator) for video in truth]
    else:
        masks = [window(camera, truth.shape[-2], truth.shape[-1], generator) for _ in truth]
    phi = Snapshot(torch.stack(masks))
    y = phi.A(truth)
    light = torch.where(kind < 0.25, y.clamp(min=0).sqrt(), 1)
    size = noise * level * (kind < 0.5) * light
    return Batch(truth, y + size * torch.randn(y.shape, generator=generator), phi)


def camera_masks(path: str, least: int) -> Tensor:
    """The masks of a capture, largest value 1, for a model that is to serve this camera alone."""
    scene = load_scene(path)
    if scene.camera != "snapshot" or scene.masks.ndim != 3:
        raise InputError(f"{path} must hold one set of masks (T, H, W) of a single-shot camera, to train for it")
    masks = scene.masks.float()
    if min(masks.shape[-2:]) < least or not bool(masks.max() > 0):
        raise InputError(f"{path}: its masks {tuple(masks.shape)} must be lit and no smaller than crop ({least})")
    return masks / masks.max()


def window(masks: Tensor, height: int, width: int, generator: torch.Generator) -> Tensor:
    """A window of the masks at a random place."""
    top, left = (
        int(torch.randint(whole - part + 1, (), generator=generator))
        for whole, part in zip(masks.shape[-2:], (height, width), strict=True)
    )
    return masks[:, top : top + height, left : left + width]


def random_masks(frames: int, height: int, width: int, *, generator: torch.Generator) -> Tensor:
    """Mostly Bernoulli(½); else another density, a shifted mask, or grey values."""
    kind = float(torch.rand((), generator=generator))
    p = 0.5 if kind < 0.6 else 0.2 + 0.6 * float(torch.rand((), generator=generator))
    if kind < 0.7:
        return mask_sets.bernoulli(frames, height, width, p=p, generator=generator)
    if kind < 0.85:
        down, right = (int(k) for k in torch.randint(-1, 2, (2,), generator=generator))
        step = (down, right) if down or right else (1, 0)
        return mask_sets.shifted(frames, height, width, p=p, step=step, generator=generator)
    blur = 0.0 if kind < 0.92 else 0.3 + 0.5 * float(torch.rand((), generator=generator))
    return mask_sets.gray(frames, height, width, blur=blur, generator=generator)
