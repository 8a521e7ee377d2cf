"""Is the equilibrium real? The default run of a shipped model, and the same with ten times the evaluations.

python benchmarks/zoo_equilibrium.py --clips ../shared/data/val         # without --clips: rendered scenes
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import Tensor

from unsnap.io import read_video
from unsnap.masks import bernoulli
from unsnap.methods import get
from unsnap.metrics import psnr
from unsnap.operators import Snapshot
from unsnap.simulate import render
from unsnap.zoo import equilibrium


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default="de-gap,guided-certified", help="names of the zoo, or model files")
    parser.add_argument("--clips", type=Path)
    options = parser.parse_args()
    scenes = dict(videos(options.clips))
    for name in options.models.split(","):
        model = equilibrium(name)
        print(f"{name}: tolerance {model.tol:g}, at most {model.max_iter} evaluations")
        worst, gain = 0.0, []
        for title, video in scenes.items():
            phi = Snapshot(bernoulli(*video.shape, generator=torch.Generator().manual_seed(0)))
            y = phi.A(video)
            with torch.no_grad():
                short = model(y, phi)
                long = model(y, phi, tol=0.0, max_iter=10 * short.evaluations)
            scores = [float(psnr(s.x, video).mean()) for s in (short, long)]
            baseline = float(psnr(get("gap-tv")(y, phi).x, video).mean())
            worst = max(worst, abs(scores[1] - scores[0]))
            gain.append(scores[0] - baseline)
            print(
                f"  {title:34} {scores[0]:6.2f} dB (gap-tv {baseline:.2f})  residual {float(short.final):.1e} after "
                f"{short.evaluations} evaluations, converged {bool(short.converged.all())}; "
                f"after {long.evaluations}: {scores[1]:.2f} dB, {float(long.final):.1e}"
            )
        print(f"  gain on gap-tv {sum(gain) / len(gain):+.2f} dB; ten times the work changes at most {worst:.3f} dB")


def videos(clips: Path | None) -> list[tuple[str, Tensor]]:
    if clips is None:
        return [(f"rendered {seed}", render(8, 256, 256, seed=seed)) for seed in (11, 12, 13)]
    return [(path.stem, read_video(path)[:8, :256, :256].contiguous()) for path in sorted(clips.iterdir())]


if __name__ == "__main__":
    main()
