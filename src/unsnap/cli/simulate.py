"""unsnap simulate: from a video to the scene a coded camera would have recorded."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from unsnap.cli import common
from unsnap.cli.common import named, out, print_json, remark
from unsnap.errors import InputError
from unsnap.io import ARRAY_OUTPUTS, claim_output, save_scene
from unsnap.operators import kind_of
from unsnap.simulate.recording import Recording


class MaskKind(str, Enum):
    bernoulli = "bernoulli"
    shifted = "shifted"
    gray = "gray"


def counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def command(
    output: Annotated[Path, typer.Option("--output", "-o", help="Scene to write: .mat, .npz or .h5.")],
    video: Annotated[
        Path | None, typer.Argument(help="Video, stack or folder of frames; none: the built-in scene.")
    ] = None,
    frames: Annotated[
        int | None,
        typer.Option("--frames", "-T", min=1, max=1024, help="Frames per snapshot. Default: 8.", show_default=False),
    ] = None,
    snapshots: Annotated[int | None, typer.Option(min=1, help="Use only the first N groups of frames.")] = None,
    shots: Annotated[int, typer.Option(min=1, help="Shots of every video, each with masks of its own.")] = 1,
    mask: Annotated[MaskKind, typer.Option(help="Kind of masks.")] = MaskKind.bernoulli,
    density: Annotated[float, typer.Option(min=0.01, max=1.0, help="Share of open mask pixels.")] = Recording.density,
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
    size: Annotated[str, typer.Option(help="Height×width of the built-in scene, as 256x256.")] = Recording.size,
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
    if masks is not None and (mask is not MaskKind.bernoulli or density != Recording.density or blur):
        raise InputError(
            "--masks gives the masks, so there is nothing for --mask, --density and --blur to say; leave them out"
        )
    if mask is MaskKind.gray and density != Recording.density:
        raise InputError("--density is the share of open pixels, which grey masks do not have; leave it out")
    if video is not None and size != Recording.size:
        raise InputError(f"--size is that of the built-in scene, and {video} has its own; leave it out")
    if kind is not None and kind_of(kind).SPECTRAL and (frames is not None or (snapshots or 1) > 1):
        raise InputError(
            f"--frames and --snapshots count the frames of a film, and a {kind} sees a spectrum with all the bands "
            "that it has, once; leave them out"
        )
    claim_output(output, ARRAY_OUTPUTS, inputs=(video, masks), force=force)
    recording = Recording(
        frames=Recording.frames if frames is None else frames,
        snapshots=snapshots,
        shots=shots,
        mask=mask.value,
        density=density,
        blur=blur,
        noise=noise,
        photons=photons,
        read_noise=read_noise,
        saturation=saturation,
        bits=bits,
        dead=dead,
        kind=kind,
        masks=masks,
        size=size,
        seed=seed,
    )
    scene = recording.of(video)
    height, width = scene.operator.video[-2:]
    save_scene(output, scene, overwrite=force)
    if scene.snapshots < (snapshots or 1):
        remark(f"{video} has frames for {scene.snapshots} of the {snapshots} snapshots only.", quiet)
    facts = {
        "output": str(output),
        "snapshots": scene.snapshots,
        "shots": shots,
        "kind": scene.camera,
        "frames": scene.frames,
        "height": height,
        "width": width,
        "mask": mask.value if masks is None else "given",
        "seed": seed,
        **{key: scene.meta[key] for key in ("dropped_frames", "dead_pixels")},
    }
    if json:
        print_json(facts)
    elif not quiet:
        what = "band" if kind_of(scene.camera).SPECTRAL else "frame"
        taken = f" in {shots} shots each" if shots > 1 else ""
        out.print(
            f"Wrote [bold]{named(output)}[/]: {counted(scene.snapshots, 'snapshot')} of "
            f"{counted(scene.frames, what)}{taken}, "
            f"{height}×{width}, {mask.value if masks is None else 'given'} masks, seed {seed}",
            highlight=False,
        )
