"""unsnap reconstruct: a file in, a video out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from unsnap.cli import common
from unsnap.cli.common import Reading, Running, check_methods, named, out, print_json, read_checked, remark, run_shown
from unsnap.errors import InputError
from unsnap.io import claim_output, save_video, sha256
from unsnap.methods import DEFAULT, get
from unsnap.run import Result


def command(
    file: common.File,
    method: Annotated[
        str, typer.Option("--method", "-m", help="A name from `unsnap methods`, or a model file (.safetensors).")
    ] = DEFAULT,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Video to write: .mp4 .gif .tif .npz .npy .mat, or a folder for PNG frames. "
            "Default: FILE-METHOD.mp4 here; with --json nothing.",
            show_default=False,
        ),
    ] = None,
    reading: Reading = Reading(),
    running: Running = Running(),
    anyway: Annotated[bool, typer.Option("--anyway", help="Go on though the masks are certainly misplaced.")] = False,
    fps: Annotated[float, typer.Option(min=0.1, max=1000.0, help="Frames per second of the video.")] = 10.0,
    force: common.Force = False,
    json: common.Json = False,
    quiet: common.Quiet = False,
) -> None:
    """Reconstruct the video behind the snapshot(s) in FILE.

    All snapshots of a file are reconstructed as one batch and written as one video. If the method does not converge,
    the exit code is 3 and the video is called …-unconverged; if it diverges, none is written.

    Examples:

      unsnap reconstruct capture.mat

      unsnap reconstruct meas.mat --masks mask.mat -m gap-tv -o video.gif

      unsnap reconstruct drop8_cacti.mat --method gap-tv --json
    """
    recipe = get(method)
    if output is None and not json:
        output = Path(f"{file.stem}-{recipe.name}.mp4")
    if output is not None:
        for target in (output, unconverged(output)):
            claim_output(target, inputs=(file, reading.masks, reading.calibration, method), force=force)
    scene = read_checked(file, reading, quiet, anyway=anyway)
    check_methods([recipe], scene)
    solution, result = run_shown(scene, recipe, running, quiet, sha256(file))
    if output is not None and not result.diverged:
        target = output if result.converged else unconverged(output)
        save_video(target, solution.x.cpu(), fps=fps, overwrite=force)
        result = replace(result, output=str(target))
    if json:
        print_json(result.to_dict())
    else:
        out.print(summary(result), highlight=False)
    check_convergence(result, quiet)


def unconverged(output: Path) -> Path:
    """Where a video goes that its method did not stand by: nobody should take it for the result."""
    if not output.name:
        raise InputError(f"-o {str(output)!r} names no file; give the video a name, such as video.mp4")
    return output.with_name(f"{output.stem}-unconverged{output.suffix}")


def summary(result: Result) -> str:
    """Two lines for people."""
    quality = (
        "no truth to compare with" if result.psnr is None else f"PSNR {result.psnr:.2f} dB, SSIM {result.ssim:.4f}"
    )
    size = f"{result.snapshots} × {result.frames} frames of {result.height}×{result.width}"
    return (
        f"[bold]{named(result.method)}[/]: {size} in {result.seconds:.2f} s ({result.cpu_seconds:.2f} CPU-s), "
        f"{result.iterations} iterations, last change {result.residual:.1e}; {quality}\n"
        f"{'Wrote [bold]' + named(result.output) + '[/]' if result.output else 'Nothing was written'}"
    )


def check_convergence(result: Result, quiet: bool) -> None:
    """Leave with exit code 3 if the result is not to be trusted."""
    if result.diverged:
        remark(f"{result.method} diverged after {result.iterations} iterations; no video was written.", quiet)
    elif not result.converged:
        remark(
            f"{result.method} did not converge: the last change {result.residual:.1e} is above {result.tolerance:.1e}; "
            f"{'the video is called ' + result.output if result.output else 'nothing was written'}. Give it more with "
            "--iterations, or accept more with --tol.",
            quiet,
        )
    if result.diverged or not result.converged:
        raise typer.Exit(common.NOT_CONVERGED)
