"""Choose the solver settings of an equilibrium model on validation clips (never on benchmark scenes).

    python benchmarks/deq_choose.py FOLDER_OF_CLIPS MODEL.safetensors [--tol 1e-4] [--max-iter 400] [--json PATH]

Every clip gives two snapshots: frames 1-8 and 9-16 of its central 96 x 96 pixels through Bernoulli(1/2) masks. The grid
is start x memory x damping of Anderson acceleration; all else is as the model file says.
"""

from __future__ import annotations

import argparse
import time
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from common import clips, finish, show
from unsnap import Snapshot, psnr
from unsnap.fixed_point import anderson
from unsnap.models import STARTS, Equilibrium
from unsnap.zoo import equilibrium

SIZE = 96
MEMORIES, DAMPINGS = (6, 11), (1.0, 0.7)


def measure(model: Equilibrium, y: Tensor, phi: Snapshot, truth: Tensor, options: argparse.Namespace) -> dict[str, Any]:
    begin = time.process_time()
    with torch.no_grad():
        solution = model(y, phi, tol=options.tol, max_iter=options.max_iter)
    seconds = time.process_time() - begin
    steps = solution.steps.double()
    return {
        "evaluations, mean": float(steps.mean()),
        "most": int(steps.max()),
        "converged": f"{int(solution.converged.sum())} of {len(y)}",
        "residual, worst": float(solution.best.max()),
        "PSNR dB": float(psnr(solution.x, truth).mean()),
        "CPU s/snapshot": seconds / len(y),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--tol", type=float, default=1e-4)
    parser.add_argument("--max-iter", type=int, default=400)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    masks, truth = clips(arguments.folder, SIZE)
    phi = Snapshot(masks)
    y = phi.A(truth)
    loaded = equilibrium(arguments.model)
    rows = []
    for name, memory, damping in product(STARTS, MEMORIES, DAMPINGS):
        solver = anderson(memory, damping)
        model = Equilibrium(loaded.iteration, loaded.network, loaded.sigma, solver=solver, start=STARTS[name]())
        setting = {"start": name, "memory": memory, "damping": damping}
        rows.append(setting | measure(model, y, phi, truth, arguments))
    title = f"{arguments.model.name}: {len(y)} snapshots of {SIZE}×{SIZE}×8, tolerance {arguments.tol:.0e}"
    show(title, rows)
    finish(arguments.json, rows)


if __name__ == "__main__":
    main()
