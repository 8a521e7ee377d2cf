"""What knowing the noise is worth: low-rank GAP on noisy snapshots of validation clips (never of benchmark scenes).

    python benchmarks/noisy_snapshots.py FOLDER_OF_CLIPS [--size 96] [--json PATH]

Every clip gives two snapshots of its central pixels through Bernoulli(1/2) masks, and at last through a mask that moves
behind optics, as in a real camera. "LowRank" is the start of shipped models, "accelerated" is `gap-wnnm` told that
there is no noise. The noise found is the mean over snapshots; the true one is in units of a white frame.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from common import clips, finish, show
from unsnap import Snapshot, psnr, reconstruct
from unsnap.algorithms.noise import noise_map
from unsnap.masks import shifted
from unsnap.models import Annealed, LowRank

CONDITIONS = {
    "none": (0.0, 0.0, 1.0),
    "0.02": (0.02, 0.0, 1.0),
    "0.05": (0.05, 0.0, 1.0),
    "0.1": (0.1, 0.0, 1.0),
    "shot, 0.05 √light": (0.0, 0.05, 1.0),
    "0.05, scene dimmed to a quarter": (0.05, 0.0, 0.25),
}
"""Noise that is constant, noise that grows as the root of the light, and the brightness of the scene."""


def measure(masks: Tensor, truth: Tensor, flat: float, shot: float, light: float) -> dict[str, Any]:
    phi = Snapshot(masks)
    clean = phi.A(light * truth)
    size = flat + shot * clean.clamp(min=0).sqrt()
    y = clean + size * torch.randn(clean.shape, generator=torch.Generator().manual_seed(1))

    def score(x: Tensor) -> float:
        return float(psnr(x / light, truth).mean())

    found = noise_map(y, masks)
    return {
        "noise": float(size.mean()),
        "noise found": float(found.mean()),
        "gap-tv": score(reconstruct(y, phi, "gap-tv").x),
        "LowRank": score(LowRank().solve(y, phi).x),
        "accelerated": score(Annealed().solve(y, phi, noise=torch.zeros_like(found)).x),
        "gap-wnnm": score(Annealed().solve(y, phi).x),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--size", type=int, default=96)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    masks, truth = clips(options.folder, options.size)
    rows = [{"": name, **measure(masks, truth, *values)} for name, values in CONDITIONS.items()]
    moving = shifted(*masks.shape[-3:], blur=0.7, generator=torch.Generator().manual_seed(0))
    rows.append({"": "moving, blurred mask, a third of the light", **measure(moving, truth, 0.01, 0.03, 0.33)})
    show("PSNR dB of noisy snapshots", rows)
    finish(options.json, rows)


if __name__ == "__main__":
    main()
