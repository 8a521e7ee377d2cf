"""unsnap watch: a video for every snapshot that arrives in a folder."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import typer
from torch import Tensor

from unsnap.campaign.folder import Stamp, stamp
from unsnap.campaign.stream import begin, enough
from unsnap.cli import common
from unsnap.cli.common import Reading, Running, named, out, print_json, remark
from unsnap.cli.film_options import Film
from unsnap.cli.reconstruct import check_folder_name, each, leave, target_in
from unsnap.cli.work import Work
from unsnap.errors import InputError, short
from unsnap.io import budget, claim_output, sha256
from unsnap.io.files import arrivals as listed
from unsnap.io.outputs import unconverged
from unsnap.methods import DEFAULT, get
from unsnap.run import Result

ORDERS = ("latest", "oldest")


def command(
    folder: Annotated[Path, typer.Argument(help="Where snapshots arrive.", show_default=False)],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for a video of each.", show_default=False)],
    method: Annotated[str, typer.Option("--method", "-m", help="A name from `unsnap methods`, or a model.")] = DEFAULT,
    container: Annotated[str, typer.Option("--format", help="Kind of the videos.", metavar="EXTENSION")] = "mp4",
    order: Annotated[str, typer.Option(help="Which of several that wait is next.", metavar="latest|oldest")] = ORDERS[
        0
    ],
    warm: Annotated[
        bool | None,
        typer.Option(
            "--warm/--cold",
            help="Begin with the last video, or not. Default: where few --iterations make it worth while.",
            show_default=False,
        ),
    ] = None,
    idle: Annotated[
        float | None, typer.Option(min=0.0, help="End when nothing has arrived for so many seconds. Default: never.")
    ] = None,
    poll: Annotated[float, typer.Option(min=0.01, max=3600, help="Seconds between two looks at the folder.")] = 0.2,
    reading: Reading = Reading(),
    running: Running = Running(),
    film: Film = Film(),
    anyway: Annotated[bool, typer.Option("--anyway", help="Go on though the masks are certainly misplaced.")] = False,
    fps: Annotated[float, typer.Option(min=0.1, max=1000.0, help="Frames per second of the videos.")] = 10.0,
    json: common.Json = False,
    quiet: common.Quiet = False,
) -> None:
    """Reconstruct each snapshot that arrives in FOLDER, until Ctrl-C or SIGTERM.

    A file is taken when its size has not changed between two looks, and again if it could not be read and has changed
    since. If they arrive faster than they are reconstructed, the latest is next and the others wait until there is time
    (--order oldest: first come, first served); none is dropped. A file whose video is there already is left alone, so
    that a watch can be started again. --json prints one object per line.

    Examples:

      unsnap watch incoming/ -o videos/ --masks mask.mat -m gap-tv3d --iterations 10
    """
    film.check()
    recipe = get(method)
    if order not in ORDERS:
        raise InputError(f"--order must be latest or oldest, got {short(order)}")
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder; name the one in which snapshots arrive")
    if output.exists() and (not output.is_dir() or output.samefile(folder)):
        raise InputError(f"{output} must be a folder of its own for the videos; give another one with -o")
    check_folder_name(output)
    target_in(output, Path("name"), container)
    work = Work(method, reading, running, None, film, (), anyway, fps, quiet)
    arrivals, started = Arrivals(folder, output, container, reading, quiet), time.monotonic()
    results: dict[Path, Result | InputError] = {}
    last: Tensor | None = None

    def reconstructed(file: Path, target: Path | None) -> Result:
        nonlocal last
        if target is None:
            raise InputError("a watch needs a folder for its videos; give one with -o FOLDER/")
        if other := arrivals.maker(file):
            raise InputError(f"{other} has given a video of the same name as {file} would; rename one of them")
        claim_output(target, inputs=(*reading.inputs, method, file))
        with budget.passing():  # what this file takes is free again for the next one
            scene = work.read(file)
            start = begin(recipe, scene.operator, last, running.iterations, warm) if scene.snapshots == 1 else None
            count = enough(recipe, scene.operator, start, running.iterations, warm)
            video, result = replace(work, running=replace(running, iterations=count)).solve(scene, sha256(file), start)
            last = video[-1:]
            return work.write(scene, video, result, target, overwrite=False)

    remark(f"Watching {folder}; stop with Ctrl-C.", quiet)
    try:
        for file, arrived, waiting in arrivals.each(order, poll, idle):
            _, result = next(each(reconstructed, [(file, arrivals.target(file))]))
            results[file] = result
            arrivals.note(file, failed=isinstance(result, InputError))
            seconds = time.time() - arrived
            if json:
                facts = {"error": str(result)} if isinstance(result, InputError) else result.to_dict()
                print_json({"file": str(file), **facts, "latency": seconds, "waiting": waiting})
            elif isinstance(result, InputError):
                remark(f"Error: {result}", quiet=False)
            else:
                out.print(
                    f"{named(file.name)}: {named(result.output or 'diverged')} {seconds:.2f} s after it arrived "
                    f"({result.seconds:.2f} s of them for the reconstruction), {waiting} waiting",
                    highlight=False,
                    soft_wrap=True,
                )
    finally:
        minutes = (time.monotonic() - started) / 60
        remark(f"{len(results)} files in {minutes:.1f} minutes: {len(results) / minutes / 60:.2f} per second.", quiet)
    leave(list(results.values()), quiet)


@dataclass
class Arrivals:
    """Files of a folder that have come and are complete."""

    folder: Path
    output: Path
    container: str
    reading: Reading
    quiet: bool = False
    seen: dict[Path, Stamp] = field(default_factory=dict)
    handled: set[Path] = field(default_factory=set)
    taken: dict[Path, Stamp] = field(default_factory=dict)
    """As they were when their turn came."""
    made: dict[Path, Path] = field(default_factory=dict)
    """Which file of this session a video is of."""
    ignored: set[Path] = field(default_factory=set)

    def note(self, file: Path, *, failed: bool) -> None:
        """What became of a file: one that failed has another try when it has changed, as by the rest of a slow copy."""
        if failed:
            self.handled.discard(file)
        else:
            self.made[self.target(file)] = file

    def maker(self, file: Path) -> Path | None:
        """Another file of this session, of which the video of this name is."""
        other = self.made.get(self.target(file), file)
        return None if other == file else other

    def target(self, file: Path) -> Path:
        return target_in(self.output, file, self.container)

    def each(self, order: str, poll: float, idle: float | None) -> Iterator[tuple[Path, float, int]]:
        """(file, when it was last written to, how many wait beside it); ends only if nothing comes for `idle` s."""
        latest = time.monotonic()
        while idle is None or time.monotonic() - latest <= idle:
            ready = self.look()
            if not ready:
                time.sleep(poll)
                continue
            file = (max if order == ORDERS[0] else min)(ready, key=lambda path: (ready[path], path.name))
            self.handled.add(file)
            self.taken[file] = self.seen[file]
            yield file, ready[file], len(ready) - 1
            latest = time.monotonic()

    def look(self) -> dict[Path, float]:
        """What is complete and not done: not changed since the last look. Files that are there by now count as such."""
        found, others = listed(self.folder, self.reading.inputs, self.reading.masks is not None)
        for file in others:
            if file not in self.ignored:
                pictures = "or a picture" if self.reading.masks else "and a picture only with --masks FILE"
                remark(f"{file} is left alone: a snapshot is .mat, .npz or .h5, {pictures}.", self.quiet)
        self.ignored.update(others)
        ready: dict[Path, float] = {}
        for file in found:
            if file in self.handled:
                continue
            target = self.target(file)
            if any(path.exists() for path in (target, unconverged(target))) and self.maker(file) is None:
                self.handled.add(file)
                continue
            try:
                now = stamp(file)
            except OSError:  # gone again
                continue
            if now and self.seen.get(file) == now and self.taken.get(file) != now:
                ready[file] = max(time_of for _, time_of, _ in now) / 1e9
            self.seen[file] = now
        return ready
