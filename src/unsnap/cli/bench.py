"""unsnap bench: scenes × methods, one table."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from unsnap.bench.pictures import psnr_time_plot
from unsnap.bench.report import environment, write_csv, write_json
from unsnap.cli import common
from unsnap.cli.capture_options import Snapshots
from unsnap.cli.common import Reading, Running, read_checked, remark
from unsnap.io import atomic_folder, claim_output, sha256
from unsnap.io.files import scene_files
from unsnap.methods import DEFAULT
from unsnap.run import Result
from unsnap.scene import Scene

NAMES = re.compile(r"results\.(csv|json)|psnr-time\.png")
"""All that is written to the folder."""


def command(
    scenes: Annotated[list[Path], typer.Argument(help="Scene files, or folders of them.", show_default=False)],
    methods: Annotated[str, typer.Option(help="Names, separated by commas, or all.")] = f"gap-tv,{DEFAULT}",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder for results.csv, results.json and psnr-time.png.")
    ] = None,
    snapshots: Snapshots = None,
    running: Running = Running(),
    force: common.Force = False,
    json: common.Json = False,
    quiet: common.Quiet = False,
) -> None:
    """Run every method on every scene; print a table, or with --json a list of what `reconstruct --json` prints.

    Times are of the reconstruction alone, kernels warm. Exit code 3 if any run did not converge. If it is interrupted
    or fails, what was measured until then is printed, and the folder is not written.

    Examples:

      unsnap bench scenes/ --methods gap-tv,gap-tv3d -o results

      unsnap bench drop8_cacti.mat traffic_cacti.mat --methods all --json
    """
    recipes = common.parse_methods(methods)
    files = scene_files(scenes)
    if output is not None:
        claim_output(output, NAMES, inputs=(*files, *methods.split(",")), force=force)
    reading = Reading(snapshots=snapshots)
    loaded = _distinct([(file, read_checked(file, reading, quiet)) for file in files])
    recipes = common.serving(recipes, [scene for _, scene in loaded], methods, quiet)
    results: list[Result] = []
    with common.told_anyway(results, json):
        for file, scene in loaded:
            digest = sha256(file)
            for recipe in recipes:
                _, result = common.run_with_bar(scene, recipe, running, quiet, digest)
                results.append(result)
        if output is not None:
            with atomic_folder(output, NAMES, overwrite=force) as folder:
                write_csv(folder / "results.csv", results)
                write_json(folder / "results.json", results, environment())
                psnr_time_plot(results, folder / "psnr-time.png")
            remark(f"Wrote results.csv, results.json and psnr-time.png to {output}", quiet)
    common.conclude(results, json)


def _distinct(loaded: list[tuple[Path, Scene]]) -> list[tuple[Path, Scene]]:
    """The same with every scene whose name occurs twice called by its path: each keeps its rows and its SHA-256."""
    names = [scene.meta["name"] for _, scene in loaded]
    return [
        (file, scene if names.count(name) == 1 else replace(scene, meta={**scene.meta, "name": str(file)}))
        for name, (file, scene) in zip(names, loaded, strict=True)
    ]
