"""What a contraction towards an anchor costs: PSNR at the fixed point of D = (1 - c) r + c TV for several anchors r.

python benchmarks/anchor_price.py --clips ../shared/data/val
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import Tensor

from unsnap.algorithms import gap_step
from unsnap.metrics import psnr
from unsnap.models import LowRank, TotalVariation
from unsnap.operators import Snapshot
from unsnap.priors import TV
from unsnap.training.clips import read_clips, rendered_clips
from unsnap.training.validate import coded_views

SIGMA = 0.02
STEPS = 400


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clips", type=Path)
    parser.add_argument("--contraction", type=float, default=0.95)
    options = parser.parse_args()
    views = coded_views(rendered_clips(seed=1) if options.clips is None else read_clips(options.clips), 96)
    y, phi, truth = views.y, views.phi, views.truth
    anchors = {
        "mid-grey": torch.full_like(truth, 0.5),
        "gap-tv3d": TotalVariation()(y, phi),
        "gap-wnnm": LowRank()(y, phi),
    }
    free = score(at_rest(y, phi, truth.new_zeros(()), 1.0), truth)
    print(f"TV alone (no contraction): {free:.2f} dB")
    for name, anchor in anchors.items():
        found = score(at_rest(y, phi, anchor, options.contraction), truth)
        print(f"towards {name:9}: {found:.2f} dB ({found - free:+.2f}); the anchor itself {score(anchor, truth):.2f}")


def at_rest(y: Tensor, phi: Snapshot, anchor: Tensor, c: float) -> Tensor:
    """The plain iteration of GAP with that denoiser, long enough to be at rest."""
    prior = TV(temporal=0.2, isotropic=False, iterations=10)
    x = phi.A_dagger(y)
    for _ in range(STEPS):
        x = gap_step(x, y, phi, lambda v, sigma: (1 - c) * anchor + c * prior(v, sigma), SIGMA)
    return x


def score(x: Tensor, truth: Tensor) -> float:
    return float(psnr(x, truth).mean())


if __name__ == "__main__":
    main()
