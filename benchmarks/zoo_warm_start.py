"""Does the solution of the last snapshot help the next one? Evaluations from its own start and from two warm starts.

python benchmarks/zoo_warm_start.py --clips ../shared/data/val           # without --clips: rendered scenes
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from unsnap.io import read_video
from unsnap.masks import bernoulli
from unsnap.metrics import psnr
from unsnap.operators import Snapshot
from unsnap.simulate import render
from unsnap.zoo import load

SIZE = 128


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="de-gap")
    parser.add_argument("--clips", type=Path)
    options = parser.parse_args()
    model = load(options.model)
    clips = (
        {f"rendered {seed}": render(16, SIZE, SIZE, seed=seed) for seed in (11, 12, 13)}
        if options.clips is None
        else {path.stem: read_video(path)[:16, :SIZE, :SIZE] for path in sorted(options.clips.iterdir())}
    )
    phi = Snapshot(bernoulli(8, SIZE, SIZE, generator=torch.Generator().manual_seed(0)))
    for title, clip in clips.items():
        first, second = clip.reshape(2, 1, 8, SIZE, SIZE)
        y = phi.A(second)
        with torch.no_grad():
            before = model(phi.A(first), phi).x
            starts = {
                "its own start": None,
                "last video, reversed": before.flip(1),
                "its last frame, projected": phi.project(before[:, -1:].expand_as(before), y),
            }
            runs = {name: model(y, phi, state=start) for name, start in starts.items()}
        told = (f"{name}: {r.evaluations} ({float(psnr(r.x, second).mean()):.2f} dB)" for name, r in runs.items())
        print(f"{title:34} evaluations from  " + "  ".join(told))


if __name__ == "__main__":
    main()
