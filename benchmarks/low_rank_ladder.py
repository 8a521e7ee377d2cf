"""PSNR and processor time of the low-rank ladder on validation clips (never on benchmark scenes), one thread.

    python benchmarks/low_rank_ladder.py FOLDER_OF_CLIPS [--methods gap-wnnm,gap-wnnm-fine,gap-wnnm-best] [--size 256]
                                         [--frames 8] [--snapshots 2] [--noise 0.0] [--together] [--json PATH]

The middle of every clip gives some snapshots, one after the other, behind Bernoulli(1/2) masks. With --together they
are also reconstructed as the sequence that they are. One snapshot of each clip takes half the time of two.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch

from common import clips, finish, show
from unsnap import Snapshot, psnr, reconstruct


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--methods", default="gap-wnnm,gap-wnnm-fine,gap-wnnm-best")
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--frames", type=int, default=8)
    parser.add_argument("--noise", type=float, default=0.0)
    parser.add_argument("--snapshots", type=int, default=2, help="of every clip")
    parser.add_argument("--together", action="store_true")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    masks, videos = clips(arguments.folder, arguments.size, arguments.frames, arguments.snapshots)
    rows = []
    for name in arguments.methods.split(","):
        for together in (False, True) if arguments.together else (False,):
            scores, seconds, converged = [], 0.0, 0
            for code, truth in zip(masks.split(arguments.snapshots), videos.split(arguments.snapshots), strict=True):
                phi = Snapshot(code)
                noise = torch.randn(truth[:, 0].shape, generator=torch.Generator().manual_seed(1))
                y = phi.A(truth) + arguments.noise * noise
                started = time.process_time()
                solution = reconstruct(y, phi, name, together=together)
                seconds += time.process_time() - started
                scores += psnr(solution.x, truth).mean(-1).tolist()
                converged += int(solution.converged.sum())
            rows.append(
                {
                    "method": f"{name}, together" if together else name,
                    "PSNR": sum(scores) / len(scores),
                    "lowest": min(scores),
                    "CPU s per snapshot": seconds / len(scores),
                    "converged": f"{converged} of {len(scores)}",
                }
            )
    show(f"{len(videos)} snapshots of {arguments.frames} frames {arguments.size}²", rows)
    finish(arguments.json, rows)


if __name__ == "__main__":
    main()
