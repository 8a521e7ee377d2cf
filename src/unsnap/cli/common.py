"""What the commands share: options, consoles, errors to exit codes, progress."""

from __future__ import annotations

import functools
import inspect
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor

from unsnap.errors import InputError
from unsnap.methods import Method
from unsnap.metrics import psnr
from unsnap.plugins import load_plugin
from unsnap.scene import Scene

out = Console()
err = Console(stderr=True)

BAD_INPUT, NOT_CONVERGED, INTERRUPTED = 2, 3, 130

File = Annotated[Path, typer.Argument(help="Scene: .mat, .npz, .h5, a TIFF stack or a folder.", show_default=False)]
Masks = Annotated[Path | None, typer.Option(help="Take the masks from this file.", show_default=False)]
TimeAxis = Annotated[int | None, typer.Option(help="Axis of the masks that is time, if guessed wrongly.")]
TransposeMasks = Annotated[bool, typer.Option("--transpose-masks", help="Swap rows and columns of the masks.")]
Scale = Annotated[float | None, typer.Option(help="Value of white in the measurement's units, if guessed wrongly.")]
Snapshots = Annotated[int | None, typer.Option(min=1, help="Use only the first N snapshots.", metavar="N")]
Iterations = Annotated[int | None, typer.Option(min=1, help="Iterations at most, instead of the method's own.")]
Tol = Annotated[float | None, typer.Option(min=0.0, help="Stop when the relative change falls to this.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, … or auto: the GPU if there is one.")]
Seed = Annotated[int, typer.Option(help="Seed of everything random.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout, everything else on stderr.")]
Camera = Annotated[
    str | None, typer.Option(help="multishot: the snapshots are shots of one video; or that of a plug-in.")
]
Plugin = Annotated[
    list[str] | None,
    typer.Option("--plugin", help="Import this module or FILE.py first: it may register networks, methods, cameras."),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no remarks.")]

Command = TypeVar("Command", bound=Callable[..., Any])


def guarded(command: Command) -> Command:
    """Bad input is one sentence and exit code 2, Ctrl-C is 130; nothing half-written stays behind in either case.

    Every command gets the option --plugin, whose modules are imported before it begins.
    """

    @functools.wraps(command)
    def run(*args: Any, plugin: list[str] | None = None, **kwargs: Any) -> Any:
        try:
            for name in plugin or []:
                load_plugin(name)
            return command(*args, **kwargs)
        except InputError as error:
            fail(str(error))
        except MemoryError:
            fail("there is not enough memory for this input; use fewer snapshots (--snapshots N) or a smaller size")
        except KeyboardInterrupt:
            err.print("Interrupted; nothing half-written was left.")
            raise typer.Exit(INTERRUPTED) from None

    own = inspect.signature(command, eval_str=True)
    option = inspect.Parameter("plugin", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Plugin)
    run.__signature__ = own.replace(parameters=[*own.parameters.values(), option])  # type: ignore[attr-defined]
    run.__annotations__ = {**{name: p.annotation for name, p in own.parameters.items()}, "plugin": Plugin}
    return run  # type: ignore[return-value]


def fail(sentence: str) -> None:
    """Say what is wrong on stderr and leave with exit code 2."""
    err.print(f"Error: {sentence}", style="red", markup=False, highlight=False, soft_wrap=True)
    raise typer.Exit(BAD_INPUT)


def remark(text: str, quiet: bool) -> None:
    """A line for people, on stderr."""
    if not quiet:
        err.print(text, markup=False, highlight=False, soft_wrap=True)


def print_json(value: Any) -> None:
    """Exactly one JSON value on stdout."""
    sys.stdout.write(json.dumps(value, allow_nan=False) + "\n")
    sys.stdout.flush()


@dataclass(frozen=True)
class Reading:
    """How to read a scene file: the loader options every command offers."""

    masks: Path | None = None
    time_axis: int | None = None
    transpose_masks: bool = False
    scale: float | None = None
    snapshots: int | None = None
    camera: str | None = None

    def options(self) -> dict[str, Any]:
        return {
            "masks": self.masks,
            "time_axis": self.time_axis,
            "transpose_masks": self.transpose_masks,
            "scale": self.scale,
            "snapshots": None if self.snapshots is None else slice(self.snapshots),
            "camera": self.camera,
        }


def read_checked(path: Path, reading: Reading, quiet: bool) -> Scene:
    """The scene in a file, once the doctor has found nothing that cannot work; his warnings go to stderr."""
    from unsnap.doctor import examine

    report = examine(path, **reading.options())
    for finding in report.findings:
        remedy = f" Remedy: {finding.remedy}." if finding.remedy else ""
        if finding.level == "fatal":
            name = "" if str(path) in finding.text or path.name in finding.text else f"{path}: "
            raise InputError(f"{name}{finding.text}.{remedy}".replace("..", "."))
        if finding.level == "warning":
            remark(f"Warning: {finding.subject}: {finding.text}.{remedy}", quiet)
    if report.scene is None:
        raise InputError(f"{path}: no scene could be read; run `unsnap inspect` on it")
    return report.scene


def parse_methods(names: str) -> list[Method]:
    """`a,b,c`, or `all` that have what they need here -> methods."""
    from unsnap.methods import METHODS, get

    if names == "all":
        return [method for method in METHODS.discover().values() if method.missing() is None]
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    if not wanted:
        raise InputError("--methods must name at least one method, for example gap-tv,gap-tv3d")
    found = [get(name) for name in dict.fromkeys(wanted)]
    twice = [method.name for k, method in enumerate(found) if method.name in [other.name for other in found[:k]]]
    if twice:
        raise InputError(
            f"--methods names two of the name {twice[0]!r}, which nobody could tell apart; rename one file"
        )
    return found


def check_methods(methods: list[Method], scene: Scene) -> None:
    """An InputError if any of them cannot serve the scene, before the first is run."""
    for method in methods:
        method.check_camera(scene.operator)


@contextmanager
def progress(method: Method, scene: Scene, iterations: int | None, quiet: bool) -> Iterator[Any]:
    """A bar with the live residual and, where truth is known, PSNR; yields the watcher for `bench.run.run`.

    It redraws itself only when told, a few times a second, so that drawing can be left out of the timing.
    """
    if quiet or not err.is_terminal:
        yield None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("change {task.fields[residual]}"),
        TextColumn("{task.fields[quality]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err, transient=True, auto_refresh=False) as bar:
        total = iterations or method.iterations
        task = bar.add_task(f"{scene.meta.get('name', 'scene')} {method.name}", total=total, residual="–", quality="")
        last = 0.0

        def watch(iteration: int, x: Tensor, residual: Tensor) -> None:
            nonlocal last
            if time.monotonic() - last < 0.2 and iteration < total:
                return
            quality = ""
            if scene.truth is not None:
                quality = f"PSNR {float(psnr(x[:1].cpu(), scene.truth[:1]).mean()):.2f} dB"
            bar.update(
                task, completed=iteration, residual=f"{float(residual.max()):.1e}", quality=quality, refresh=True
            )
            last = time.monotonic()

        yield watch
