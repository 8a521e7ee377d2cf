"""What `reconstruct` and `watch` do with a file: read it, reconstruct it, write its video."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from torch import Tensor

from unsnap.bench.pictures import spectra_plot
from unsnap.campaign.folder import Stamp, stamp
from unsnap.campaign.task import VERSIONS
from unsnap.cli.common import Reading, Running, check_methods, named, out, read_checked, remark, run_shown
from unsnap.cli.film_options import Film
from unsnap.errors import InputError, short
from unsnap.io import claim_output, save_video, sha256
from unsnap.io.outputs import unconverged
from unsnap.methods import Method, get
from unsnap.models.file import SUFFIX
from unsnap.plugins import load_plugin
from unsnap.run import Result
from unsnap.scene import Scene


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

    def __call__(self, file: Path, target: Path | None, overwrite: bool) -> Result:
        scene = self.read(file)
        points = points_of(self.points, scene)
        if points and target is not None:
            claim_output(spectra_path(target), (".png",), inputs=(file, *self.reading.inputs), force=overwrite)
        video, result = self.solve(scene, sha256(file))
        return result if target is None else self.write(scene, video, result, target, overwrite)

    @property
    def recipe(self) -> Method:
        for plugin in self.plugins:
            load_plugin(plugin)
        return _recipe(self.method, self.named)

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
            "plugins": [plain(plugin) for plugin in self.plugins],
            **VERSIONS,
        }

    def _files(self) -> list[Path]:
        """The files that it names, beside the scenes."""
        named = (*self.reading.inputs, self.method, *self.plugins)
        return [Path(name) for name in named if name is not None and "\0" not in str(name) and Path(name).exists()]

    def read(self, file: Path) -> Scene:
        """The scene in a file, once it is sure that it can be reconstructed."""
        scene = read_checked(file, self.reading, self.quiet, anyway=self.anyway)
        check_methods([self.recipe], scene)
        if self.film.frames is not None and scene.look["wavelengths"]:
            raise InputError("--frames chooses frames of a film, and this capture is a spectrum; leave it out")
        points_of(self.points, scene)
        return scene

    def _in_sequence(self, scene: Scene) -> bool:
        several = scene.snapshots > 1 and self.recipe.together is not None and scene.operator.channels == 1
        return several if self.together is None else self.together

    def parts(self, scene: Scene) -> int:
        """Its snapshots, unless they help one another."""
        return 1 if self._in_sequence(scene) else scene.snapshots

    def cut(self, scene: Scene, part: int) -> Scene:
        return scene.pick(slice(part, part + 1))

    def solve(self, scene: Scene, sha: str) -> tuple[Tensor, Result]:
        solution, result = run_shown(scene, self.recipe, self.running, self.quiet, sha, self._in_sequence(scene))
        return solution.x.cpu(), result

    def write(self, scene: Scene, video: Tensor, result: Result, target: Path, overwrite: bool) -> Result:
        """Nothing of what diverged; under another name what did not converge."""
        if result.diverged:
            return result
        path = target if result.converged else unconverged(target)
        save_video(
            path,
            self.film.of(video, 3 if scene.look["colour"] else 1),
            fps=self.fps,
            overwrite=overwrite,
            **scene.look,
        )
        if points := points_of(self.points, scene):
            cube = video.reshape(-1, *scene.operator.video)[0]
            spectra_plot(cube, scene.meta["wavelengths"], points, spectra_path(target), overwrite=overwrite)
        return replace(result, output=str(path))


@lru_cache(maxsize=4)
def _recipe(method: str, name: str | None) -> Method:
    found = get(method)
    return found if name is None else replace(found, name=name)


@lru_cache(maxsize=64)
def _hash(path: Path, seen: Stamp) -> str:
    return sha256(path)


def points_of(points: Sequence[str], scene: Scene) -> list[tuple[int, int]]:
    """(row, column) of --points, which only a spectrum has."""
    if points and not scene.meta.get("wavelengths"):
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
