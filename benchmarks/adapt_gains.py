"""Where `adapt` gains and where not: clips behind cameras that the model was trained for, and behind others.

    python benchmarks/adapt_gains.py ../shared/data/val [--model de-gap] [--steps 100] [--minutes M] [--clips 3]
        [--rate 3e-5] [--cameras sparse] [--json PATH]

The middle 96 x 96 of the first frames of each clip. "PSNR" is of the same windows before and after, from all pixels:
what the verdict ("helped") was to predict without knowing it. A verdict is right if it helped and PSNR rose by 0.05 dB
or more, or if it did not help and PSNR rose by less; "wrong" marks the two others.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from common import console, finish, show
from unsnap import masks, zoo
from unsnap.io import read_video
from unsnap.scene import Scene
from unsnap.simulate import gaussian, simulate
from unsnap.training.adapt import RATE, adapt

Masks = Callable[[torch.Generator], Tensor]
SIDE = 96
CAMERAS: dict[str, tuple[Masks, float]] = {
    "0/1 masks": (lambda g: masks.bernoulli(8, SIDE, SIDE, generator=g), 0.0),
    "0/1 masks, noise 0.1": (lambda g: masks.bernoulli(8, SIDE, SIDE, generator=g), 0.1),
    "sparse masks (10 % open)": (lambda g: masks.bernoulli(8, SIDE, SIDE, p=0.1, generator=g), 0.0),
    "blurred grey masks": (lambda g: masks.gray(8, SIDE, SIDE, blur=1.2, generator=g), 0.0),
}


def scenes(folder: Path, count: int) -> dict[str, Tensor]:
    found = {}
    for path in sorted(folder.iterdir())[:count]:
        clip = read_video(path)
        top, left = (clip.shape[1] - SIDE) // 2, (clip.shape[2] - SIDE) // 2
        found[path.stem] = clip[:8, top : top + SIDE, left : left + SIDE].contiguous()
    return found


def one(model: str, scene: Scene, **limits: Any) -> dict[str, Any]:
    clock = time.process_time()
    _, facts = adapt(zoo.equilibrium(model), scene, **limits)
    rise = (facts.psnr_after or 0.0) - (facts.psnr_before or 0.0)
    return {
        "held out %": f"{100 * facts.held_out_before:.2f} → {100 * facts.held_out_after:.2f}",
        "dB": round(facts.gain, 2),
        "worst split": round(min(facts.gains), 2),
        "p": facts.chance,
        "flaw": "unsettled" if facts.unsettled else "forgetful" if facts.forgetful else "",
        "helped": "yes" if facts.helped else "no",
        "PSNR": f"{facts.psnr_before:.2f} → {facts.psnr_after:.2f}",
        "wrong": "" if facts.helped == (rise >= 0.05) else "wrong",
        "steps": facts.steps,
        "seconds": round(facts.seconds, 1),
        "CPU-s": round(time.process_time() - clock, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", default="de-gap")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--rate", type=float, default=RATE)
    parser.add_argument("--clips", type=int, default=3)
    parser.add_argument("--cameras", default="", help="only those with this word in their name")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    limits = {"steps": options.steps} if options.minutes is None else {"minutes": options.minutes}
    limits |= {"rate": options.rate}
    cameras = {name: camera for name, camera in CAMERAS.items() if options.cameras in name}
    rows = []
    for title, video in scenes(options.folder, options.clips).items():
        for camera, (draw, noise) in cameras.items():
            generator = torch.Generator().manual_seed(0)
            scene = simulate(video, draw(generator), noise=gaussian(noise), generator=generator)
            rows.append({"clip": title[:14], "camera": camera, **one(options.model, scene, **limits)})
            console.print(rows[-1])
    show(f"{options.model}, {limits}", rows)
    finish(options.json, rows)


if __name__ == "__main__":
    main()
