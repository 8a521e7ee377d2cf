"""unsnap train: a folder of videos in, a model file out."""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import torch
import typer

from unsnap import zoo
from unsnap.cli import common
from unsnap.cli.common import NOT_CONVERGED, named, out, print_json, remark
from unsnap.cli.learning import alone, display
from unsnap.cli.mixture import train_mixture
from unsnap.cli.signals import SIGNALS, leave_terminal
from unsnap.errors import InputError
from unsnap.io import claim_output
from unsnap.io.checks import existing, read_text
from unsnap.io.lock import folder_lock
from unsnap.plugins import LOADED
from unsnap.run import resolve_device
from unsnap.training import DATASETS, LOSSES, PRESETS, Config, Trainer, checkpoint, preset, resume
from unsnap.training.clips import MAX_FRAMES
from unsnap.training.log import gain_per_hour
from unsnap.training.presets import changed, parse_changes
from unsnap.training.sources import known
from unsnap.training.world import elastic, leave, restarted

_MINUTES = 10.0


def command(
    clips: Annotated[
        Path | None,
        typer.Argument(help="Folder of videos: mp4, avi, gif, npz, frame folders. None: rendered.", show_default=False),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Run directory. Default: run, or the resumed one.")
    ] = None,
    validation: Annotated[
        Path | None, typer.Option(help="Folder of videos to judge by. Default: one clip in ten is held out.")
    ] = None,
    masks: Annotated[
        Path | None, typer.Option(help="Train for one camera: windows of the masks in this capture.")
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(help="A plug-in's videos: its name, or FILE.py:OBJECT.", show_default=False)
    ] = None,
    loss: Annotated[
        str | None, typer.Option(help="A plug-in's loss: its name, or FILE.py:FUNCTION.", show_default=False)
    ] = None,
    cache: Annotated[
        float | None,
        typer.Option(min=0, help="Gigabytes for samples to use again, mirrored and turned.", show_default=False),
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(min=0.01, help=f"Minutes to train; when resuming: more. Default: {_MINUTES:g}.")
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Steps to train; when resuming: more.")] = None,
    model: Annotated[
        str | None,
        typer.Option(help=f"One of {', '.join(PRESETS)} or gmm. Default: de-gap.", show_default=False),
    ] = None,
    network: Annotated[
        str | None,
        typer.Option(help="Another architecture: shift, unet, rnn, certified, cnn, dncnn, ffdnet …"),
    ] = None,
    init: Annotated[
        str | None, typer.Option(help="Begin with the weights of this model file, or name in the zoo.")
    ] = None,
    change: Annotated[
        list[str] | None, typer.Option("--set", help="Any setting of the config, as key=value; may be repeated.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="Start anew from this config.json of an earlier run.")] = None,
    continued: Annotated[
        Path | None, typer.Option("--resume", help="Go on from this run directory or checkpoint.")
    ] = None,
    pack: Annotated[
        Path | None, typer.Option(help="With --resume: only write its checkpoint, made small, to this .pt file.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of everything random. Default: 0.")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads. Default: all cores.")] = None,
    device: common.Device = "cpu",
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Curves and pictures in RUN/tensorboard.")] = False,
    force: common.Force = False,
    json: common.Json = False,
    quiet: common.Quiet = False,
) -> None:
    """Train a model on a folder of videos (or on rendered ones), and keep it as RUN/best.safetensors.

    RUN/checkpoint.pt is written again and again: after a crash, kill or Ctrl-C, --resume goes on from there, bit for
    bit as if nothing had happened. RUN/config.json decides the whole run; RUN/log.jsonl tells how it went. Ctrl-C and
    other signals end it after the current step, with a checkpoint. Nobody else can train in RUN meanwhile.

    Examples:

      unsnap train clips/ -o run --minutes 60

      unsnap train --minutes 5 --model denoiser --set batch=4 --set crop=48

      unsnap train clips/ -o run --init denoiser --set gaussian=0 --minutes 60

      unsnap train clips/ -o run --set start=annealed --cache 2 --minutes 60

      unsnap train -o run --dataset mine.py:Videos --loss mine.py:absolute --minutes 60

      unsnap train clips/ -o mixture --model gmm --set settings.components=32

      unsnap train --resume run --minutes 60

      unsnap train --config run/config.json -o again

      torchrun --nproc-per-node 2 -m unsnap train clips/ -o run --steps 20000

      torchrun --nnodes 2 --nproc-per-node 1 --max-restarts 5 --rdzv-backend c10d --rdzv-endpoint host:29400
      --rdzv-id 1 -m unsnap train clips/ -o run --steps 20000
    """
    if threads is not None:
        torch.set_num_threads(threads)
    changes = parse_changes(change or [])
    changes |= {
        k: str(v) for k, v in (("clips", clips), ("validation", validation), ("masks", masks), ("init", init)) if v
    }
    changes |= {} if cache is None else {"cache": cache}
    changes |= {} if dataset is None else {"dataset": known(DATASETS, dataset)}
    changes |= {} if loss is None else {"loss": known(LOSSES, loss)}
    if init is not None:
        existing(zoo.path_of(init))  # before minutes of reading or rendering clips
    if pack is not None:
        _pack(continued, pack, changes, force, json)
        return
    if model == "gmm":
        others = {"--resume": continued, "--config": config, "--network": network, "--init": init}
        ignored = {
            "--dataset": dataset,
            "--loss": loss,
            "--cache": cache,
            "--validation": validation,
            "--masks": masks,
            "--device": None if device == "cpu" else device,
        }
        _refuse_together("--model gmm", {**others, **ignored, "--tensorboard": tensorboard or None})
        given = {k: v for k, v in (("seed", seed), ("minutes", minutes), ("steps", steps)) if v is not None}
        train_mixture({**changes, **given}, output, force, json, quiet)
        return
    if continued is not None:
        _refuse_together(
            "--resume", {"--model": model, "--network": network, "--config": config, "--seed": seed, "--init": init}
        )
    elif config is not None:
        _refuse_together("--config", {"--model": model, "--network": network})
    first = os.environ.get("RANK", "0") == "0"  # the processes of torchrun are one run, and its first one has the lock
    folder = output or (Path("run") if continued is None else checkpoint.find(continued).parent)
    held = alone(folder_lock(folder), folder, quiet) if first else nullcontext()
    with held, display("reading", _told, quiet or not first) as report:
        options: dict[str, Any] = {"report": report, "tensorboard": tensorboard, "force": force}
        options["device"] = resolve_device(device)
        if restarted(folder, options["device"]):
            trainer = resume(folder, **options)  # its config holds all that was asked for
        elif continued is not None:
            trainer = resume(continued, output, more_minutes=minutes, more_steps=steps, changes=changes, **options)
            if trainer.progress >= 1 and (trainer.validated or not trainer.goes_on):
                raise InputError(f"{continued} is at its end; say how much more to train with --minutes or --steps")
        else:
            changes |= {} if seed is None else {"seed": seed}
            changes |= {"minutes": minutes, "steps": steps} if minutes or steps else {}
            start = _from_file(config, changes) if config else _new(model, network, changes)
            trainer = Trainer(start, folder, inputs=(config,), **options)
        _say_unused(trainer, quiet)
        with _stoppable(trainer, quiet) as stopped, elastic(folder, trainer.save, first) as over:
            trainer.run()
            if not stopped:  # perhaps by torchrun, which is going to start us again
                over()
    leave()
    if trainer.world.first:
        _conclude(trainer, json, quiet)
    if stopped:
        raise typer.Exit(128 + stopped[0])
    if trainer.step and trainer.skipped >= trainer.step:
        remark(
            "Nothing was learned: no batch had a finite gradient. Check the loss, or lower --set rate=…", quiet=False
        )
        raise typer.Exit(NOT_CONVERGED)


def _new(model: str | None, network: str | None, changes: dict[str, Any]) -> Config:
    if changes.get("minutes") is None and changes.get("steps") is None:
        changes = {**changes, "minutes": _MINUTES}
    return preset(model, network, **changes)


def _from_file(path: Path, changes: dict[str, Any]) -> Config:
    return changed(Config.from_json(read_text(path, "the config of a run"), str(path)), changes)


def _refuse_together(first: str, others: dict[str, Any]) -> None:
    given = [name for name, value in others.items() if value is not None]
    if given:
        raise InputError(f"{given[0]} cannot be combined with {first}, which decides it; leave one of them out")


def _pack(source: Path | None, target: Path, changes: dict[str, Any], force: bool, json: bool) -> None:
    if source is None:
        raise InputError("--pack needs a checkpoint to make small; name it with --resume RUN")
    found = checkpoint.find(source)
    claim_output(target, (".pt",), inputs=(found,), force=force)
    checkpoint.pack(found, target, changes, overwrite=force)
    size = target.stat().st_size
    if json:
        print_json({"checkpoint": str(target), "bytes": size})
    else:
        out.print(f"Wrote [bold]{named(target)}[/] ({size / 1e6:.1f} MB)", highlight=False)


def _told(facts: dict[str, Any]) -> str | dict[str, Any]:
    if "validation" in facts:
        return validation_line(facts["validation"])
    if "videos" in facts:
        return {"description": "reading", "completed": facts["reading"], "total": facts["videos"]}
    text = f"step {facts['step']}  loss {facts['loss']:.4f}  skipped {facts['skipped']}"
    return {"description": "training", "completed": facts["progress"], "total": 1.0, "text": text}


def validation_line(facts: dict[str, Any]) -> str:
    """One line for people."""
    scores = {k: v for k, v in facts.items() if k not in ("step", "minutes", "skipped", "cpu_hours")}
    said = ", ".join(f"{k} {'not finite' if v is None else f'{v:.4g}'}" for k, v in scores.items())
    return f"step {facts['step']}, {facts['minutes']:g} min: {said}"


def _say_unused(trainer: Trainer, quiet: bool) -> None:
    if trainer.shortened and trainer.world.first:
        some = ", ".join(trainer.shortened[:3]) + (", …" if len(trainer.shortened) > 3 else "")
        remark(
            f"Of {len(trainer.shortened)} long videos ({some}) only the beginning is used, {MAX_FRAMES} frames at "
            "most; cut them into several files to use more.",
            quiet,
        )
    if not trainer.unused or not trainer.world.first:
        return
    remark(f"Skipped {len(trainer.unused)} videos:", quiet)
    for path, reason in trainer.unused.items():
        remark(f"  {path}: {reason.removeprefix(path).strip()}", quiet)


@contextmanager
def _stoppable(trainer: Trainer, quiet: bool) -> Iterator[list[int]]:
    """Ctrl-C, a scheduler's SIGTERM or a closed terminal end the run after this step; a second Ctrl-C at once.

    Yields the list in which the signals will be that came.
    """
    seen: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        if trainer.stopping and number == signal.SIGINT:
            raise KeyboardInterrupt
        trainer.stop()
        seen.append(number)
        leave_terminal()
        if trainer.world.first:
            remark("Stopping after this step …", quiet)

    heeded = [number for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, handle) for number in heeded}
    try:
        yield seen
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _conclude(trainer: Trainer, json: bool, quiet: bool) -> None:
    best = trainer.folder / "best.safetensors"
    last = trainer.log.lines[-1] if trainer.log.lines else None
    gain = gain_per_hour(trainer.log.lines)
    facts = {
        "run": str(trainer.folder),
        "model": str(best) if best.is_file() else None,
        "checkpoint": str(trainer.folder / checkpoint.NAME),
        "step": trainer.step,
        "minutes": trainer.elapsed / 60,
        "best": trainer.best,
        "gain_per_hour": gain,
        "validation": last,
        "skipped_batches": trainer.skipped,
        "skipped_videos": trainer.unused,
        "interrupted": trainer.stopping,
    }
    if json:
        print_json(facts)
    else:
        quality = f"{trainer.best:.2f} dB at best" if best.is_file() else "not validated yet"
        out.print(
            f"[bold]{named(trainer.folder)}[/]: {trainer.step} steps in {trainer.elapsed / 60:.1f} minutes, "
            f"{trainer.skipped} batches skipped; {quality}"
            + ("" if gain is None else f"; gain per further CPU-hour, if it goes on like this: {gain:+.2f} dB"),
            highlight=False,
            soft_wrap=True,
        )
    if trainer.stopping:
        remark(f"Stopped; go on with: unsnap train --resume {trainer.folder}", quiet)
    elif facts["model"]:
        also = "".join(f" --plugin {shlex.quote(name)}" for name in LOADED)
        remark(f"Next: unsnap reconstruct capture.mat --method {shlex.quote(str(best))}{also}", quiet)
