"""Which gradient makes an equilibrium? The same weights, the same CPU-minutes, five ways to differentiate.

    python benchmarks/ablation.py CLIPS VALIDATION --minutes 30 [--init run/best.safetensors] [--model de-gap]
        [--set settings.context=false --set start=total_variation --set sigma=0.02] [--unroll 3]
        [--modes unroll,jfb,phantom,neumann,implicit] [--json PATH]

Every run begins with the same weights (--init, or the same random ones); "unroll" learns through --unroll recorded
iterations from the pool all the time, the others at the equilibrium from the first step to the last (phantom and
Neumann with --unroll terms). Minutes are of processor time, training alone: what costs more per step takes fewer.
The scores are those of the run's own validation (96 x 96 windows of VALIDATION) at its end, of the running mean of the
weights; "begin" is before any step. CLIPS and VALIDATION may be "-": rendered clips.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from common import console, finish, show
from unsnap.training import Trainer, preset
from unsnap.training.presets import parse_changes
from unsnap.training.validate import validate

MODES = ("unroll", "jfb", "phantom", "neumann", "implicit")
SCORES = ("psnr_5", "psnr_20", "psnr_80", "psnr_fixed", "residual", "psnr_other", "apart")


def scored(trainer: Trainer) -> dict[str, float]:
    scores = validate(trainer.mean, trainer.views)
    return {name: scores[name] for name in SCORES}


def learn(mode: str, folder: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """The row of this mode, after one of the weights it began with."""
    changes = parse_changes(options.change)
    clips, validation = (None if str(path) == "-" else str(path) for path in (options.clips, options.validation))
    changes |= {"clips": clips, "validation": validation, "init": options.init, "unroll": options.unroll}
    changes |= {"minutes": 1e6, "validate_every": 10**9, "checkpoint_every": 10**9}  # the stopwatch below decides
    changes |= {"implicit": 0.0} if mode == "unroll" else {"implicit": 1.0, "gradient": mode}
    trainer = Trainer(preset(options.model, **changes), folder)
    begin = scored(trainer)
    worked = 0.0
    while worked < 60 * options.minutes:
        clock = time.process_time()
        trainer.one_step(min(1.0, worked / (60 * options.minutes)))
        worked += time.process_time() - clock
    facts = {"steps": trainer.step, "skipped": trainer.skipped, "CPU-min": worked / 60}
    return [
        {"gradient": "begin", "steps": 0, "skipped": 0, "CPU-min": 0.0, **begin},
        {"gradient": f"unrolled {options.unroll}" if mode == "unroll" else mode, **facts, **scored(trainer)},
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clips", type=Path)
    parser.add_argument("validation", type=Path)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--model", default="de-gap")
    parser.add_argument("--init")
    parser.add_argument("--unroll", type=int, default=3)
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--set", dest="change", action="append", default=[])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for mode in options.modes.split(","):
            found = learn(mode, Path(folder) / mode, options)
            rows += found[1:] if rows else found
            console.print(rows[-1])
    show(f"{options.model}, {options.minutes:g} CPU-minutes each", rows, best="psnr_fixed")
    finish(options.json, rows)


if __name__ == "__main__":
    main()
