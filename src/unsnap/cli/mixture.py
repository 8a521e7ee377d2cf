"""unsnap train --model gmm: not by gradient steps but by expectation maximisation."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from unsnap.cli.common import err, named, out, print_json, remark
from unsnap.cli.learning import alone
from unsnap.errors import InputError
from unsnap.io import claim_output
from unsnap.io.lock import folder_lock
from unsnap.models import save
from unsnap.priors import GMM
from unsnap.priors.gmm import Mixture
from unsnap.training.clips import Clips, read_clips, rendered_clips
from unsnap.training.mixture import MixtureConfig, fit

_USED = ("clips", "seed", "settings", "minutes", "steps")


def train_mixture(changes: dict[str, Any], output: Path | None, force: bool, json: bool, quiet: bool) -> None:
    """Draw patches of the clips, fit a mixture, write RUN/best.safetensors; an interruption leaves nothing."""
    unused = [name for name in changes if name not in _USED]
    if unused:
        raise InputError(
            f"{unused[0]} has no effect on --model gmm; leave it out (its settings are --set settings.components=32, …)"
        )
    settings = dict(changes.get("settings", {}))
    if changes.get("steps"):
        settings["iterations"] = changes["steps"]
    config, seed = MixtureConfig.of(settings), int(changes.get("seed", 0))
    target = (output or Path("run")) / "best.safetensors"
    claim_output(target, (".safetensors",), inputs=(changes.get("clips"),), force=force)
    with alone(folder_lock(target.parent), target.parent, quiet):
        clips, mixture, about = _fitted(changes, config, seed, quiet)
        save(target, GMM(mixture, about=about), overwrite=force)
    if json:
        print_json({"run": str(target.parent), "model": str(target), "skipped_videos": clips.skipped, **about})
        return
    facts = f"{config.components} components from {config.patches} patches in {about['minutes']:.1f} minutes"
    out.print(f"[bold]{named(target.parent)}[/]: {facts}", highlight=False, soft_wrap=True)
    remark(f"Next: unsnap reconstruct capture.mat --method {target}", quiet)


def _fitted(
    changes: dict[str, Any], config: MixtureConfig, seed: int, quiet: bool
) -> tuple[Clips, Mixture, dict[str, Any]]:
    """The clips, the mixture of their patches, and what is to be known about it."""
    clock, generator = time.monotonic(), torch.Generator().manual_seed(seed)
    likelihoods: list[float] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True, disable=quiet or not err.is_terminal) as bar:
        task = bar.add_task("reading", total=None)
        clips = _clips(changes.get("clips"), config, lambda k, n: bar.update(task, completed=k, total=n))
        _say_skipped(clips, quiet)
        bar.reset(task, description="fitting", total=config.iterations)

        def report(k: int, likelihood: float) -> None:
            likelihoods.append(likelihood)
            remark(f"iteration {k}: log-likelihood {likelihood:.3f} per patch", quiet)
            bar.update(task, completed=k)

        patches = clips.draw(config.patches, config.frames, config.patch, generator)
        seconds = 60 * float(changes.get("minutes") or "inf")
        mixture = fit(patches, config, generator, seconds=seconds, report=report)
    minutes = (time.monotonic() - clock) / 60
    about = {**vars(config), "seed": seed, "clips": len(clips.videos), "minutes": minutes, "likelihoods": likelihoods}
    return clips, mixture, about


def _clips(folder: str | None, config: MixtureConfig, progress: Any) -> Clips:
    if folder is None:
        return rendered_clips()
    return read_clips(folder, progress=progress)


def _say_skipped(clips: Clips, quiet: bool) -> None:
    for path, reason in clips.skipped.items():
        remark(f"Skipped {path}: {reason.removeprefix(path).strip()}", quiet)
