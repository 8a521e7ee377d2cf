"""How far below its best moment does `gap-wnnm` stop? On windows of validation clips (never of benchmark scenes).

    python benchmarks/stopping.py FOLDER_OF_CLIPS [--size 128] [--windows 0,1,…] [--json PATH]

Four windows of every clip, the corners of its first or last eight frames, each behind its own Bernoulli(1/2) masks,
without noise, with noise 0.05 and with shot noise 0.05 √light. PSNR after every iteration needs the truth, the end does
not: "short" is what the end lies below the best. One run of 128 × 128 pixels takes about 1.5 processor seconds.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import Tensor

from common import finish, show
from unsnap import Snapshot, psnr
from unsnap.io import read_video
from unsnap.masks import bernoulli
from unsnap.models import Annealed

FRAMES = 8
CONDITIONS = {"none": (0.0, 0.0), "0.05": (0.05, 0.0), "shot": (0.0, 0.05)}
"""Noise that is constant, and noise that grows as the root of the light."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--windows", help="some of 0,1,…, as they are counted in the table; default: all")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    every = windows(options.folder, options.size)
    chosen = [int(k) for k in options.windows.split(",")] if options.windows else range(len(every))
    rows = [row(k, *every[k], name) for k in chosen for name in CONDITIONS]
    show("PSNR dB at the end and at the best moment", rows)
    short = {name: [r["short"] for r in rows if r["noise"] == name] for name in CONDITIONS}
    means = [
        {"noise": k, "mean": sum(v) / len(v), "largest": max(v), "above 0.1": sum(s > 0.1 for s in v)}
        for k, v in short.items()
    ]
    show("short of the best moment", means)
    finish(options.json, rows)


def windows(folder: Path, size: int) -> list[tuple[str, Tensor]]:
    found = []
    for path in sorted(folder.glob("*.npz")):
        clip = read_video(path)
        for down, right in ((0, 0), (0, 1), (1, 0), (1, 1)):
            top, left = down * (clip.shape[1] - size), right * (clip.shape[2] - size)
            first = 0 if down == right else len(clip) - FRAMES
            found.append((path.stem, clip[first : first + FRAMES, top : top + size, left : left + size]))
    if not found:
        raise SystemExit(f"{folder} holds no clips (.npz)")
    return found


def row(k: int, clip: str, truth: Tensor, condition: str) -> dict[str, str | int | float]:
    flat, shot = CONDITIONS[condition]
    phi = Snapshot(bernoulli(*truth.shape, generator=torch.Generator().manual_seed(k)))
    clean = phi.A(truth)
    noise = torch.randn(clean.shape, generator=torch.Generator().manual_seed(100 + k))
    y = clean + (flat + shot * clean.clamp(min=0).sqrt()) * noise
    scores: list[float] = []

    def watch(iteration: int, x: Tensor, change: Tensor) -> None:
        if iteration > 0:
            scores.append(float(psnr(x, truth).mean()))

    found = Annealed().solve(y, phi, tol=3e-3, callback=watch)
    best = max(scores)
    return {
        "window": k,
        "clip": clip[:20],
        "noise": condition,
        "end": scores[-1],
        "best": best,
        "at iteration": scores.index(best) + 1,
        "short": best - scores[-1],
        "misfit": float((y - phi.A(found.x)).square().mean().sqrt()),
        "converged": str(bool(found.converged)),
    }


if __name__ == "__main__":
    main()
