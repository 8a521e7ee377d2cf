"""unsnap simulate: from a video to the scene a coded camera would have recorded."""

from __future__ import annotations

import math
from enum import Enum
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from torch import Tensor

from unsnap import masks as mask_sets
from unsnap.cli import common
from unsnap.cli.common import named, out, print_json
from unsnap.errors import InputError, short
from unsnap.io import ARRAY_OUTPUTS, budget, claim_output, read_arrays, read_cube, read_video, save_scene
from unsnap.io.roles import assign_masks
from unsnap.operators import camera as make
from unsnap.operators import kind_of
from unsnap.simulate import Noise, chain, gaussian, quantise, render, saturate, shot, simulate
from unsnap.simulate.coded import COLOURED, coded_masks, spectral_scene


class MaskKind(str, Enum):
    bernoulli = "bernoulli"
    shifted = "shifted"
    gray = "gray"


def command(
    output: Annotated[Path, typer.Option("--output", "-o", help="Scene to write: .mat, .npz or .h5.")],
    video: Annotated[
        Path | None, typer.Argument(help="Video, stack or folder of frames; none: the built-in scene.")
    ] = None,
    frames: Annotated[int, typer.Option("--frames", "-T", min=1, max=1024, help="Frames per snapshot.")] = 8,
    snapshots: Annotated[int | None, typer.Option(min=1, help="Use only the first N groups of frames.")] = None,
    shots: Annotated[int, typer.Option(min=1, help="Shots of every video, each with masks of its own.")] = 1,
    mask: Annotated[MaskKind, typer.Option(help="Kind of masks.")] = MaskKind.bernoulli,
    density: Annotated[float, typer.Option(min=0.01, max=1.0, help="Share of open mask pixels.")] = 0.5,
    blur: Annotated[float, typer.Option(min=0.0, help="Blur of shifted or gray masks by the optics, pixels.")] = 0.0,
    noise: Annotated[float, typer.Option(min=0.0, help="Gaussian noise, in units of one white frame.")] = 0.0,
    photons: Annotated[
        float | None, typer.Option(min=1.0, max=1e12, help="Shot noise: electrons of one white frame.")
    ] = None,
    read_noise: Annotated[float, typer.Option(min=0.0, help="Read noise in electrons (with --photons).")] = 0.0,
    saturation: Annotated[
        float | None, typer.Option(min=0.01, max=1e9, help="Level at which the sensor saturates.")
    ] = None,
    bits: Annotated[int | None, typer.Option(min=1, max=24, help="Bits of the converter.")] = None,
    dead: Annotated[float, typer.Option(min=0.0, max=0.99, help="Share of dead sensor pixels.")] = 0.0,
    kind: common.Kind = None,
    masks: Annotated[
        Path | None,
        typer.Option(help="Take the masks (for a spectrum the mask) from this file.", show_default=False),
    ] = None,
    size: Annotated[str, typer.Option(help="Height×width of the built-in scene, as 256x256.")] = "256x256",
    seed: common.Seed = 0,
    force: common.Force = False,
    json: common.Json = False,
    quiet: common.Quiet = False,
) -> None:
    """Simulate a coded camera: masks and snapshots of VIDEO, with its truth, as a scene file.

    Examples:

      unsnap simulate clip.mp4 -o scene.mat

      unsnap simulate -o scene.npz --kind bayer:rggb

      unsnap simulate -o scene.npz --mask shifted --blur 0.7 --frames 14 --photons 2000 --read-noise 5 --bits 12
    """
    claim_output(output, ARRAY_OUTPUTS, inputs=(video, masks), force=force)
    camera = kind or ("snapshot" if shots == 1 else "multishot")
    _check_room(frames * shots, *((256, 256) if video is not None else _sides(size)), (snapshots or 1) * frames)
    generator = torch.Generator().manual_seed(seed)
    clip = _clip(camera, video, frames, snapshots, size, seed)
    frames = len(clip[0]) if kind_of(camera).SPECTRAL else frames
    height, width = clip.shape[-2:]

    def draw(count: int) -> Tensor:
        whole = (count, height, width)
        return _masks(mask, whole, density, blur, generator) if masks is None else _given(masks, whole)

    codes, camera = coded_masks(camera, draw, frames, shots)
    phi = make(camera, codes)
    full = float(phi.A(torch.ones(phi.video)).max())
    scene = simulate(
        clip,
        codes,
        noise=_noise(noise, photons, read_noise, saturation, bits, full_scale=full),
        generator=generator,
        dead=dead,
        camera=camera,
    )
    save_scene(output, scene, overwrite=force)
    facts = {
        "output": str(output),
        "snapshots": scene.snapshots,
        "shots": shots,
        "kind": camera,
        "frames": scene.frames,
        "height": height,
        "width": width,
        "mask": mask.value,
        "seed": seed,
        **{key: scene.meta[key] for key in ("dropped_frames", "dead_pixels")},
    }
    if json:
        print_json(facts)
    elif not quiet:
        out.print(
            f"Wrote [bold]{named(output)}[/]: {scene.snapshots} snapshot(s) of {frames} frames, {height}×{width}, "
            f"{mask.value} masks, seed {seed}",
            highlight=False,
        )


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


def _given(path: Path, size: tuple[int, int, int]) -> Tensor:
    """Masks (T, H, W) from a file, one (H, W) counting as T = 1, divided by their largest value if it is above 1."""
    arrays = read_arrays(path)
    stored = np.squeeze(arrays[assign_masks(arrays, str(path))])
    found = [np.asarray(a, dtype=np.float32).reshape(size) for a in (stored, np.moveaxis(stored, -1, 0))
             if (a.shape if a.ndim == 3 else (1, *a.shape)) == size]  # fmt: skip
    if not found:
        raise InputError(f"{path}: masks of shape {stored.shape} do not fit to the video, which needs {size}")
    return torch.from_numpy(found[0] / max(float(np.abs(found[0]).max()), 1.0))


def _sides(size: str) -> tuple[int, int]:
    try:
        height, width = (int(part) for part in size.lower().replace("×", "x").split("x"))
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


def _masks(kind: MaskKind, size: tuple[int, int, int], p: float, blur: float, generator: torch.Generator) -> Tensor:
    if kind is MaskKind.gray:
        return mask_sets.gray(*size, blur=blur, generator=generator)
    if kind is MaskKind.shifted:
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
