"""unsnap simulate: from a video to the scene a coded camera would have recorded."""

from __future__ import annotations

import math
from enum import Enum
from pathlib import Path
from typing import Annotated

import torch
import typer
from torch import Tensor

from unsnap import masks as mask_sets
from unsnap.cli import common
from unsnap.cli.common import named, out, print_json
from unsnap.errors import InputError, short
from unsnap.io import ARRAY_OUTPUTS, budget, claim_output, read_video, save_scene
from unsnap.simulate import Noise, chain, gaussian, quantise, render, saturate, shot, simulate


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
    size: Annotated[str, typer.Option(help="Height×width of the built-in scene, as 256x256.")] = "256x256",
    seed: common.Seed = 0,
    force: common.Force = False,
    json: common.Json = False,
    quiet: common.Quiet = False,
) -> None:
    """Simulate a coded camera: masks and snapshots of VIDEO, with its truth, as a scene file.

    Examples:

      unsnap simulate clip.mp4 -o scene.mat

      unsnap simulate -o scene.npz --mask shifted --blur 0.7 --frames 14 --photons 2000 --read-noise 5 --bits 12
    """
    claim_output(output, ARRAY_OUTPUTS, inputs=(video,), force=force)
    _check_room(frames * shots, *((256, 256) if video is not None else _sides(size)), (snapshots or 1) * frames)
    generator = torch.Generator().manual_seed(seed)
    clip = _clip(video, frames, snapshots, size, seed)
    height, width = clip.shape[-2:]
    sets = [_masks(mask, (frames, height, width), density, blur, generator) for _ in range(shots)]
    codes = sets[0] if shots == 1 else torch.stack(sets)
    scene = simulate(
        clip,
        codes,
        noise=_noise(noise, photons, read_noise, saturation, bits, full_scale=float(codes.sum(-3).max())),
        generator=generator,
        dead=dead,
        camera="snapshot" if shots == 1 else "multishot",
    )
    save_scene(output, scene, overwrite=force)
    facts = {
        "output": str(output),
        "snapshots": scene.snapshots,
        "shots": shots,
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


def _clip(video: Path | None, frames: int, snapshots: int | None, size: str, seed: int) -> Tensor:
    if video is not None:
        clip = read_video(video, max_frames=None if snapshots is None else snapshots * frames)
        if len(clip) < frames:
            raise InputError(f"{video} has {len(clip)} frames, fewer than --frames {frames}; lower --frames")
        return clip
    return render((snapshots or 1) * frames, *_sides(size), seed=seed)


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
