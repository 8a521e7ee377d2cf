"""Where the hours of training go, and what a cache, a second process or torch.compile could save.

    python benchmarks/training_costs.py [--batch 4] [--crop 64] [--compile] [--json PATH]

CPU-seconds of one batch of rendered clips, 8 frames, and of one step of the default network (three iterations).
A batch serves (age + 1) / (2 unroll) + 1/2 steps. "share" is the part of a run that its starts take; a cache
divides it by 16, and a second process can hide it, on a core of its own, but never more. --compile measures one forward
and backward pass of the network with torch.compile and without (it compiles for minutes).
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import torch

from common import cpu_seconds, finish, show
from unsnap.fixed_point import unroll
from unsnap.models import STARTS, Batch, Equilibrium, Learning
from unsnap.training import preset
from unsnap.training.clips import Clips, rendered_clips
from unsnap.training.coding import code

LIVES = {"age 12, unroll 2 (refining)": (12, 2), "age 90, unroll 3 (alone)": (90, 3)}


def coded(clips: Clips, batch: int, crop: int) -> Batch:
    generator = torch.Generator().manual_seed(0)
    return code(clips.draw(batch, 8, crop, generator), 0.0, generator)


def one_step(model: Equilibrium, batch: Batch) -> None:
    model.zero_grad(set_to_none=True)
    model.loss(batch, Learning(backward=unroll(3))).value.backward()  # type: ignore[no-untyped-call]


def compiled(model: Equilibrium, batch: Batch) -> dict[str, float]:
    network, x = model.network, batch.truth.clone()

    def passes(net: Any) -> None:
        net(x, 0.02).square().mean().backward()

    clock = time.process_time()
    fast = torch.compile(network)
    passes(fast)
    began = time.process_time() - clock
    plain, quick = (cpu_seconds(lambda net=net: passes(net), 5) for net in (network, fast))
    return {"plain CPU-s": plain, "compiled CPU-s": quick, "ratio": plain / quick, "compiling CPU-s": began}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--crop", type=int, default=64)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    config = preset("de-gap", steps=1, settings={"context": False}, sigma=0.02, start="least_squares")
    model = config.model()
    if not isinstance(model, Equilibrium):
        raise SystemExit("de-gap is an equilibrium")
    clips = rendered_clips(2)
    batch = coded(clips, options.batch, options.crop)
    coding = cpu_seconds(lambda: coded(clips, options.batch, options.crop), 2)
    begun = batch.started(model)
    step = cpu_seconds(lambda: one_step(model, begun), 2)
    rows = []
    for name in ("least_squares", "total_variation", "low_rank", "annealed"):
        start = STARTS.find(name)()
        cost = cpu_seconds(lambda start=start: start(batch.y, batch.phi), 2)
        for lives, (age, through) in LIVES.items():
            uses = (age + 1) / (2 * through) + 0.5
            rest = uses * step * through / 3
            rows.append({
                "start": name, "lives": lives, "start CPU-s": cost, "step CPU-s": step * through / 3, "steps": uses,
                "share %": 100 * cost / (cost + rest), "with a cache %": 100 * cost / (cost + 16 * rest),
            })  # fmt: skip
    show(f"{options.batch} samples of 8 x {options.crop}²; cutting and coding {coding:.3f} CPU-s", rows)
    results: dict[str, Any] = {"rows": rows}
    if options.compile:
        results["compile"] = compiled(model, batch)
        show("torch.compile, one forward and backward pass", [results["compile"]])
    finish(options.json, results)


if __name__ == "__main__":
    main()
