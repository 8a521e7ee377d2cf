"""unsnap compare: the same snapshot through several methods, side by side."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import torch
import typer
from torch import Tensor

from unsnap.bench.html import Page, write_html
from unsnap.bench.pictures import convergence_plot, psnr_time_plot, side_by_side
from unsnap.bench.report import environment, write_csv, write_json
from unsnap.bench.sheet import contact_sheet
from unsnap.cli import common
from unsnap.cli.common import (
    Reading,
    Running,
    conclude,
    parse_methods,
    read_checked,
    remark,
    run_with_bar,
    serving,
    told_anyway,
)
from unsnap.io import atomic_folder, claim_output, save_video, sha256
from unsnap.methods import DEFAULT, Method
from unsnap.run import Result
from unsnap.scene import Scene

_WRITTEN = r"report\.html|(frames|psnr-time|convergence)\.png|side-by-side\.(mp4|gif)|results\.(csv|json)"
NAMES = re.compile(_WRITTEN)
"""All that is written to the folder."""


def command(
    file: common.File,
    methods: Annotated[str, typer.Option(help="Names, separated by commas, or all.")] = f"gap-tv,{DEFAULT}",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Folder to write to. Default: FILE-compare here.", show_default=False),
    ] = None,
    reading: Reading = Reading(),
    running: Running = Running(),
    fps: Annotated[float, typer.Option(min=0.1, max=1000.0, help="Frames per second of the video.")] = 10.0,
    force: common.Force = False,
    json: common.Json = False,
    quiet: common.Quiet = False,
) -> None:
    """Reconstruct FILE by several methods and draw them beside each other (and beside the truth, if known).

    Writes report.html (everything at a glance), frames.png (frames × methods with PSNR and error maps), psnr-time.png,
    convergence.png, side-by-side.mp4 and .gif, and results.csv/.json; all of them or, if it is interrupted, none. A
    method that cannot serve the file is refused before any begins.

    Example:

      unsnap compare capture.mat --methods gap-tv,gap-tv3d,admm-tv3d -o comparison
    """
    recipes = parse_methods(methods)
    folder = Path(f"{file.stem}-compare") if output is None else output
    claim_output(folder, NAMES, inputs=(file, *reading.inputs, *methods.split(",")), force=force)
    scene = read_checked(file, reading, quiet)
    compared = Comparison(scene, serving(recipes, [scene], methods, quiet), running, sha256(file))
    with told_anyway(compared.results, json):
        compared.run(quiet)
        with atomic_folder(folder, NAMES, overwrite=force) as temporary:
            compared.write(temporary, fps)
    remark(f"Wrote pictures, video and tables to {folder}; open {folder / 'report.html'}", quiet)
    conclude(compared.results, json)


@dataclass
class Comparison:
    """Several recipes on one scene, and what came out."""

    scene: Scene
    recipes: list[Method]
    running: Running
    sha: str
    videos: dict[str, Tensor] = field(default_factory=dict)
    histories: dict[str, Tensor] = field(default_factory=dict)
    results: list[Result] = field(default_factory=list)

    def run(self, quiet: bool) -> None:
        for recipe in self.recipes:
            solution, result = run_with_bar(self.scene, recipe, self.running, quiet, self.sha)
            self.videos[recipe.name] = solution.x.cpu()
            self.histories[recipe.name] = solution.residual.cpu()
            self.results.append(result)

    def write(self, folder: Path, fps: float = 10.0) -> None:
        """All pictures, videos, tables and the report."""
        draw(self.scene, self.videos, folder, fps=fps)
        convergence_plot(self.histories, folder / "convergence.png")
        if self.scene.truth is not None:
            psnr_time_plot(self.results, folder / "psnr-time.png")
        machine = environment()
        write_csv(folder / "results.csv", self.results)
        write_json(folder / "results.json", self.results, machine)
        settings = {**vars(self.running), "SHA-256 of the file": self.sha}
        write_html(folder / "report.html", _page(self.scene, self.recipes, folder, settings), self.results, machine)


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
    colour = bool(scene.video_options["colour"])
    planes = 3 if colour else 1
    drawn = dict(videos) if scene.truth is None else {**videos, "truth": scene.truth}
    held = _held_snapshots(scene, count, planes)
    films = []
    for k in range(planes):  # each colour alone, below the same captions
        parts = {name: torch.unflatten(video[:count], 1, (planes, -1))[:, k] for name, video in drawn.items()}
        films.append(side_by_side({"snapshot": held[:, k], **{name: one.flatten(0, 1) for name, one in parts.items()}}))
    film = torch.cat(films)
    save_video(folder / "side-by-side.mp4", film, fps=fps, colour=colour)
    save_video(folder / "side-by-side.gif", film, fps=fps, colour=colour)
    truth = None if scene.truth is None else scene.truth[0]
    first = {name: video[0] for name, video in videos.items()}
    snapshot = scene.measurement[0] if scene.camera == "rgb" else scene.pictures[0]
    sheet = folder / "frames.png"
    contact_sheet(first, sheet, truth=truth, measurement=snapshot, errors=truth is not None, colour=colour)


def _held_snapshots(scene: Scene, count: int, planes: int) -> Tensor:
    """(F, planes, H, W): each snapshot, scaled for display and shown as long as the frames it holds."""
    y = scene.measurement[:count] if scene.camera == "rgb" else scene.pictures[:count, None].expand(-1, planes, -1, -1)
    scaled = (y / y.amax((-3, -2, -1), keepdim=True).clamp(min=1e-12)).clamp(0, 1)
    return scaled.repeat_interleave(int(scene.operator.video[0]) // planes, dim=0)
