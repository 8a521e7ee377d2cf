"""PSNR of the default and of shipped models against GAP-TV, away from 8 frames of 256 pixels and 0/1 masks.

python benchmarks/zoo_conditions.py                                   # rendered scenes: runs anywhere
python benchmarks/zoo_conditions.py --clips ../shared/data/val        # real clips, where they are long and large enough
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from unsnap import masks as mask_sets
from unsnap.io import read_video
from unsnap.methods import get
from unsnap.metrics import psnr
from unsnap.operators import Snapshot
from unsnap.simulate import render


@dataclass(frozen=True)
class Condition:
    name: str
    frames: int = 8
    height: int = 256
    width: int = 256
    masks: str = "bernoulli"
    density: float = 0.5
    noise: float = 0.0


CONDITIONS = (
    Condition("T = 8, 256×256"),
    Condition("T = 4", frames=4),
    Condition("T = 10", frames=10),
    Condition("T = 14", frames=14),
    Condition("T = 24", frames=24),
    Condition("180×240", height=180, width=240),
    Condition("511×333", height=511, width=333),
    Condition("1080×1920", height=1080, width=1920),
    Condition("grey masks", masks="gray"),
    Condition("sparse masks (20 % open)", density=0.2),
    Condition("one mask, shifted", masks="shifted"),
    Condition("noise 0.01", noise=0.01),
    Condition("noise 0.05", noise=0.05),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", default="gap-tv,gap-wnnm,de-gap")
    parser.add_argument("--clips", type=Path)
    parser.add_argument("--largest", type=int, default=4096 * 4096, help="pixels of a frame; what has more is left out")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    names = options.methods.split(",")
    rows = []
    if not options.json:
        print(f"{'condition':28}" + "".join(f"{name:>28}" for name in names))
    for condition in (c for c in CONDITIONS if c.height * c.width <= options.largest):
        scenes = list(videos(condition, options.clips))
        results = {name: measure(name, condition, scenes) for name in names if scenes}
        rows.append({"condition": condition.name, "scenes": len(scenes), **results})
        if not options.json:
            print(f"{condition.name:28}" + "".join(_cell(results[name]) for name in results) or "  no clip fits")
    if options.json:
        print(json.dumps(rows, indent=2))


def _cell(result: dict[str, float]) -> str:
    text = f"{result['psnr']:.2f} dB {result['cpu_seconds']:6.1f} s"
    return f"{text if result['converged'] else text + ' !':>28}"


def videos(condition: Condition, clips: Path | None) -> list[Tensor]:
    """One video of the condition's size per clip that is large and long enough, or two rendered ones."""
    size = (condition.frames, condition.height, condition.width)
    if clips is None:
        return [render(*size, seed=seed) for seed in (11, 12)[: 1 if condition.height > 1000 else 2]]
    found = [read_video(path) for path in sorted(clips.iterdir())]
    fits = [v for v in found if all(a >= b for a, b in zip(v.shape, size, strict=True))]
    return [v[: size[0], : size[1], : size[2]].contiguous() for v in fits]


def measure(name: str, condition: Condition, scenes: list[Tensor]) -> dict[str, float]:
    """Means over the scenes; the masks and the noise are the same for every method."""
    generator = torch.Generator().manual_seed(0)
    method, scores, spent, converged = get(name), [], 0.0, True
    for video in scenes:
        phi = Snapshot(_masks(condition, generator))
        y = phi.A(video)
        y = y + condition.noise * torch.randn(y.shape, generator=generator)
        start = time.process_time()
        solution = method(y, phi)
        spent += time.process_time() - start
        scores.append(float(psnr(solution.x, video).mean()))
        converged &= bool(solution.converged.all())
    count = len(scenes)
    return {"psnr": sum(scores) / count, "cpu_seconds": spent / count, "converged": float(converged)}


def _masks(condition: Condition, generator: torch.Generator) -> Tensor:
    size = (condition.frames, condition.height, condition.width)
    if condition.masks == "gray":
        return mask_sets.gray(*size, generator=generator)
    make = mask_sets.shifted if condition.masks == "shifted" else mask_sets.bernoulli
    return make(*size, p=condition.density, generator=generator)


if __name__ == "__main__":
    main()
