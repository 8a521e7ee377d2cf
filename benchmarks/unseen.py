"""Cameras that do not see all of the picture: what each method makes of it, and of total variation begun as before.

    python benchmarks/unseen.py [--clips FOLDER_OF_CLIPS] [--methods gap-tv3d,gap-wnnm,shift-wnnm] [--size 96]
                                [--json PATH]                                      # without --clips: rendered scenes

PSNR of all of the picture, what was not seen included, in the mean of the clips. "from Φ⁺y" is total variation from the
least-squares video, which is black where nothing was measured, and not from the still picture.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import Tensor

from common import clips, finish, show
from unsnap import Snapshot, psnr, reconstruct
from unsnap.masks import bernoulli
from unsnap.models import TotalVariation
from unsnap.simulate import render


def cameras(size: int) -> dict[str, Tensor]:
    """What is open of the picture, by what closes the rest."""
    down, right = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    third, edge = size // 3, size // 12
    hole = (down >= third) & (down < 2 * third) & (right >= third) & (right < 2 * third)
    far = ((down - size / 2).square() + (right - size / 2).square()).sqrt()
    return {
        "nothing": torch.ones(size, size),
        "a border on two sides": ((down >= edge) & (right >= edge)).float(),
        "a hole": (~hole).float(),
        "a round aperture": (far < 0.46 * size).float(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clips", type=Path)
    parser.add_argument("--methods", default="gap-tv3d,gap-wnnm,shift-wnnm")
    parser.add_argument("--size", type=int, default=96)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    size, names = options.size, options.methods.split(",")
    if options.clips is None:
        masks = bernoulli(8, size, size, generator=torch.Generator().manual_seed(0)).repeat(2, 1, 1, 1)
        videos = torch.stack([render(8, size, size, seed=seed) for seed in range(2)])
    else:
        masks, videos = clips(options.clips, size, count=1)
    rows = []
    for closed, opened in cameras(size).items():
        phi = Snapshot(masks * opened)
        y = phi.A(videos)
        found = {"total variation from Φ⁺y": TotalVariation().solve(y, phi, x0=phi.A_dagger(y)).x}
        found |= {name: reconstruct(y, phi, name).x for name in names}
        rows.append({"closed": closed} | {name: float(psnr(x, videos).mean()) for name, x in found.items()})
    show(f"{len(videos)} snapshots of 8 frames {size}²", rows)
    finish(options.json, rows)


if __name__ == "__main__":
    main()
