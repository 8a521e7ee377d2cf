"""What the commands share: options, consoles, errors to exit codes, progress."""

from __future__ import annotations

import functools
import inspect
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import typer
from rich.markup import escape
from torch import Tensor

from unsnap.algorithms.iterate import Solution
from unsnap.bench.report import table
from unsnap.cli.capture_options import Capture
from unsnap.cli.console import BAD_INPUT as BAD_INPUT
from unsnap.cli.console import NOT_CONVERGED as NOT_CONVERGED
from unsnap.cli.console import err as err
from unsnap.cli.console import out as out
from unsnap.cli.signals import exit_code, spoken
from unsnap.doctor import Finding
from unsnap.errors import InputError, printable, sentence
from unsnap.fields import finite, fits
from unsnap.io import budget
from unsnap.methods import Method
from unsnap.metrics import psnr
from unsnap.plugins import load_plugin
from unsnap.progress import bar, watcher
from unsnap.run import Result, measure
from unsnap.scene import Scene

File = Annotated[Path, typer.Argument(help="Scene: .mat, .npz, .h5, a TIFF stack or a folder.", show_default=False)]
Masks = Annotated[Path | None, typer.Option(help="Take the masks from this file.", show_default=False)]
TimeAxis = Annotated[int | None, typer.Option(help="Axis of the masks that is time, if guessed wrongly.")]
TransposeMasks = Annotated[bool, typer.Option("--transpose-masks", help="Swap rows and columns of the masks.")]
Scale = Annotated[float | None, typer.Option(help="Value of white in the measurement's units, if guessed wrongly.")]
Iterations = Annotated[
    int | None, typer.Option(min=1, max=10**6, help="Iterations at most, instead of the method's own.")
]
Tol = Annotated[float | None, typer.Option(min=0.0, max=1.0, help="Stop when the relative change falls to this.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, … or auto: the GPU if there is one.")]
Seed = Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Seed of everything random.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout, everything else on stderr.")]
CameraFile = Annotated[
    Path | None, typer.Option("--camera", help="What `unsnap calibrate` wrote (camera.npz).", show_default=False)
]
Kind = Annotated[
    str | None,
    typer.Option(
        help="Kind of camera: multishot (the snapshots are shots of one video), rgb (they are colours), bayer:rggb (or "
        "another order of the colour filter, also quad-rggb), dispersed:2 (a spectrum, moved by 2 pixels per band; "
        "down,right for other directions), dual:2, or that of a plug-in.",
        show_default=False,
    ),
]
Plugin = Annotated[
    list[str] | None,
    typer.Option("--plugin", help="Import this module or FILE.py first: it may register networks, methods, cameras."),
]
Memory = Annotated[
    str | None,
    typer.Option(
        help="Memory that reading files may use, and reconstructing (by tiles, if all at once is more), as 512M or 2G. "
        "Default: 80 % of what is free or allowed, and no more than a file's size justifies.",
        metavar="AMOUNT",
        show_default=False,
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Replace an output that exists.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no remarks.")]

Command = TypeVar("Command", bound=Callable[..., Any])


def guarded(command: Command) -> Command:
    """Bad input is one sentence and exit code 2, a signal 128 plus its number; nothing half-written stays behind.

    Every command gets the options --plugin, whose modules are imported before it begins, and --memory. A parameter
    whose type is a dataclass stands for an option per field.
    """

    @functools.wraps(command)
    def run(*args: Any, plugin: list[str] | None = None, memory: str | None = None, **kwargs: Any) -> Any:
        given = dict(kwargs)
        for name, group in groups.items():
            kwargs[name] = group(**{field.name: kwargs.pop(field.name) for field in fields(group)})
        try:
            check_numbers(given)
            for module in plugin or []:
                load_plugin(module)
            with budget.memory(None if memory is None else budget.parse(memory)):
                return command(*args, **kwargs)
        except (InputError, MemoryError, RuntimeError, OSError) as error:
            said = sentence(error)
            if said is None:
                raise
            fail(said)
        except KeyboardInterrupt as interrupt:
            with suppress(OSError):
                err.print("Interrupted; nothing half-written was left.")
            spoken.append(exit_code(interrupt))
            raise typer.Exit(spoken[-1]) from None

    own = inspect.signature(command, eval_str=True)
    groups: dict[str, Any] = {name: p.annotation for name, p in own.parameters.items() if is_dataclass(p.annotation)}
    parameters = [q for p in own.parameters.values() for q in _options(p)]
    common = {"plugin": Plugin, "memory": Memory}
    parameters += [inspect.Parameter(name, _KEYWORD, default=None, annotation=kind) for name, kind in common.items()]
    run.__signature__ = own.replace(parameters=sorted(parameters, key=lambda p: p.kind))  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run  # type: ignore[return-value]


_KEYWORD = inspect.Parameter.KEYWORD_ONLY


def _options(parameter: inspect.Parameter) -> list[inspect.Parameter]:
    """The parameter itself, or the options that a dataclass stands for."""
    if not is_dataclass(parameter.annotation):
        return [parameter]
    kinds = get_type_hints(parameter.annotation, include_extras=True)
    return [
        inspect.Parameter(f.name, _KEYWORD, default=f.default, annotation=kinds[f.name])
        for f in fields(parameter.annotation)
    ]


def check_numbers(given: dict[str, Any]) -> None:
    """Every option that is a number is finite and of a size that a machine holds."""
    for name, value in given.items():
        if isinstance(value, (int, float)) and not isinstance(value, bool) and not fits(value, type(value)):
            raise InputError(f"--{name.replace('_', '-')} must be a finite number of usual size; give another one")


def fail(sentence: str) -> None:
    """Say what is wrong on stderr and leave with exit code 2."""
    err.print(f"Error: {InputError(sentence)}", style="red", markup=False, highlight=False, soft_wrap=True)
    raise typer.Exit(BAD_INPUT)


def remark(text: str, quiet: bool) -> None:
    """A line for people, on stderr."""
    if not quiet:
        err.print(printable(text), markup=False, highlight=False, soft_wrap=True)


def named(text: object) -> str:
    """A name from outside as part of what `out.print` is given: neither markup nor a say over the terminal."""
    return escape(printable(text))


def print_json(value: Any) -> None:
    """Exactly one JSON value on stdout."""
    sys.stdout.write(json.dumps(finite(value), allow_nan=False) + "\n")
    sys.stdout.flush()


@dataclass(frozen=True)
class Reading(Capture):
    """How to read a scene file."""

    masks: Masks = None
    time_axis: TimeAxis = None
    transpose_masks: TransposeMasks = False
    scale: Scale = None
    kind: Kind = None
    calibration: CameraFile = None

    def options(self) -> dict[str, Any]:
        """Arguments of `load_scene`."""
        own = {name: getattr(self, name) for name in ("masks", "time_axis", "transpose_masks", "scale")}
        return {**own, "camera": self.kind, **self.capture(), "calibration": self.calibration}

    @property
    def inputs(self) -> tuple[str | Path | None, ...]:
        """The files it names, which no output may replace."""
        return self.masks, self.calibration, *self.frames_read

    def words(self) -> list[str]:
        """The options that give it on a command line."""
        words = []
        for each in fields(self):
            value = getattr(self, each.name)
            if value != each.default:
                option = "--camera" if each.name == "calibration" else f"--{each.name.replace('_', '-')}"
                words += [option] if value is True else [option, str(value)]
        return words


@dataclass(frozen=True)
class Running:
    """How to run a method: the options of `measure`."""

    iterations: Iterations = None
    tol: Tol = None
    device: Device = "cpu"
    seed: Seed = 0


def run_with_bar(
    scene: Scene,
    method: Method,
    running: Running,
    quiet: bool,
    sha: str | None,
    together: bool = False,
    start: Tensor | None = None,
) -> tuple[Solution, Result]:
    """The method on the scene, behind a progress bar."""
    with progress(method, scene, running, quiet) as watcher:
        return measure(scene, method, **vars(running), together=together, start=start, watcher=watcher, sha256=sha)


@contextmanager
def told_anyway(results: list[Result], json: bool) -> Iterator[None]:
    """What was measured is printed even if the block is interrupted or fails: hours may be in it."""
    try:
        yield
    except BaseException:
        if results:
            _show(results, json)
        raise


def conclude(results: list[Result], json: bool) -> None:
    """Print what several runs gave; exit code 3 if any did not converge."""
    _show(results, json)
    if not all(result.converged for result in results):
        raise typer.Exit(NOT_CONVERGED)


def _show(results: list[Result], json: bool) -> None:
    if json:
        print_json([result.to_dict() for result in results])
    else:
        out.print(table(results))


def read_checked(path: Path, reading: Reading, quiet: bool, *, anyway: bool = True) -> Scene:
    """The scene in a file, once the doctor has found nothing that cannot work; his warnings go to stderr.

    anyway: masks that are certainly not where the capture needs them are a warning too.
    """
    from unsnap.doctor import examine

    report = examine(path, must_fit=True, **reading.options())
    warnings = heed_findings(report.findings, path, quiet, anyway)
    if report.scene is None:
        raise InputError(f"{path}: no scene could be read; run `unsnap inspect` on it")
    return replace(report.scene, meta={**report.scene.meta, WARNINGS: warnings})


WARNINGS = "warnings"
"""What the doctor said of a scene, in its `meta`."""


def heed_findings(findings: Sequence[Finding], path: Path, quiet: bool, anyway: bool) -> list[str]:
    """An InputError for what cannot work; warnings are told, and returned."""
    from unsnap.doctor import ALIGNMENT

    serious = [finding for finding in findings if finding.level in ("fatal", "warning")]
    warnings = []
    for finding in sorted(serious, key=lambda finding: finding.level):  # the fatal ones first: others may follow
        remedy = f" Remedy: {_sentence(finding.remedy)}" if finding.remedy else ""
        overruled = anyway and finding.subject == ALIGNMENT
        if finding.level == "fatal" and not overruled:
            name = "" if str(path) in finding.text or path.name in finding.text else f"{path}: "
            remedy += " Or go on with --anyway." if finding.subject == ALIGNMENT else ""
            raise InputError(f"{name}{_sentence(finding.text)}{remedy}")
        warnings.append(f"{finding.subject}: {_sentence(finding.text)}{remedy}")
        remark(f"Warning: {warnings[-1]}", quiet)
    return warnings


def _sentence(text: str) -> str:
    return text if text.endswith((".", "?", "!")) else f"{text}."


ALL = "all"


def parse_methods(names: str) -> list[Method]:
    """`a,b,c`, or `all` that have what they need here -> methods."""
    from unsnap.methods import everything, get

    if names == ALL:
        return [method for method in everything() if method.missing() is None]
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


def serving(methods: list[Method], scenes: Sequence[Scene], names: str, quiet: bool) -> list[Method]:
    """Those that serve every scene, before the first is run: of `all` others are left out, a named one must."""
    served, others = [], []
    for method in methods:
        try:
            for scene in scenes:
                method.check_camera(scene.operator)
            served.append(method)
        except InputError:
            if names != ALL:
                raise
            others.append(method.name)
    if others:
        remark(f"Left out, as they do not serve this camera or size: {', '.join(others)}.", quiet)
    return served


@contextmanager
def progress(method: Method, scene: Scene, running: Running, quiet: bool) -> Iterator[Any]:
    """A bar with the live residual and, where truth is known, PSNR; yields the watcher for `run.measure`."""
    if quiet:
        yield None
        return

    def quality(x: Tensor) -> str:
        truth = scene.truth
        return "" if truth is None else f"PSNR {float(psnr(x[:1].cpu(), truth[:1]).mean()):.2f} dB"

    with bar(f"{scene.meta.get('name', 'scene')} {method.name}", err) as tell:
        ends = running.tol if running.tol is not None else method.tol if method.early else None
        yield None if tell is None else watcher(tell, running.iterations or method.iterations, quality, ends)
