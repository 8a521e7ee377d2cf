"""unsnap calibrate: where the masks of a capture really were."""

from __future__ import annotations

import shlex
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from numpy.typing import NDArray

from unsnap.bench.pictures import side_by_side
from unsnap.calibration import Camera, calibrate
from unsnap.calibration.warp import displacement
from unsnap.cli import common
from unsnap.cli.common import Reading, err, named, out, print_json, read_checked, remark
from unsnap.doctor.blind import blind
from unsnap.errors import InputError
from unsnap.io import ARRAY_OUTPUTS, atomic_file, claim_output, read_arrays
from unsnap.io.checks import real_array
from unsnap.progress import bar
from unsnap.run import reconstruct
from unsnap.scene import Scene


def command(
    file: common.File,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Camera file to write: .npz .mat .h5. Default: FILE-camera.npz here if something is to be put right; "
            "with --json nothing.",
            show_default=False,
        ),
    ] = None,
    coded_white: Annotated[
        Path | None,
        typer.Option(help="A picture of white, still light through all masks: tells the gain.", show_default=False),
    ] = None,
    picture: Annotated[
        Path | None,
        typer.Option(help="PNG to write: a frame before and after.", show_default=False),
    ] = None,
    reading: Reading = Reading(),
    force: common.Force = False,
    json: common.Json = False,
    quiet: common.Quiet = False,
) -> None:
    """Find where the masks of FILE really were: shift, rotation, scale, distortion, blur, offset, exposures.

    By minimising the misfit of pixels that a reconstruction has not seen; takes a minute, and no truth. What it writes
    is for `unsnap reconstruct FILE --camera camera.npz`. Moved by `shift` (down, right), the masks as given are the
    masks that coded the capture.

    Examples:

      unsnap calibrate capture.mat -o camera.npz

      unsnap calibrate capture.mat --masks mask.mat --white white.tif --dark dark.tif --json
    """
    target = output or Path(f"{file.stem}-camera.npz")
    inputs = (file, *reading.inputs, coded_white)
    if output is not None or not json:
        claim_output(target, ARRAY_OUTPUTS, inputs=inputs, force=force)
    if picture is not None:
        claim_output(picture, (".png",), inputs=(*inputs, output), force=force)
    scene = read_checked(file, reading, quiet=True)
    for finding in blind(scene):
        if finding.level == "fatal" and "calibrate" not in finding.remedy:
            raise InputError(f"{file}: {finding.text}. Remedy: {finding.remedy}")
    with nullcontext() if quiet else bar("calibrate", err) as tell:
        told = None if tell is None else lambda stage, share: tell(round(100 * share), 100, stage)
        camera = calibrate(scene, white=_read(coded_white, scene, reading), told=told)
    written = output is not None or (camera.changed and not json)
    if written:
        camera.save(target, overwrite=force)
    if picture is not None:
        _draw(picture, scene, camera, overwrite=force)
    if json:
        print_json(camera.to_dict())
        return
    out.print(summary(camera), highlight=False)
    out.print(f"Wrote [bold]{named(target)}[/]" if written else "Nothing was written", highlight=False)
    if written and camera.told:
        words = ["unsnap", "reconstruct", str(file), *replace(reading, calibration=target).words()]
        remark(f"Use it: {shlex.join(words)}", quiet)


def summary(camera: Camera) -> str:
    """What was found, for people."""
    if not camera.told:
        return "[bold]Cannot tell[/]: the captures do not show where their masks were"
    error = camera.uncertainty
    if not camera.changed:
        down, right = error["shift"]
        return (
            f"[bold]Aligned already[/]: the masks are where they should be, to {max(down, right):.3f} pixels; "
            f"{100 * camera.objective_after:.2f} % of unseen pixels is not explained"
        )
    lines = [
        f"shift     {camera.shift[0]:+.3f} ± {error['shift'][0]:.3f} rows, "
        f"{camera.shift[1]:+.3f} ± {error['shift'][1]:.3f} columns",
        f"rotation  {camera.rotation:+.4f} ± {error['rotation']:.4f}° counter-clockwise",
        f"scale     {camera.scale:.5f} ± {error['scale']:.5f}",
        *distorted(camera),
        f"blur      {camera.blur:.2f} ± {error['blur']:.2f} pixels",
        f"offset    {camera.offset:+.4f} ± {error['offset']:.4f} of white",
        f"gain      {camera.gain:.4f}" + ("" if error["gain"] is not None else " (not told without --coded-white)"),
    ]
    if len(set(camera.exposure)) > 1:
        lines.append("exposure  " + " ".join(f"{value:.2f}" for value in camera.exposure))
    lines.append(
        f"Not explained of unseen pixels: {100 * camera.objective_before:.2f} % → {100 * camera.objective_after:.2f} %"
    )
    return "\n".join(lines)


def distorted(camera: Camera) -> list[str]:
    """How far a distortion moves masks, if there is one."""
    if not any(camera.distortion) or camera.size is None:
        return []
    y, x = np.meshgrid(*(np.linspace(-0.5, 0.5, 9) * side for side in camera.size), indexing="ij")
    down, right = displacement(camera.distortion, y, x, max(camera.size) / 2)
    return [f"distorted by up to {float(np.hypot(down, right).max()):.2f} pixels beside these"]


def _read(path: Path | None, scene: Scene, reading: Reading) -> NDArray[np.float32] | None:
    """A picture, or the mean of several, developed and cut as the snapshots are, in their units."""
    if path is None:
        return None
    arrays = read_arrays(path)
    if len(arrays) != 1:
        raise InputError(f"{path} must hold one picture, found {', '.join(arrays)}; save it alone")
    ((name, array),) = arrays.items()
    values = real_array(array, name, str(path), []).astype(np.float64)
    size, told = tuple(scene.masks.shape[-2:]), reading.capture()
    if values.ndim == 3:
        values = values.mean(-1 if values.shape[:2] == size != values.shape[1:] else 0)
    raw = replace(told["raw"], bad_pixels=None, saturated="keep")
    values = raw.develop(values[None], 1.0, str(path), [])[0][0]
    if told["roi"] is not None and values.shape != size:
        values = values[told["roi"]]
    if values.shape != size:
        raise InputError(f"{path} must be of {size[0]}×{size[1]} pixels as the masks, found {values.shape}")
    found: NDArray[np.float32] = (values / float(scene.meta.get("measurement_factor") or 1.0)).astype(np.float32)
    return found


def _draw(path: Path, scene: Scene, camera: Camera, *, overwrite: bool) -> None:
    """The middle frame of the first snapshot by gap-tv3d, through the masks as given and as found."""
    from PIL import Image

    panes: dict[str, Any] = {}
    for name, one in (("before", scene), ("after", camera.apply(scene))):
        first = one.pick([0])
        frame = reconstruct(first.measurement, first.operator, "gap-tv3d").x[0, scene.frames // 2]
        panes[name] = (
            frame / max(float(torch.quantile(frame.flatten()[:: 1 + frame.numel() // 10**6], 0.995)), 1e-12)
        )[None]
    pixels = (side_by_side(panes)[0].clamp(0, 1) * 255).round().to(torch.uint8).numpy()
    with atomic_file(path, overwrite=overwrite) as temporary:
        Image.fromarray(pixels).save(temporary)
