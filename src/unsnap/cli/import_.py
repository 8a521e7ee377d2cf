"""unsnap import: published weights into a model file of our own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unsnap.algorithms import GAP, ITERATIONS
from unsnap.cli import common
from unsnap.cli.common import named, out, print_json
from unsnap.fixed_point import anderson
from unsnap.io import claim_output, sha256
from unsnap.models import Equilibrium, LeastSquares, Model, TotalVariation, Unfolded, save
from unsnap.models.file import describe
from unsnap.networks import build
from unsnap.networks.foreign import read_checkpoint

# Chosen on validation clips with benchmarks/deq_choose.py: the start that costs least and the memory that pays.
_SOLVER = anderson(memory=11)
_TOLD_SIGMA = ("ffdnet", "fastdvdnet", "mfoe")


def command(
    source: Annotated[Path, typer.Argument(help="Checkpoint as its authors published it (.ckpt, .pth).")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Model file to write, ending in .safetensors.")],
    sigma: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Noise level the network is told, if it takes one; white is 1.")
    ] = 0.05,
    tol: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Relative residual at which the equilibrium counts.")
    ] = 1e-4,
    max_iter: Annotated[int, typer.Option(min=1, max=10**6, help="Evaluations at most.")] = 400,
    force: common.Force = False,
    json: common.Json = False,
    quiet: common.Quiet = False,
) -> None:
    """Read published weights into a model file.

    A denoiser (DE-GAP's CNN and RSN-CNN, FFDNet, DnCNN, FastDVDnet, bias-free ones, MFoE) becomes a DE-GAP model, a
    reconstruction (U-net, GAP-net, BIRNAT, STFormer, EfficientSCI) what its authors made it.

    The file is read without running any code in it; architecture and solver settings travel in the model file. The
    plug-and-play recipes (pnp-ffdnet, ...) take the authors' files as they are, or such a model file of the same name.

    Examples:

      unsnap import deqsci_cnn.ckpt -o deqsci-cnn.safetensors

      unsnap reconstruct drop8_cacti.mat --method deqsci-cnn.safetensors
    """
    claim_output(output, (".safetensors",), inputs=(source,), force=force)
    checkpoint = read_checkpoint(source)
    networks = [build(checkpoint.name, checkpoint.settings) for _ in checkpoint.state_dicts]
    for network, weights in zip(networks, checkpoint.state_dicts, strict=True):
        network.load_state_dict(weights)
    about = {"source": source.name, "sha256": sha256(source), **checkpoint.facts}
    model: Model
    if checkpoint.iteration is None:
        told = sigma if checkpoint.name in _TOLD_SIGMA else 0.0
        start = TotalVariation()
        model = Equilibrium(
            GAP(), networks[0], told, start=start, solver=_SOLVER, tol=tol, max_iter=max_iter, about=about
        )
    else:
        iteration = ITERATIONS.find(checkpoint.iteration)()
        model = Unfolded(iteration, networks, [0.0] * len(networks), start=LeastSquares(), about=about)
    save(output, model, overwrite=force)
    if json:
        print_json({"output": str(output), **describe(model)})
    elif not quiet:
        out.print(
            f"Wrote [bold]{named(output)}[/]: {checkpoint.facts['layout']}, from {named(source.name)}", highlight=False
        )
