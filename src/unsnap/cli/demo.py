"""unsnap demo: from nothing to a reconstructed video in seconds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import torch
import typer

from unsnap.bench.report import write_markdown
from unsnap.cli import common
from unsnap.cli.common import Running, conclude, remark
from unsnap.cli.compare import NAMES as COMPARED
from unsnap.cli.compare import Comparison
from unsnap.io import atomic_folder, claim_output, save_scene, sha256
from unsnap.masks import bernoulli
from unsnap.methods import DEFAULT, get
from unsnap.scene import Scene
from unsnap.simulate import render, simulate

_FRAMES, _SNAPSHOTS, _SIZE = 8, 2, 256
_METHODS = ("gap-tv", DEFAULT)
NAMES = re.compile(rf"{COMPARED.pattern}|scene\.mat|results\.md")


def command(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to write to.")] = Path("demo"),
    seed: common.Seed = 0,
    device: common.Device = "cpu",
    force: common.Force = False,
    json: common.Json = False,
    quiet: common.Quiet = False,
) -> None:
    """Render a built-in high-speed scene, code it into snapshots, and reconstruct it by two methods.

    Needs no file. Writes scene.mat, side-by-side.mp4 and .gif, frames.png, convergence.png, psnr-time.png and the table
    as results.md, .csv and .json.

    Example:

      unsnap demo -o demo --seed 3
    """
    claim_output(output, NAMES, force=force)
    remark(f"Rendering {_SNAPSHOTS * _FRAMES} frames of a high-speed scene (seed {seed}) …", quiet)
    generator = torch.Generator().manual_seed(seed)
    video = render(_SNAPSHOTS * _FRAMES, _SIZE, _SIZE, seed=seed)
    scene = simulate(video, bernoulli(_FRAMES, _SIZE, _SIZE, generator=generator), generator=generator)
    scene = Scene(scene.measurement, scene.masks, scene.truth, {**scene.meta, "name": "built-in scene"})
    remark(f"{_SNAPSHOTS} snapshots hold {_SNAPSHOTS * _FRAMES} frames. Compiling kernels and reconstructing …", quiet)
    with atomic_folder(output, NAMES, overwrite=force) as folder:
        digest = sha256(save_scene(folder / "scene.mat", scene))
        compared = Comparison(scene, [get(name) for name in _METHODS], Running(device=device, seed=seed), digest)
        compared.run(quiet)
        compared.write(folder)
        write_markdown(folder / "results.md", compared.results)
    remark(f"Look at {output / 'side-by-side.gif'} and {output / 'frames.png'}.", quiet)
    remark(f"Next: unsnap reconstruct {output / 'scene.mat'}   or   unsnap inspect YOUR_FILE.mat", quiet)
    conclude(compared.results, json)
