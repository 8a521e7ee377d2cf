"""unsnap bench: scenes × methods, one table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unsnap.bench.pictures import psnr_time_plot
from unsnap.bench.report import environment, write_csv, write_json
from unsnap.cli import common
from unsnap.cli.common import Reading, Running, check_methods, conclude, parse_methods, read_checked, remark, run_shown
from unsnap.errors import InputError
from unsnap.io import check_writable, sha256
from unsnap.io.formats import find
from unsnap.run import Result


def command(
    scenes: Annotated[list[Path], typer.Argument(help="Scene files, or folders of them.", show_default=False)],
    methods: Annotated[str, typer.Option(help="Names, separated by commas, or all.")] = "gap-tv,de-gap",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder for results.csv, results.json and psnr-time.png.")
    ] = None,
    snapshots: common.Snapshots = None,
    running: Running = Running(),
    json: common.Json = False,
    quiet: common.Quiet = False,
) -> None:
    """Run every method on every scene; print a table, or with --json a list of what `reconstruct --json` prints.

    Times are of the reconstruction alone, kernels warm. Exit code 3 if any run did not converge.

    Examples:

      unsnap bench scenes/ --methods gap-tv,gap-tv3d -o results

      unsnap bench drop8_cacti.mat traffic_cacti.mat --methods all --json
    """
    recipes = parse_methods(methods)
    if output is not None:
        check_writable(output / "results.json", (".json",))
    reading = Reading(snapshots=snapshots)
    files = _scene_files(scenes)
    loaded = [(file, read_checked(file, reading, quiet)) for file in files]
    for _, scene in loaded:
        check_methods(recipes, scene)
    results: list[Result] = []
    for file, scene in loaded:
        digest = sha256(file)
        for recipe in recipes:
            _, result = run_shown(scene, recipe, running, quiet, digest)
            results.append(result)
    if output is not None:
        write_csv(output / "results.csv", results)
        write_json(output / "results.json", results, environment())
        psnr_time_plot(results, output / "psnr-time.png")
        remark(f"Wrote results.csv, results.json and psnr-time.png to {output}", quiet)
    conclude(results, json)


def _scene_files(paths: list[Path]) -> list[Path]:
    """Files as given; a folder that holds scene files stands for them."""
    files: list[Path] = []
    for path in paths:
        inside = sorted(p for p in path.iterdir() if find(p.suffix).read_arrays) if path.is_dir() else []
        files.extend(inside or [path])
    if not files:
        raise InputError("bench needs at least one scene file")
    return files
