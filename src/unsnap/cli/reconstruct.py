"""unsnap reconstruct: files in, videos out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from unsnap.cli import common
from unsnap.cli.common import Reading, Running, out, print_json, remark
from unsnap.cli.film_options import Film
from unsnap.cli.work import Work, say, summary
from unsnap.errors import InputError
from unsnap.io import VIDEO_OUTPUTS, claim_output
from unsnap.io.files import scene_files
from unsnap.io.outputs import discard, unconverged
from unsnap.methods import DEFAULT, Method, get
from unsnap.run import Result

MP4 = "mp4"


def command(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="Scenes: .mat, .npz, .h5, a TIFF stack or a folder; several, or a folder of them, with -o FOLDER/.",
            show_default=False,
            metavar="FILE",
            readable=False,  # typer would stop at one that may not be read; the reader names it, and the others go on
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
            help="Video to write: .mp4 .gif .tif .npz .npy .h5 .zarr .mat .png, a folder for PNG frames; spectra also "
            ".hdr. Of several files the folder for a video each. Default: FILE-METHOD.mp4 here; with --json nothing.",
            show_default=False,
        ),
    ] = None,
    container: Annotated[
        str | None,
        typer.Option("--format", help="Kind of the videos. Default: mp4.", metavar="EXTENSION", show_default=False),
    ] = None,
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
    workers: Annotated[
        int | None,
        typer.Option(min=1, max=4096, help="Processes to share the files among. What is done is not done again."),
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(help="The same on a Dask cluster.", metavar="tcp://SCHEDULER:8786")
    ] = None,
    force: common.Force = False,
    json: common.Json = False,
    quiet: common.Quiet = False,
) -> None:
    """Reconstruct the video behind the snapshot(s) in FILE, or in each of several.

    All snapshots of a file are reconstructed at once and written as one video; the default, gap-wnnm and their finer
    grades look for what is alike in the neighbouring ones, too (--alone: not). If the method does not converge, the
    exit code is 3 and the video is called …-unconverged; if it diverges, none is written. Of several files a bad one is
    named and the others go on; the exit code is 2 then, and --json prints a list.

    Examples:

      unsnap reconstruct capture.mat

      unsnap reconstruct meas.mat --masks mask.mat -m gap-tv -o video.gif

      unsnap reconstruct raw.tif --masks mask.mat --dark dark.tif --white white.tif --saturated exclude

      unsnap reconstruct odd.mat --measurement-key shots --masks-key code --roi 0:128,64:192 --snapshots 2:4

      unsnap reconstruct captures/ -o videos/ --contrast auto --equalise

      unsnap reconstruct captures/ -o videos/ --workers 8

      unsnap reconstruct captures/ -o videos/ --cluster tcp://scheduler:8786

      unsnap reconstruct drop8_cacti.mat --method gap-tv --json
    """
    film.check()
    recipe = get(method)
    found = scene_files(files, reading.inputs, reading.masks is not None)
    many = len(files) > 1 or found != files or workers is not None or cluster is not None
    targets = (
        several(found, output, container or MP4, json) if many else [_alone(found[0], output, container, recipe, json)]
    )
    work = Work(method, reading, running, together, film, tuple(points or ()), anyway, fps, quiet, tile=tile)

    def claim(target: Path) -> None:
        for name in (target, unconverged(target)):
            claim_output(name, inputs=(*found, *reading.inputs, method), force=force)

    if workers is not None or cluster is not None:
        from unsnap.cli.many import spread

        results = spread(work, found, targets, claim, workers, cluster, force=force, json=json, quiet=quiet)
    else:
        for target in targets:
            if target is not None:
                claim(target)
        if not many:
            alone = work(found[0], targets[0], force)
            _clear(targets, [alone], force)
            _conclude(alone, json, quiet)
            return
        results = []
        for (file, _), result in each(partial(work, overwrite=force), list(zip(found, targets, strict=True))):
            results.append(result)
            say(file, result, json)
    _clear(targets, results, force)
    if json:
        print_json([_entry(*pair) for pair in zip(found, results, strict=True)])
    leave(results, quiet)


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


def _clear(targets: Sequence[Path | None], results: Sequence[Result | InputError], force: bool) -> None:
    """With --force remove what an earlier run left under the other of a video's two names."""
    for target, result in zip(targets, results, strict=True):
        if force and target is not None and isinstance(result, Result) and result.output is not None:
            other = target if Path(result.output) != target else unconverged(target)
            if other == target or other not in targets:
                discard(other)


def _alone(file: Path, output: Path | None, kind: str | None, recipe: Method, json: bool) -> Path | None:
    if output is None:
        return None if json else target_in(Path(), file, kind or MP4, f"-{recipe.name}")
    if kind is not None and target_in(Path(), output, kind).suffix != output.suffix.lower():
        raise InputError(f"--format {kind} contradicts -o {output}; leave one of them out")
    return output


def several(files: list[Path], output: Path | None, kind: str, json: bool) -> list[Path | None]:
    """A video in the folder for each of the files, named after it."""
    if output is None:
        if not json:
            raise InputError("several files need a folder for their videos; give one with -o FOLDER/")
        return [None for _ in files]
    check_folder_name(output)
    targets: dict[Path, Path] = {}
    for file in files:
        first = targets.setdefault(target_in(output, file, kind), file)
        if first != file:
            raise InputError(f"{first} and {file} would give videos of the same name; rename one of them")
    return list(targets)


def check_folder_name(output: Path) -> None:
    """Refuse as a folder for videos a file, and what is named like one unless it is a folder already."""
    if output.is_file():
        raise InputError(f"{output} is a file, and several need a folder for their videos; give another one with -o")
    if output.suffix and output.suffix.lower() in VIDEO_OUTPUTS and not output.is_dir():
        raise InputError(
            f"{output} is the name of a video, and a folder for videos is needed here; give another one with -o FOLDER/"
        )


def target_in(folder: Path, file: Path, kind: str, ending: str = "") -> Path:
    """The video of a file, of the kind that --format names."""
    suffix = f".{kind.lower().lstrip('.')}"
    if suffix not in VIDEO_OUTPUTS:
        raise InputError(f"--format must be one of {', '.join(s[1:] for s in VIDEO_OUTPUTS if s)}, got {kind!r}")
    return folder / f"{file.stem or file.resolve().name}{ending}{suffix}"


def _conclude(result: Result, json: bool, quiet: bool) -> None:
    if json:
        print_json(result.to_dict())
    else:
        out.print(summary(result), highlight=False)
    leave([result], quiet)


def _entry(file: Path, result: Result | InputError) -> dict[str, Any]:
    if isinstance(result, InputError):
        return {"file": str(file), "error": str(result)}
    return {"file": str(file), **result.to_dict()}


def leave(results: Sequence[Result | InputError], quiet: bool) -> None:
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
        why = f"the last change {result.residual:.2e} is above {result.tolerance:.1e}"
        remedy = "Give it more with --iterations, or accept more with --tol."
        if result.residual <= result.tolerance:
            why = "its video does not explain the snapshot, whose misfit is above the noise found"
            remedy = "Check masks, saturation and offset with `unsnap inspect`; more noise than light has no remedy."
        video = f"the video is called {result.output}" if result.output else "nothing was written"
        remark(f"{result.method} did not converge: {why}; {video}. {remedy}", quiet)
