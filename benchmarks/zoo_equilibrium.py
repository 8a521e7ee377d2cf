"""Is the equilibrium real, and is there only one? The same model from three starts, and with ten times the work.

    python benchmarks/zoo_equilibrium.py --clips ../shared/data/val --models run/best.safetensors,de-gap
        [--side 256] [--tol 1e-4] [--most 400] [--work 10] [--json PATH]          # without --clips: rendered scenes

From the least-squares video, from total variation (the start of gap-tv3d) and from the low-rank video of gap-wnnm, each
until the residual is at most --tol: PSNR, evaluations and CPU-seconds (without the start itself), and by how much the
three ends differ, at --tol: a small one, such as 1e-6, tells whether they go to one equilibrium, that of the shipped
model where each of them stops. Then the change of PSNR, from the model's own start, with --work times the evaluations.
A model that is told its start (guided) is told its own one in all cases: what changes is where the iteration begins.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from common import finish
from unsnap.io import read_video
from unsnap.masks import bernoulli
from unsnap.metrics import psnr
from unsnap.models import Annealed, Equilibrium, LeastSquares, TotalVariation
from unsnap.operators import Snapshot
from unsnap.simulate import render
from unsnap.zoo import equilibrium

STARTS = {"least squares": LeastSquares(), "tv": TotalVariation(), "low rank": Annealed()}


def judged(model: Equilibrium, video: Tensor, phi: Snapshot, tol: float, most: int, work: int) -> dict[str, Any]:
    y = phi.A(video)
    own = model.started(y, phi)
    starts: dict[str, dict[str, Any]] = {}
    ends = []
    for name, start in STARTS.items():
        begin = start(y, phi)
        clock = time.process_time()
        found = model(y, phi, start=own, state=begin, tol=tol, max_iter=most)
        starts[name] = {
            "psnr": float(psnr(found.x, video).mean()), "evaluations": found.evaluations,
            "converged": bool(found.converged.all()), "cpu_seconds": time.process_time() - clock,
        }  # fmt: skip
        ends.append(found.x)
    first = model(y, phi, start=own, tol=tol, max_iter=most)
    longer = (
        first
        if work == 1
        else model(y, phi, start=own, state=first.state, tol=0.0, max_iter=(work - 1) * first.evaluations)
    )
    scores = [each["psnr"] for each in starts.values()]
    return {
        "own_start": float(psnr(own, video).mean()),
        "starts": starts,
        "differ": max(scores) - min(scores),
        "apart": max(float((x - ends[0]).norm() / ends[0].norm()) for x in ends[1:]),
        "work": work,
        "more_work": float((psnr(longer.x, video) - psnr(first.x, video)).mean()),
        "residual": [float(first.final.max()), float(longer.final.max())],
    }


def told(title: str, row: dict[str, Any]) -> str:
    ends = ", ".join(
        f"{name} {each['psnr']:.2f} dB ({each['evaluations']}{'' if each['converged'] else '*'} evaluations, "
        f"{each['cpu_seconds']:.1f} CPU-s)"
        for name, each in row["starts"].items()
    )
    first, last = row["residual"]
    return (
        f"  {title}: its own start {row['own_start']:.2f} dB; from {ends};\n    they differ by {row['differ']:.3f} dB, "
        f"{100 * row['apart']:.2g} % apart; {row['work']} times the work {row['more_work']:+.3f} dB, "
        f"{first:.1e} → {last:.1e}"
    )


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="de-gap,guided-certified", help="names of the zoo, or model files")
    parser.add_argument("--clips", type=Path)
    parser.add_argument("--side", type=int, default=256, help="of the windows, from the middle of the clips")
    parser.add_argument("--tol", type=float, default=1e-4)
    parser.add_argument(
        "--most", type=int, default=400, help="evaluations of one solve; * marks where they were used up"
    )
    parser.add_argument("--work", type=int, default=10, help="times the evaluations; 1 leaves this out")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    scenes, results = videos(options.clips, options.side), {}
    for name in options.models.split(","):
        model, rows = equilibrium(name), {}
        print(f"{name}, until the residual is {options.tol:g} (* where {options.most} evaluations were not enough)")
        for title, video in scenes:
            phi = Snapshot(bernoulli(*video.shape, generator=torch.Generator().manual_seed(0)))
            rows[title] = judged(model, video, phi, options.tol, options.most, options.work)
            print(told(title, rows[title]), flush=True)
        results[name] = rows
        one = max(row["differ"] for row in rows.values())
        more = max(abs(row["more_work"]) for row in rows.values())
        print(f"  starts differ by at most {one:.3f} dB (law: 0.01), more work by {more:.3f} dB (law: 0.05)")
    finish(options.json, results)


def videos(clips: Path | None, side: int) -> list[tuple[str, Tensor]]:
    if clips is None:
        return [(f"rendered {seed}", render(8, side, side, seed=seed)) for seed in (11, 12, 13)]
    found = []
    for path in sorted(clips.iterdir()):
        clip = read_video(path)
        height, width = (min(side, n) for n in clip.shape[1:])
        top, left = (clip.shape[1] - height) // 2, (clip.shape[2] - width) // 2
        found.append((path.stem, clip[:8, top : top + height, left : left + width].contiguous()))
    return found


if __name__ == "__main__":
    main()
