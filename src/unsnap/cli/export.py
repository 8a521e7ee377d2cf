"""unsnap export: a model's network, or a whole step, for programs that are not unsnap."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from unsnap import zoo
from unsnap.cli import common
from unsnap.cli.common import out, print_json, remark
from unsnap.errors import printable
from unsnap.io import claim_output
from unsnap.models.export import TOLERANCE, export


def command(
    model: Annotated[str, typer.Argument(help="Shipped model, or model file (.safetensors).", show_default=False)],
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write (.onnx).", show_default=False)],
    part: Annotated[
        Literal["step", "network"],
        typer.Option(help="step: one iteration, or all stages of an unfolded model; network: the denoiser alone."),
    ] = "step",
    frames: Annotated[int, typer.Option("--frames", "-T", min=2, max=256, help="Frames to trace with.")] = 8,
    force: common.Force = False,
    json: common.Json = False,
    quiet: common.Quiet = False,
) -> None:
    """Write MODEL as ONNX, checked with onnxruntime against torch before it is kept. Needs the extra `export`.

    What is printed as free may have any length; the rest is fixed to what it was traced with, which is printed too.
    Where networks are told how noisy a snapshot is, `noise` is an input: three numbers a, b and c for each, its
    variance being the largest of a, b·y and c·y² (y its brightness around a pixel, in its own units); zeros stand for
    a clean one.

    Examples:

      unsnap export de-gap -o step.onnx

      unsnap export denoiser -o denoiser.onnx --part network
    """
    claim_output(output, (".onnx",), inputs=(model,), force=force)
    loaded = zoo.trainable(model)
    remark("Tracing; this takes a minute …", quiet)
    made = export(loaded, output, part=part, frames=frames, overwrite=force)
    if json:
        print_json({"model": model, "output": str(output), "part": part, **asdict(made)})
        return
    out.print(f"{printable(output)}: ({', '.join(made.inputs)}) → ({', '.join(made.outputs)})", markup=False)
    free = "; fixed: ".join(", ".join(axes) for axes in (made.free or ("nothing",), made.fixed) if axes)
    out.print(f"free: {free}; differs from torch by {made.difference:.0e} (at most {TOLERANCE:.0e})", markup=False)
