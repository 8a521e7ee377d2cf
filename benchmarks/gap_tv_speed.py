"""GAP-TV, 40 iterations x 5 inner TV steps, accelerated, one 256 x 256 x 8 snapshot: unsnap against plain numpy.

python benchmarks/gap_tv_speed.py [--repeats 15] [--json PATH]
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np
import torch

import numpy_twin
import unsnap
from common import cpu_seconds, finish, show, snapshot

WEIGHT, ITERATIONS, INNER = 0.15, 40, 5  # the recipe `gap-tv` of src/unsnap/methods/classical.py


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    y, masks, truth = snapshot()
    phi = unsnap.Snapshot(masks)
    image, code = y.numpy(), np.ascontiguousarray(masks.movedim(0, -1).numpy())

    torch.set_num_threads(1)
    twin = numpy_twin.gap_tv(image, code, weight=WEIGHT, iterations=ITERATIONS, inner=INNER)
    twin_video = torch.from_numpy(twin).movedim(-1, 0)
    twin_seconds = cpu_seconds(
        lambda: numpy_twin.gap_tv(image, code, weight=WEIGHT, iterations=ITERATIONS, inner=INNER),
        max(arguments.repeats // 5, 2),
    )
    rows = [_row("plain numpy", 1, twin_seconds, twin_seconds, twin_video, twin_video, truth)]
    for threads in sorted({1, os.cpu_count() or 1}):
        torch.set_num_threads(threads)
        seconds = cpu_seconds(lambda: unsnap.reconstruct(y, phi, "gap-tv"), arguments.repeats)
        video = unsnap.reconstruct(y, phi, "gap-tv").x
        rows.append(_row("unsnap gap-tv", threads, seconds, twin_seconds, video, twin_video, truth))
    show("GAP-TV 40 × 5, one 256×256×8 snapshot (least CPU time of several runs, kernels warm)", rows)
    finish(arguments.json, rows)


def _row(
    name: str,
    threads: int,
    seconds: float,
    reference: float,
    video: torch.Tensor,
    twin: torch.Tensor,
    truth: torch.Tensor,
) -> dict[str, object]:
    return {
        "code": name,
        "threads": threads,
        "CPU s": seconds,
        "times faster": reference / seconds,
        "PSNR dB": float(unsnap.psnr(video, truth).mean()),
        "difference from numpy": float((video - twin).norm() / twin.norm()),
    }


if __name__ == "__main__":
    main()
