"""Choose the numbers in `src/unsnap/methods.py` on validation clips (never on benchmark scenes).

    python benchmarks/tune.py FOLDER_OF_CLIPS [--only gap-tv,gap-tv3d,gap-wavelet,admm-tv3d,fista-tv3d] [--json PATH]

Every clip gives two snapshots: frames 1-8 and 9-16 of its central 256 x 256 pixels through Bernoulli(1/2) masks.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import unsnap
from common import clips, finish, show
from unsnap.algorithms import admm, fista, gap
from unsnap.algorithms.iterate import Denoiser, Solution
from unsnap.priors import TV, Wavelet

Trial = tuple[str, Callable[[Tensor, unsnap.Snapshot], Solution]]


def by_gap(denoise: Denoiser, sigma: float) -> Callable[[Tensor, unsnap.Snapshot], Solution]:
    return lambda y, phi: gap(y, phi, denoise, [sigma] * 40, tol=5e-3, early=False)


def by_admm(
    denoise: Denoiser, weight: float, factor: float, tol: float
) -> Callable[[Tensor, unsnap.Snapshot], Solution]:
    def solve(y: Tensor, phi: unsnap.Snapshot) -> Solution:
        rho = factor * phi.norm() ** 2
        return admm(y, phi, denoise, [weight / rho] * 300, rho=rho, tol=tol)

    return solve


def by_fista(denoise: Denoiser, weight: float, tol: float) -> Callable[[Tensor, unsnap.Snapshot], Solution]:
    return lambda y, phi: fista(y, phi, denoise, [weight / phi.norm() ** 2] * 300, tol=tol)


def space_time(temporal: float, iterations: int) -> TV:
    return TV(temporal=temporal, isotropic=False, iterations=iterations)


def gap_tv() -> Iterator[Trial]:
    for sigma in (0.05, 0.07, 0.1, 0.15, 0.2, 0.3):
        yield f"sigma {sigma}", by_gap(TV(iterations=4), sigma)


def gap_tv3d() -> Iterator[Trial]:
    for temporal, sigma in product((0.1, 0.15, 0.2, 0.3), (0.05, 0.07, 0.1, 0.15)):
        yield f"temporal {temporal}, sigma {sigma}", by_gap(space_time(temporal, 4), sigma)


def gap_wavelet() -> Iterator[Trial]:
    for sigma in (0.06, 0.1, 0.15, 0.2):
        yield f"haar, 2 levels, sigma {sigma}", by_gap(Wavelet("haar", 2), sigma)
    for name, levels in product(("haar", "db2", "sym4"), (2, 3, 4)):
        yield f"{name}, {levels} levels, sigma 0.1", by_gap(Wavelet(name, levels), 0.1)


def admm_tv3d() -> Iterator[Trial]:
    for weight, factor in product((0.003, 0.005, 0.01, 0.02), (0.003, 0.01, 0.03)):
        yield f"weight {weight}, rho {factor}‖Φ‖², 10 inner", by_admm(space_time(0.15, 10), weight, factor, 3e-4)
    for inner, tol in product((5, 10, 20), (1e-3, 1e-4)):
        yield (
            f"weight 0.005, rho 0.01‖Φ‖², {inner} inner, tol {tol}",
            by_admm(space_time(0.15, inner), 0.005, 0.01, tol),
        )


def fista_tv3d() -> Iterator[Trial]:
    for weight, tol in product((0.003, 0.005, 0.01, 0.02), (1e-3, 3e-4)):
        yield f"weight {weight}, 10 inner, tol {tol}", by_fista(space_time(0.15, 10), weight, tol)
    for inner in (5, 20):
        yield f"weight 0.005, {inner} inner, tol 0.001", by_fista(space_time(0.15, inner), 0.005, 1e-3)


GRIDS: dict[str, Callable[[], Iterator[Trial]]] = {
    "gap-tv": gap_tv,
    "gap-tv3d": gap_tv3d,
    "gap-wavelet": gap_wavelet,
    "admm-tv3d": admm_tv3d,
    "fista-tv3d": fista_tv3d,
}


def measure(trial: Trial, y: Tensor, phi: unsnap.Snapshot, truth: Tensor) -> dict[str, Any]:
    name, solve = trial
    start = time.process_time()
    with torch.no_grad():
        solution = solve(y, phi)
    seconds = (time.process_time() - start) / len(y)
    quality = unsnap.psnr(solution.x, truth).mean(-1)
    return {
        "setting": name,
        "PSNR dB": float(quality.mean()),
        "worst clip dB": float(quality.min()),
        "CPU s/snapshot": seconds,
        "iterations": solution.iterations,
        "residual": float(solution.residual[-1].max()),
        "converged": int(solution.converged.sum()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default=",".join(GRIDS), help="which grids, separated by commas")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    masks, truth = clips(arguments.folder, size=256)
    phi = unsnap.Snapshot(masks)
    y = phi.A(truth)
    tables = {}
    for grid in arguments.only.split(","):
        tables[grid] = [measure(trial, y, phi, truth) for trial in GRIDS[grid]()]
        show(f"{grid}: {len(y)} snapshots", tables[grid], best="PSNR dB")
    finish(arguments.json, tables)


if __name__ == "__main__":
    main()
