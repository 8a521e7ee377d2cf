"""All that `unsnap simulate` is told of a camera, as one value, and the scene that it records."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from unsnap import masks as mask_sets
from unsnap.errors import InputError, short
from unsnap.io import budget, read_arrays, read_cube, read_video
from unsnap.io.axes import leading_first
from unsnap.io.formats import find
from unsnap.io.roles import assign_masks
from unsnap.operators import camera as make
from unsnap.operators import kind_of
from unsnap.scene import Scene
from unsnap.simulate.camera import Noise, chain, gaussian, quantise, saturate, shot, simulate
from unsnap.simulate.coded import COLOURED, coded_masks, spectral_scene
from unsnap.simulate.rendered import render


@dataclass(frozen=True)
class Recording:
    """A camera and how long it records; every field is the option of its name."""

    frames: int = 8
    snapshots: int | None = None
    shots: int = 1
    mask: str = "bernoulli"
    density: float = 0.5
    blur: float = 0.0
    noise: float = 0.0
    photons: float | None = None
    read_noise: float = 0.0
    saturation: float | None = None
    bits: int | None = None
    dead: float = 0.0
    kind: str | None = None
    masks: Path | None = None
    size: str = "256x256"
    seed: int = 0

    def of(self, video: Path | None = None) -> Scene:
        """The scene of a video, stack or folder of frames, or of the built-in scene."""
        camera = self.kind or ("snapshot" if self.shots == 1 else "multishot")
        sides = (256, 256) if video is not None else _sides(self.size)
        _check_room(self.frames * self.shots, *sides, (self.snapshots or 1) * self.frames)
        generator = torch.Generator().manual_seed(self.seed)
        clip = _clip(camera, video, self.frames, self.snapshots, self.size, self.seed)
        frames = len(clip[0]) if kind_of(camera).SPECTRAL else self.frames
        height, width = clip.shape[-2:]

        given: list[Tensor] = []

        def draw(count: int) -> Tensor:
            whole = (count, height, width)
            if self.masks is None:
                return _masks(self.mask, whole, self.density, self.blur, generator)
            if not given:
                given.extend(_given(self.masks, (self.shots, *whole)))
            return given.pop(0)

        codes, camera = coded_masks(camera, draw, frames, self.shots)
        phi = make(camera, codes)
        full = float(phi.A(torch.ones(phi.video)).max())
        noise = _noise(self.noise, self.photons, self.read_noise, self.saturation, self.bits, full_scale=full)
        return simulate(clip, codes, noise=noise, generator=generator, dead=self.dead, camera=camera)


def _clip(camera: str, video: Path | None, frames: int, snapshots: int | None, size: str, seed: int) -> Tensor:
    """(F, H, W), or (N, *video) of a colour or spectral camera."""
    colour = camera.partition(":")[0] in COLOURED
    if kind_of(camera).SPECTRAL:
        return (spectral_scene(*_sides(size), seed=seed) if video is None else read_cube(video))[None]
    if video is None:
        clip = render((snapshots or 1) * frames, *_sides(size), seed=seed, colour=colour)
    else:
        clip = read_video(video, max_frames=None if snapshots is None else snapshots * frames, colour=colour)
    count = clip.shape[-3]
    if count < frames:
        raise InputError(f"{video} has {count} frames, fewer than --frames {frames}; lower --frames")
    if not colour:
        return clip
    groups = torch.unflatten(clip[:, : count // frames * frames], 1, (-1, frames))
    return groups.transpose(0, 1).flatten(1, 2).contiguous()


def _given(path: Path, size: tuple[int, int, int, int]) -> Tensor:
    """Masks (K, T, H, W) of K shots from a file, divided by their largest value if it is above 1.

    Axes of length 1 may be missing. The container's order of axes is tried first, then the other one.
    """
    arrays = read_arrays(path)
    stored = np.squeeze(arrays[assign_masks(arrays, str(path))])
    last = find(path.suffix).time_last
    found = [a for a in (leading_first(stored, last), leading_first(stored, not last)) if a.shape == _long(size)]
    if not found:
        raise InputError(
            f"{path}: masks of shape {stored.shape} do not fit to the video, which needs {_long(size)}; give a mask "
            "for every frame, and every shot, with --masks, or another --frames"
        )
    masks = np.asarray(found[0], dtype=np.float32).reshape(size)
    return torch.from_numpy(masks / max(float(np.abs(masks).max()), 1.0))


def _long(size: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(side for side in size if side > 1)


def _sides(size: str) -> tuple[int, int]:
    try:
        sides = [int(part) for part in size.lower().replace("×", "x").split("x")]
        height, width = sides if len(sides) > 1 else 2 * sides  # one side: a square
    except ValueError as error:
        raise InputError(f"--size must look like 256x256, got {short(size)}") from error
    if min(height, width) < 16:
        raise InputError(f"--size must be at least 16x16, got {short(size)}")
    return height, width


def _check_room(masks: int, height: int, width: int, frames: int) -> None:
    """Refuse what cannot fit before anything is drawn: masks and frames as float32, and a few copies on the way."""
    needed, room = 4 * height * width * (3 * masks + 4 * frames), budget.left()
    if needed > room:
        raise InputError(
            f"{frames} frames of {height}×{width} and {masks} masks need about {needed / 2**30:.3g} GiB of memory, and "
            f"there are {room / 2**30:.3g} GiB; choose a smaller --size, or fewer --snapshots, --shots or --frames"
        )


def _masks(kind: str, size: tuple[int, int, int], p: float, blur: float, generator: torch.Generator) -> Tensor:
    if kind == "gray":
        return mask_sets.gray(*size, blur=blur, generator=generator)
    if kind == "shifted":
        return mask_sets.shifted(*size, p=p, blur=blur, generator=generator)
    if blur:
        raise InputError("--blur needs masks with grey values; add --mask shifted or --mask gray")
    return mask_sets.bernoulli(*size, p=p, generator=generator)


def _noise(
    sigma: float, photons: float | None, read: float, saturation: float | None, bits: int | None, full_scale: float
) -> Noise | None:
    if read and photons is None:
        raise InputError("--read-noise counts electrons, so it needs --photons as well")
    steps: list[Noise] = []
    if photons is not None:
        steps.append(shot(photons, read))
    if sigma:
        steps.append(gaussian(sigma))
    if saturation is not None:
        steps.append(saturate(saturation))
    if bits is not None:
        steps.append(quantise(bits, min(full_scale, saturation or math.inf)))
    return chain(*steps) if steps else None
