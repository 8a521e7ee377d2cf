"""Masks and scenes for every kind of camera, from what a plain one has."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from unsnap.errors import InputError, short
from unsnap.operators import kind_of
from unsnap.operators.bayer import mosaic
from unsnap.operators.dispersed import dual_disperser, parse_step, step_name
from unsnap.simulate.rendered import render

BANDS = 28
"""Of the built-in spectral scene: as many as the field's benchmarks have."""
COLOURED = ("bayer", "rgb")
_PEAKS, _WIDTH = (0.85, 0.5, 0.1), 0.2  # where red, green and blue lie between the first band and the last


def coded_masks(kind: str, draw: Callable[[int], Tensor], frames: int, shots: int = 1) -> tuple[Tensor, str]:
    """Masks for a kind of camera as `--kind` names it, from draw(T) -> (T, H, W), and the camera's full name.

    >>> masks, name = coded_masks("bayer:grbg", lambda count: torch.ones(count, 4, 4), frames=2)
    >>> masks.shape, name
    (torch.Size([6, 4, 4]), 'bayer')
    """
    base, _, setting = kind.partition(":")
    camera = kind_of(base)
    if base == "multishot" or shots > 1:
        if base not in ("snapshot", "multishot"):
            raise InputError(f"several shots of one video need --kind multishot, got {short(kind)}; leave out --shots")
        return torch.stack([draw(frames) for _ in range(shots)]), "multishot"
    if base == "snapshot":
        return draw(frames), base
    if base == "bayer":
        return mosaic(draw(frames), setting or "rggb"), base
    if base == "rgb":
        masks = draw(frames)
        return masks.expand(3, *masks.shape).contiguous(), base
    if base == "dispersed":
        mask = draw(1)[0]
        return mask.expand(frames, *mask.shape).contiguous(), f"dispersed:{step_name(parse_step(setting))}"
    if base == "dual":
        return dual_disperser(draw(1)[0], frames, parse_step(setting)), base
    if camera.RANK != 3 or camera.SPECTRAL:
        raise InputError(f"masks for a camera of the kind {short(kind)} cannot be made up here; give them in a file")
    return draw(frames), kind  # one mask for each frame, which a plug-in's camera makes its own of


def spectral_scene(height: int, width: int, *, seed: int = 0, bands: int = BANDS) -> Tensor:
    """The first frame of the built-in scene as a cube (L, H, W): each colour is a broad line of the spectrum."""
    colours = render(1, height, width, seed=seed, colour=True)[:, 0]
    along = torch.linspace(0, 1, bands)
    lines = torch.exp(-0.5 * ((along[:, None] - torch.tensor(_PEAKS)) / _WIDTH) ** 2)
    cube = torch.einsum("lc,chw->lhw", lines, colours)
    return cube / cube.max()
