"""unsnap adapt: a model made better at one capture, without knowing its truth."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from unsnap import zoo
from unsnap.cli import common
from unsnap.cli.common import Reading, named, out, print_json, read_checked
from unsnap.cli.learning import alone, display
from unsnap.errors import InputError
from unsnap.io import claim_output, sha256
from unsnap.io.lock import file_lock
from unsnap.models import save
from unsnap.run import resolve_device
from unsnap.training.adapt import RATE, STEPS, adapt
from unsnap.training.verdict import SURE, WORTH, Facts


def command(
    file: common.File,
    model: Annotated[
        str, typer.Option("--model", help="The model to adapt: a shipped one, or a model file (.safetensors).")
    ] = "de-gap",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Model file to write, if it helped. Default: FILE-MODEL.safetensors here.",
            show_default=False,
        ),
    ] = None,
    reading: Reading = Reading(),
    steps: Annotated[
        int | None,
        typer.Option(
            min=1, help=f"Steps at most. Default: {STEPS}, or fewer when nothing is gained.", show_default=False
        ),
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(min=0.01, help="Minutes that it takes, the verdict included.", show_default=False)
    ] = None,
    rate: Annotated[float, typer.Option(min=1e-9, max=0.1, help="Learning rate of Adam.")] = RATE,
    device: common.Device = "cpu",
    seed: common.Seed = 0,
    force: common.Force = False,
    json: common.Json = False,
    quiet: common.Quiet = False,
) -> None:
    """Fine-tune a model on the snapshot(s) in FILE by predicting measurements that are hidden from it.

    Of the pixels 15 % are put aside for good: some say when to stop, the others, by a paired test, whether it helped.
    Only if it did, a model file is written, for `--method`. Exit code 0 in both cases.

    Examples:

      unsnap adapt capture.mat -o adapted.safetensors

      unsnap reconstruct capture.mat --method adapted.safetensors

      unsnap adapt meas.mat --masks mask.mat --model mine.safetensors --minutes 10 --json
    """  # fmt: skip
    target = output or Path(f"{file.stem}-{Path(model).stem}.safetensors")
    claim_output(target, (".safetensors",), inputs=(file, *reading.inputs, model), force=force)
    options: dict[str, Any] = {"steps": steps, "minutes": minutes, "rate": rate, "seed": seed}
    with alone(file_lock(target), target, quiet):
        original = zoo.equilibrium(model)
        scene = read_checked(file, reading, quiet)
        with display("solving", _told, quiet) as report:
            try:
                adapted, facts = adapt(original, scene, **options, device=resolve_device(device), report=report)
            except InputError as error:
                raise InputError(f"{model} cannot be adapted to {file}: {error}") from error
        if facts.helped:
            about = {"capture": file.name, "capture_sha256": sha256(file), "model": Path(model).name, **options}
            about |= {"held_out_before": facts.held_out_before, "held_out_after": facts.held_out_after}
            adapted.about = {**original.about, "adapted": about}
            save(target, adapted, overwrite=force)
    if json:
        kept = "adapted" if facts.helped else "original"
        written = str(target) if facts.helped else None
        print_json({"model": model, "scene": str(file), "kept": kept, "output": written, **facts.to_dict()})
    else:
        out.print(summary(facts, model, target), highlight=False, soft_wrap=True)


def summary(facts: Facts, model: str, target: Path) -> str:
    """Two or three lines for people, and nothing claimed that was not measured."""
    before, after = 100 * facts.held_out_before, 100 * facts.held_out_after
    lines = [f"[bold]{named(model)}[/]: {facts.steps} steps in {facts.seconds:.0f} s; {facts.stopped}"]
    error = f"the error on pixels never seen went from {before:.2f} % to {after:.2f} % of the measurement"
    worst = f"{min(facts.gains):+.2f} in the worst of {len(facts.gains)} splits"
    test = f"{facts.gain:+.2f} dB, {worst}, p = {facts.chance:.2g}"
    if facts.helped:
        lines.append(f"It helped: {error} ({test}). Wrote [bold]{named(target)}[/]")
    elif facts.best_step == 0:
        lines.append(f"It did not help: no weights beat the original ones ({before:.2f} %). Nothing was written")
    elif facts.chance > SURE:
        lines.append(f"It did not help: {error}, which may be chance ({test}). Nothing was written")
    elif min(facts.gains) <= 0:
        lines.append(f"It did not help: {error}, but not in every split of the pixels ({test}). Nothing was written")
    elif facts.gain < WORTH:
        lines.append(f"It did not help enough: {error} ({test}; {WORTH:g} dB count). Nothing was written")
    else:
        lines.append(
            f"It did not help: pixels never seen are predicted better ({before:.2f} → {after:.2f} %), but "
            f"{_flaw(facts)}. Nothing was written"
        )
    if facts.psnr_before is not None and facts.psnr_after is not None:
        lines.append(
            f"PSNR, as the file knows the truth (not used): {facts.psnr_before:.2f} → {facts.psnr_after:.2f} dB"
        )
    return "\n".join(lines)


def _flaw(facts: Facts) -> str:
    if facts.unsettled:
        return f"it comes to rest less exactly (residual {facts.residual_before:.1e} → {facts.residual_after:.1e})"
    return (
        "from all pixels it finds a video again less well "
        f"(error {facts.recoding_before:.4f} → {facts.recoding_after:.4f})"
    )


def _told(facts: dict[str, Any]) -> str | dict[str, Any]:
    if "held_out" in facts:
        was, now = 100 * facts["before"], 100 * facts["held_out"]
        return f"step {facts['step']}: held-out error {now:.2f} % (before: {was:.2f} %)"
    text = f"step {facts['step']}  loss {facts['loss']:.4f}"
    return {"description": "adapting", "completed": facts["progress"], "total": 1.0, "text": text}
