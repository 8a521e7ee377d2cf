"""Peak memory of one training step of an equilibrium model (256 x 256 x 8, batch 1) by forward iterations.

Implicit gradients keep one evaluation of the map, however many led to the solution; unrolling keeps them all.
Every row is a fresh process: its largest resident memory above what it held before the step.

python benchmarks/deq_memory.py [--json PATH]
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from common import finish, show, snapshot
from unsnap.algorithms import gap_step
from unsnap.fixed_point import anderson, fixed_point, implicit, unroll
from unsnap.operators import Snapshot

CONFIGURATIONS = [("implicit", 10), ("implicit", 50), ("implicit", 200), ("unroll", 20)]


class Denoiser(nn.Module):
    """Three convolutions over the frames as channels, pulling the video a little towards zero: a contraction."""

    def __init__(self, channels: int = 32) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(8, channels, 3, padding=1), nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU(),
            nn.Conv2d(channels, 8, 3, padding=1),
        )  # fmt: skip

    def forward(self, x: Tensor, sigma: float | Tensor) -> Tensor:
        return 0.9 * x + 0.1 * self.net(x)


def step_megabytes(mode: str, iterations: int) -> float:
    """One forward and backward pass with exactly so many forward iterations."""
    torch.manual_seed(0)
    measurement, masks, truth = snapshot()
    y, phi, network = measurement[None], Snapshot(masks), Denoiser()
    f = partial(gap_step, y=y, phi=phi, denoise=network, sigma=0.0)
    start = phi.A_dagger(y)
    with torch.no_grad():
        f(start)  # loads the kernels, whose code is no memory of the step
    backward = implicit(tol=1e-3, max_iter=50) if mode == "implicit" else unroll(iterations)
    before = resident_megabytes()
    solution = fixed_point(f, start, solver=anderson(), backward=backward, tol=0.0, max_iter=iterations)
    (0.5 * (solution.x - truth).square().mean()).backward()
    if solution.evaluations != iterations:
        raise RuntimeError(f"{mode} took {solution.evaluations} evaluations instead of {iterations}")
    return peak_megabytes() - before


def resident_megabytes() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # Linux counts in KiB


def fresh(mode: str, iterations: int) -> float:
    """The figure from a process of its own."""
    command = [sys.executable, __file__, "--step", mode, str(iterations)]
    # Freed tensors go back to the system at once, so that the peak counts what is in use and not what malloc hoards.
    settings = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536", "OMP_NUM_THREADS": "1"}
    return float(subprocess.run(command, check=True, capture_output=True, text=True, env=settings).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--step", nargs=2, metavar=("MODE", "ITERATIONS"), help="measure one configuration, print MB")
    arguments = parser.parse_args()
    if arguments.step:
        mode, iterations = arguments.step
        print(step_megabytes(mode, int(iterations)))
        return
    rows: list[dict[str, object]] = []
    for mode, iterations in CONFIGURATIONS:
        peak = fresh(mode, iterations)
        first = rows[0]["peak MB"] if rows else peak
        rows.append({"backward": mode, "forward iterations": iterations, "peak MB": peak, "ratio": peak / float(first)})
    show("Peak memory of one training step, 256×256×8 snapshot, 3-layer network (ratio to the first row)", rows)
    finish(arguments.json, rows)


if __name__ == "__main__":
    main()
