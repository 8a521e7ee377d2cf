"""What `reconstruct` and `watch` do with a file: read it, reconstruct it, write its video."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from torch import Tensor

from unsnap import tiling
from unsnap.bench.pictures import spectra_plot
from unsnap.campaign.folder import Stamp, stamp
from unsnap.campaign.task import VERSIONS
from unsnap.cli import tiled
from unsnap.cli.common import (
    WARNINGS,
    Reading,
    Running,
    named,
    out,
    read_checked,
    remark,
    run_with_bar,
)
from unsnap.cli.film_options import Film
from unsnap.errors import InputError, short
from unsnap.io import budget, claim_output, save_video, sha256
from unsnap.io.checks import is_there
from unsnap.io.outputs import unconverged
from unsnap.methods import Method, get
from unsnap.models.file import SUFFIX
from unsnap.plugins import load_plugin
from unsnap.run import Result
from unsnap.scene import Scene

DIM, CLIPPED = 0.25, 0.01
"""A video whose brightest is darker, or of which more is above white, was probably given another white than its own."""


@dataclass(frozen=True)
class Work:
    """What is done with every file; only names and numbers, so that it can go to other processes."""

    method: str
    reading: Reading
    running: Running
    together: bool | None
    film: Film
    points: tuple[str, ...]
    anyway: bool
    fps: float
    quiet: bool
    plugins: tuple[str, ...] = ()
    named: str | None = None
    """The method's name, if it is a copy of a model file."""
    tile: int | None = None

    def __call__(self, file: Path, target: Path | None, overwrite: bool) -> Result:
        scene: Scene | None
        try:
            with budget.passing():
                scene = self.read(file)
                points = points_of(self.points, scene)
                if points and target is not None:
                    for name in (target, unconverged(target)):
                        claim_output(
                            spectra_path(name), (".png",), inputs=(file, *self.reading.inputs), force=overwrite
                        )
                if not self.by_tiles(scene):
                    video, result = self.solve(scene, sha256(file))
                    return result if target is None else self.write(scene, video, result, target, overwrite)
                return self._tiled(file, target, scene, overwrite)
        except budget.TooLargeError:  # the file, or the method: parts may do
            scene = None
        return self._tiled(file, target, scene, overwrite)

    def by_tiles(self, scene: Scene) -> bool:
        return self.tile is not None or tiled.needed(scene, self.recipe) > budget.left()

    def _tiled(self, file: Path, target: Path | None, scene: Scene | None, overwrite: bool) -> Result:
        with self.tiles(file, target, scene, budget.left()) as job:
            job.run(job.scratch, self.quiet)
            return self.write_tiles(job, job.scratch, sha256(file), overwrite)

    @contextmanager
    def tiles(self, file: Path, target: Path | None, scene: Scene | None, room: int) -> Iterator[tiled.Job]:
        """The steps of a file that is more than `room` bytes hold. scene: what is in it; None if it does not fit
        either, and is read window by window."""
        with budget.passing(), tiled.scratch(target) as folder:
            source = None
            if scene is None:
                source = tiled.of_file(file, self.reading, folder, self.quiet, self.anyway)
            if source is None:
                scene = self.read(file) if scene is None else scene  # which says why it does not fit
                source = tiling.of_scene(scene)
            elif self.points:
                raise InputError(
                    "--points needs the whole spectrum in memory; leave it out, or give more with --memory"
                )
            self.recipe.check_camera(source.operator)
            self.film.check_length(source.snapshots * source.operator.frames)
            seen = source.corner if scene is None else scene
            yield tiled.job(
                source, seen, self.recipe, self.running, folder, target, room=room, side=self.tile,
                together=self._in_sequence(source.snapshots, source.operator.channels),
                plain=not self.points and self.film == Film(),
            )  # fmt: skip

    def write_tiles(self, job: tiled.Job, folder: Path, sha: str, overwrite: bool) -> Result:
        """Of steps that are done the video, which is taken into memory only if it fits."""
        found, target = job.video(folder, sha), job.target
        dim = [] if found.result.diverged else self._brightness(job.scene, found.some())
        result = replace(found.result, warnings=[*job.scene.meta.get(WARNINGS, ()), *dim])
        if target is None or result.diverged:
            return result
        if found.fits:
            return self.write(job.scene, found.video(), result, target, overwrite)
        path = target if result.converged else unconverged(target)
        found.save(path, self.fps, overwrite)
        return replace(result, output=str(path))

    @property
    def recipe(self) -> Method:
        for plugin in self.plugins:
            load_plugin(plugin)
        if not self.method.endswith(SUFFIX) or not Path(self.method).is_file():
            return get(self.method)  # a name, or what says why it is none
        found = _model(self.method, stamp(Path(self.method)))
        return found if self.named is None else replace(found, name=self.named)

    def settings(self) -> dict[str, Any]:
        """All that decides the bytes of a video, beside the file."""
        inputs = {str(path): _hash(path, stamp(path)) for path in self._files()}
        held = {Path(path): sha for path, sha in inputs.items()}

        def plain(value: Any) -> Any:
            return held.get(Path(value), value) if isinstance(value, (str, Path)) and value else value

        groups = {"reading": self.reading, "running": self.running, "film": self.film}
        return {
            "method": self.named or Path(self.method).stem if self.method.endswith(SUFFIX) else self.method,
            "model": plain(self.method),
            **{name: {key: plain(value) for key, value in vars(group).items()} for name, group in groups.items()},
            "together": self.together,
            "points": list(self.points),
            "fps": self.fps,
            "tile": self.tile,
            "plugins": [plain(plugin) for plugin in self.plugins],
            **VERSIONS,
        }

    def _files(self) -> list[Path]:
        """The files that it names, beside the scenes."""
        named = (*self.reading.inputs, self.method, *self.plugins)
        return [Path(name) for name in named if name is not None and is_there(name)]

    def read(self, file: Path) -> Scene:
        """The scene in a file, once it is sure that it can be reconstructed."""
        scene = read_checked(file, self.reading, self.quiet, anyway=self.anyway)
        self.recipe.check_camera(scene.operator)
        if self.film.frames is not None and scene.video_options["wavelengths"] is not None:
            raise InputError("--frames chooses frames of a film, and this capture is a spectrum; leave it out")
        self.film.check_length(scene.snapshots * scene.operator.frames)
        points_of(self.points, scene)
        return scene

    def _in_sequence(self, snapshots: int, channels: int) -> bool:
        several = snapshots > 1 and self.recipe.together is not None and channels == 1
        return several if self.together is None else self.together

    def parts(self, scene: Scene) -> int:
        """Its snapshots, unless they help one another; 0 if only tiles fit into the memory."""
        if self.by_tiles(scene):
            return 0
        return 1 if self._in_sequence(scene.snapshots, scene.operator.channels) else scene.snapshots

    def cut(self, scene: Scene, part: int) -> Scene:
        return scene.pick(slice(part, part + 1))

    def solve(self, scene: Scene, sha: str, start: Tensor | None = None) -> tuple[Tensor, Result]:
        together = self._in_sequence(scene.snapshots, scene.operator.channels)
        solution, result = run_with_bar(scene, self.recipe, self.running, self.quiet, sha, together, start)
        video = solution.x.cpu()
        return video, replace(result, warnings=[*scene.meta.get(WARNINGS, ()), *self._brightness(scene, video)])

    def _brightness(self, scene: Scene, video: Tensor) -> list[str]:
        """A word about a white level that was guessed, if the video looks as if it was guessed badly."""
        if not scene.meta.get("white_guessed") or self.film.contrast is not None or not bool(video.isfinite().all()):
            return []
        some = video.flatten()[:: 1 + video.numel() // 10**6]
        bright, over = float(some.quantile(0.999)), float((some > 1.05).float().mean())
        if bright <= 0 or (bright >= DIM and over < CLIPPED):
            return []
        what = (
            f"{over:.0%} of the video lie above white"
            if over >= CLIPPED
            else f"the video's brightest is {bright:.2g} of white"
        )
        white = scene.meta.get("measurement_factor") or 1.0
        text = (
            f"white was guessed as {white:.4g}, and {what}; --scale N sets it, --contrast auto stretches what is shown"
        )
        remark(f"Warning: brightness: {text}.", self.quiet)
        return [f"brightness: {text}."]

    def write(self, scene: Scene, video: Tensor, result: Result, target: Path, overwrite: bool) -> Result:
        """Nothing of what diverged; under another name what did not converge."""
        if result.diverged:
            return result
        path = target if result.converged else unconverged(target)
        save_video(
            path,
            self.film.of(video, 3 if scene.video_options["colour"] else 1),
            fps=self.fps,
            overwrite=overwrite,
            **scene.video_options,
        )
        if points := points_of(self.points, scene):
            spectra_plot(video[0], scene.meta["wavelengths"], points, spectra_path(path), overwrite=overwrite)
        return replace(result, output=str(path))


@lru_cache(maxsize=4)
def _model(path: str, seen: Stamp) -> Method:
    """A model file is read once, while it stays the same."""
    return get(path)


@lru_cache(maxsize=64)
def _hash(path: Path, seen: Stamp) -> str:
    return sha256(path)


def points_of(points: Sequence[str], scene: Scene) -> list[tuple[int, int]]:
    """(row, column) of --points, which only a spectrum has."""
    if points and scene.meta.get("wavelengths") is None:
        raise InputError("--points plots spectra, and this capture has none; leave it out")
    height, width = scene.operator.video[-2:]
    found = []
    for text in points:
        numbers = [int(part) for part in text.split(",") if part.strip().isdecimal() and len(part) < 10]
        if len(numbers) != 2 or not (numbers[0] < height and numbers[1] < width):
            raise InputError(f"--points must be ROW,COLUMN within {height}×{width}, got {short(text)}")
        found.append((numbers[0], numbers[1]))
    return found


def spectra_path(output: Path) -> Path:
    return output.with_name(f"{output.stem}-spectra.png")


def say(file: Path, result: Result | InputError, json: bool) -> None:
    """What became of one of several files."""
    if isinstance(result, InputError):
        remark(f"Error: {result}", quiet=False)
    elif not json:
        out.print(f"{named(file)}: {summary(result)}", highlight=False)


def summary(result: Result) -> str:
    """Two lines for people."""
    quality = "no truth to compare with"
    if result.psnr is not None and result.psnr_per_snapshot is not None:
        known = len(result.psnr_per_snapshot)
        cover = "" if known == result.snapshots else f" of the first {known} of {result.snapshots} snapshots"
        quality = f"PSNR {result.psnr:.2f} dB, SSIM {result.ssim:.4f}{cover}"
    size = f"{result.snapshots} × {result.frames} frames of {result.height}×{result.width}"
    return (
        f"[bold]{named(result.method)}[/]: {size} in {result.seconds:.2f} s ({result.cpu_seconds:.2f} CPU-s), "
        f"{result.iterations} iterations, last change {result.residual:.1e}; {quality}\n"
        f"{'Wrote [bold]' + named(result.output) + '[/]' if result.output else 'Nothing was written'}"
    )
