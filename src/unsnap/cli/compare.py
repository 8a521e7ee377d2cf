"""unsnap compare: the same snapshot through several methods, side by side."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from torch import Tensor

from unsnap.bench.html import Page, write_html
from unsnap.bench.pictures import convergence_plot, psnr_time_plot, side_by_side
from unsnap.bench.report import environment, write_csv, write_json
from unsnap.bench.sheet import contact_sheet
from unsnap.cli import common
from unsnap.cli.common import Reading, Running, check_methods, conclude, parse_methods, read_checked, remark, run_shown
from unsnap.io import check_writable, save_video, sha256
from unsnap.methods import Method
from unsnap.run import Result
from unsnap.scene import Scene


def command(
    file: common.File,
    methods: Annotated[str, typer.Option(help="Names, separated by commas, or all.")] = "gap-tv,de-gap",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Folder to write to. Default: FILE-compare here.", show_default=False),
    ] = None,
    reading: Reading = Reading(),
    running: Running = Running(),
    fps: Annotated[float, typer.Option(min=0.1, max=1000.0, help="Frames per second of the video.")] = 10.0,
    json: common.Json = False,
    quiet: common.Quiet = False,
) -> None:
    """Reconstruct FILE by several methods and draw them beside each other (and beside the truth, if known).

    Writes report.html (everything at a glance), frames.png (frames × methods with PSNR and error maps), psnr-time.png,
    convergence.png, side-by-side.mp4 and .gif, and results.csv/.json. A method that cannot serve the file is refused
    before any begins.

    Example:

      unsnap compare capture.mat --methods gap-tv,gap-tv3d,admm-tv3d -o comparison
    """
    recipes = parse_methods(methods)
    folder = Path(f"{file.stem}-compare") if output is None else output
    check_writable(folder / "results.json", (".json",))
    scene = read_checked(file, reading, quiet)
    results = compare(scene, recipes, folder, running, fps=fps, quiet=quiet, sha=sha256(file))
    remark(f"Wrote pictures, video and tables to {folder}; open {folder / 'report.html'}", quiet)
    conclude(results, json)


def compare(
    scene: Scene,
    recipes: list[Method],
    folder: Path,
    running: Running,
    *,
    fps: float = 10.0,
    quiet: bool = False,
    sha: str | None = None,
) -> list[Result]:
    """Run every recipe on the scene and write all pictures, videos, tables and the report into the folder."""
    check_methods(recipes, scene)
    videos: dict[str, Tensor] = {}
    histories: dict[str, Tensor] = {}
    results: list[Result] = []
    for recipe in recipes:
        solution, result = run_shown(scene, recipe, running, quiet, sha)
        videos[recipe.name] = solution.x.cpu()
        histories[recipe.name] = solution.residual.cpu()
        results.append(result)
    draw(scene, videos, folder, fps=fps)
    convergence_plot(histories, folder / "convergence.png")
    if scene.truth is not None:
        psnr_time_plot(results, folder / "psnr-time.png")
    machine = environment()
    write_csv(folder / "results.csv", results)
    write_json(folder / "results.json", results, machine)
    settings = {**vars(running), "SHA-256 of the file": sha}
    write_html(folder / "report.html", _page(scene, recipes, folder, settings), results, machine)
    return results


def _page(scene: Scene, recipes: list[Method], folder: Path, settings: Mapping[str, object]) -> Page:
    """The report on what now lies in the folder."""
    known = scene.truth is not None
    pictures = {"Frames of the first snapshot" + (", and their errors" if known else ""): folder / "frames.png"}
    if known:
        pictures["Quality against time"] = folder / "psnr-time.png"
    pictures["Convergence"] = folder / "convergence.png"
    return Page(
        title=f"{scene.meta.get('name', 'scene')} by {', '.join(recipe.name for recipe in recipes)}",
        methods={recipe.name: f"{recipe.summary} ({recipe.reference})" for recipe in recipes},
        pictures=pictures,
        settings=settings,
        film="side-by-side.mp4",
    )


def draw(scene: Scene, videos: dict[str, Tensor], folder: Path, *, fps: float) -> None:
    """The side-by-side video (all snapshots, truth where known) and the sheet of the first snapshot's frames."""
    count = scene.snapshots if scene.truth is None else len(scene.truth)
    panes: dict[str, Tensor] = {"snapshot": _held_snapshots(scene, count)}
    panes |= {name: video[:count].flatten(0, 1) for name, video in videos.items()}
    if scene.truth is not None:
        panes["truth"] = scene.truth.flatten(0, 1)
    film = side_by_side(panes)
    save_video(folder / "side-by-side.mp4", film, fps=fps)
    save_video(folder / "side-by-side.gif", film, fps=fps)
    truth = None if scene.truth is None else scene.truth[0]
    first = {name: video[0] for name, video in videos.items()}
    contact_sheet(first, folder / "frames.png", truth=truth, measurement=scene.pictures[0], errors=truth is not None)


def _held_snapshots(scene: Scene, count: int) -> Tensor:
    """Each snapshot, scaled for display and shown as long as the frames it holds."""
    y = scene.pictures[:count]
    shown = (y / y.amax((-2, -1), keepdim=True).clamp(min=1e-12)).clamp(0, 1)
    return shown.repeat_interleave(scene.frames, dim=0)
