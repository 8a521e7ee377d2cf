"""unsnap reconstruct: files in, videos out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from torch import Tensor

from unsnap import tiling
from unsnap.bench.pictures import spectra_plot
from unsnap.cli import common, tiled
from unsnap.cli.common import Reading, Running, check_methods, named, out, print_json, read_checked, remark, run_shown
from unsnap.cli.film_options import Film
from unsnap.errors import InputError, short
from unsnap.io import VIDEO_OUTPUTS, budget, claim_output, save_video, sha256
from unsnap.io.files import scene_files
from unsnap.methods import DEFAULT, Method, get
from unsnap.run import Result
from unsnap.scene import Scene
from unsnap.tiling import Source


def command(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="Scenes: .mat, .npz, .h5, a TIFF stack or a folder; several, or a folder of them, with -o FOLDER/.",
            show_default=False,
            metavar="FILE",
        ),
    ],
    method: Annotated[
        str, typer.Option("--method", "-m", help="A name from `unsnap methods`, or a model file (.safetensors).")
    ] = DEFAULT,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Video to write: .mp4 .gif .tif .npz .npy .mat .png, a folder for PNG frames; a spectrum also .hdr. "
            "Of several files the folder for a video each. Default: FILE-METHOD.mp4 here; with --json nothing.",
            show_default=False,
        ),
    ] = None,
    container: Annotated[
        str, typer.Option("--format", help="Kind of the videos of several files.", metavar="EXTENSION")
    ] = "mp4",
    reading: Reading = Reading(),
    running: Running = Running(),
    film: Film = Film(),
    together: Annotated[
        bool | None,
        typer.Option(
            "--together/--alone",
            help="Snapshots of one camera in sequence help one another, or not. Default: they do, if the method can.",
            show_default=False,
        ),
    ] = None,
    tile: Annotated[
        int | None,
        typer.Option(
            min=32,
            max=10**6,
            help="Reconstruct by tiles of about so many pixels a side. Default: as large as --memory allows; no tiles, "
            "if the whole fits.",
            show_default=False,
        ),
    ] = None,
    points: Annotated[
        list[str] | None,
        typer.Option(help="Also plot the spectrum at ROW,COLUMN, as OUTPUT-spectra.png; may be repeated."),
    ] = None,
    anyway: Annotated[bool, typer.Option("--anyway", help="Go on though the masks are certainly misplaced.")] = False,
    fps: Annotated[float, typer.Option(min=0.1, max=1000.0, help="Frames per second of the video.")] = 10.0,
    force: common.Force = False,
    json: common.Json = False,
    quiet: common.Quiet = False,
) -> None:
    """Reconstruct the video behind the snapshot(s) in FILE, or in each of several.

    All snapshots of a file are reconstructed at once and written as one video; gap-wnnm and its finer grades look for
    what is alike in the neighbouring ones, too (--alone: not). If the method does not converge, the exit code is 3 and
    the video is called …-unconverged; if it diverges, none is written. Of several files a bad one is named and the
    others go on; the exit code is 2 then, and --json prints a list.

    Examples:

      unsnap reconstruct capture.mat

      unsnap reconstruct meas.mat --masks mask.mat -m gap-tv -o video.gif

      unsnap reconstruct raw.tif --masks mask.mat --dark dark.tif --white white.tif --saturated exclude

      unsnap reconstruct odd.mat --measurement-key shots --masks-key code --roi 0:128,64:192 --snapshots 2:4

      unsnap reconstruct captures/ -o videos/ --contrast auto --equalise

      unsnap reconstruct drop8_cacti.mat --method gap-tv --json
    """
    film.check()
    recipe = get(method)
    found = scene_files(files, reading.inputs)
    many = len(files) > 1 or found != files
    targets = _several(found, output, container, json) if many else [_alone(found[0], output, recipe, json)]
    for target in targets:
        if target is not None:
            for name in (target, unconverged(target)):
                claim_output(name, inputs=(*found, *reading.inputs, method), force=force)
    work = Work(recipe, reading, running, together, film, points or [], anyway, fps, force, quiet, tile)
    jobs = list(zip(found, targets, strict=True))
    if not many:
        _conclude(work(*jobs[0]), json, quiet)
        return
    results = []
    for (file, _), result in each(work, jobs):
        results.append(result)
        if isinstance(result, InputError):
            remark(f"Error: {result}", quiet=False)
        elif not json:
            out.print(f"{named(file)}: {summary(result)}", highlight=False)
    if json:
        print_json([_entry(*pair) for pair in zip(found, results, strict=True)])
    _leave(results, quiet)


@dataclass(frozen=True)
class Work:
    """What is done with every file."""

    recipe: Method
    reading: Reading
    running: Running
    together: bool | None
    film: Film
    points: list[str]
    anyway: bool
    fps: float
    force: bool
    quiet: bool
    tile: int | None = None

    def __call__(self, file: Path, target: Path | None) -> Result:
        try:
            with budget.passing():
                return self._whole(file, target)
        except budget.TooLargeError as error:  # the file, or the method: parts may do
            return self._by_windows(file, target, error)

    def _whole(self, file: Path, target: Path | None) -> Result:
        scene = read_checked(file, self.reading, self.quiet, anyway=self.anyway)
        check_methods([self.recipe], scene)
        if self.film.frames is not None and scene.look["wavelengths"]:
            raise InputError("--frames chooses frames of a film, and this capture is a spectrum; leave it out")
        points = points_of(self.points, scene)
        if points and target is not None:
            claim_output(spectra_path(target), (".png",), inputs=(file, *self.reading.inputs), force=self.force)
        if self.tile is not None or tiled.needed(scene, self.recipe) > budget.left():
            with tiled.scratch(target) as folder:
                return self._tiled(file, target, tiling.of_scene(scene), folder, points)
        together = self._together(scene.snapshots, scene.operator.channels)
        solution, result = run_shown(scene, self.recipe, self.running, self.quiet, sha256(file), together)
        if target is None or result.diverged:
            return result
        path = target if result.converged else unconverged(target)
        self._save(solution.x.cpu(), scene.look, path, target, points)
        return replace(result, output=str(path))

    def _save(self, x: Tensor, look: dict[str, Any], path: Path, target: Path, points: list[tuple[int, int]]) -> None:
        film = self.film.of(x, 3 if look["colour"] else 1)
        save_video(path, film, fps=self.fps, overwrite=self.force, **look)
        if points:
            spectra_plot(x[0], look["wavelengths"], points, spectra_path(target), overwrite=self.force)

    def _together(self, snapshots: int, channels: int) -> bool:
        several = snapshots > 1 and self.recipe.together is not None and channels == 1
        return several if self.together is None else self.together

    def _by_windows(self, file: Path, target: Path | None, error: InputError) -> Result:
        with budget.passing(), tiled.scratch(target) as folder:
            source = tiled.of_file(file, self.reading, folder, self.quiet, self.anyway)
            if source is None:
                raise error
            self.recipe.check_camera(source.operator)
            if self.points:
                raise InputError(
                    "--points needs the whole spectrum in memory; leave it out, or give more with --memory"
                )
            return self._tiled(file, target, source, folder, [])

    def _tiled(
        self, file: Path, target: Path | None, source: Source, folder: Path, points: list[tuple[int, int]]
    ) -> Result:
        """The same by tiles; the video is on the disk, and is taken into memory only if it fits."""
        plain = not points and self.film == Film()
        found = tiled.reconstruct(
            source, self.recipe, self.running, folder, target, side=self.tile, quiet=self.quiet, plain=plain,
            sha256=sha256(file), together=self._together(source.snapshots, source.operator.channels),
        )  # fmt: skip
        result = found.result
        if target is None or result.diverged:
            return result
        path = target if result.converged else unconverged(target)
        if found.fits:
            self._save(found.video(), source.corner.look, path, target, points)
        else:
            found.save(path, self.fps, self.force)
        return replace(result, output=str(path))


Job = tuple[Path, Path | None]


def each(work: Callable[[Path, Path | None], Result], jobs: Sequence[Job]) -> Iterator[tuple[Job, Result | InputError]]:
    """Every job with what became of it, one after the other; bad input of one does not stop the rest."""
    for job in jobs:
        try:
            yield job, work(*job)
        except InputError as error:
            yield job, error
        except OSError as error:
            if error.filename is None or error.strerror is None:
                raise
            yield job, InputError(f"{job[0]} cannot be used ({error.strerror}); check the path and its permissions")


def _alone(file: Path, output: Path | None, recipe: Method, json: bool) -> Path | None:
    return Path(f"{file.stem}-{recipe.name}.mp4") if output is None and not json else output


def _several(files: list[Path], output: Path | None, kind: str, json: bool) -> list[Path | None]:
    """A video in the folder for each of the files, named after it."""
    if output is None:
        if not json:
            raise InputError("several files need a folder for their videos; give one with -o FOLDER/")
        return [None for _ in files]
    if output.is_file():
        raise InputError(f"{output} is a file, and several need a folder for their videos; give another one with -o")
    suffix = f".{kind.lower().lstrip('.')}"
    if suffix not in VIDEO_OUTPUTS:
        raise InputError(f"--format must be one of {', '.join(s[1:] for s in VIDEO_OUTPUTS if s)}, got {kind!r}")
    names = [file.stem or file.resolve().name for file in files]
    twice = next((k for k, name in enumerate(names) if name in names[:k]), None)
    if twice is not None:
        first = files[names.index(names[twice])]
        raise InputError(f"{first} and {files[twice]} would give videos of the same name; rename one of them")
    return [output / f"{name}{suffix}" for name in names]


def points_of(points: list[str], scene: Scene) -> list[tuple[int, int]]:
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


def unconverged(output: Path) -> Path:
    """Where a video goes that its method did not stand by: nobody should take it for the result."""
    if not output.name:
        raise InputError(f"-o {str(output)!r} names no file; give the video a name, such as video.mp4")
    return output.with_name(f"{output.stem}-unconverged{output.suffix}")


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


def _conclude(result: Result, json: bool, quiet: bool) -> None:
    if json:
        print_json(result.to_dict())
    else:
        out.print(summary(result), highlight=False)
    _leave([result], quiet)


def _entry(file: Path, result: Result | InputError) -> dict[str, Any]:
    if isinstance(result, InputError):
        return {"file": str(file), "error": str(result)}
    return {"file": str(file), **result.to_dict()}


def _leave(results: Sequence[Result | InputError], quiet: bool) -> None:
    """With exit code 2 if a file was bad, 3 if a result is not to be trusted."""
    good = [result for result in results if isinstance(result, Result)]
    for result in good:
        _warn(result, quiet)
    if len(good) < len(results):
        remark(f"{len(results) - len(good)} of {len(results)} files could not be reconstructed.", quiet)
        raise typer.Exit(common.BAD_INPUT)
    if any(result.diverged or not result.converged for result in good):
        raise typer.Exit(common.NOT_CONVERGED)


def _warn(result: Result, quiet: bool) -> None:
    if result.diverged:
        remark(f"{result.method} diverged after {result.iterations} iterations; no video was written.", quiet)
    elif not result.converged:
        remark(
            f"{result.method} did not converge: the last change {result.residual:.1e} is above {result.tolerance:.1e}; "
            f"{'the video is called ' + result.output if result.output else 'nothing was written'}. Give it more with "
            "--iterations, or accept more with --tol.",
            quiet,
        )
