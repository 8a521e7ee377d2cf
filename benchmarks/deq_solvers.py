"""Solvers of an equilibrium model on one snapshot: evaluations, residual, quality, and what they cost.

    python benchmarks/deq_solvers.py [MODEL.safetensors SCENE] [--start adjoint] [--tol 1e-4] [--max-iter 200]
                                     [--level 2.2e-4] [--json PATH]

One thread; all solvers from the same start (the model's own unless another is named), whose time counts in "CPU s".
"solver takes" is the cost of the solver and its bookkeeping, "data step takes" that of the map besides its network,
both relative to the network's time and measured within the same solve. "at the level" is the state when the residual
first falls to --level: by default that at which the published code of DE-GAP stopped on the drop scene, so that its
38.5 dB and 436 CPU-seconds compare at an equal residual. Without arguments: the built-in scene, 128 x 128, and a CNN
of the usual size with made-up weights whose plain iteration diverges, as that of trained ones often does.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from common import finish, show, snapshot
from unsnap import Snapshot, load_scene, psnr
from unsnap.algorithms import GAP
from unsnap.fixed_point import FixedPoint, anderson, broyden, fixed_point, picard
from unsnap.fixed_point.solver import Solver
from unsnap.models import STARTS, Equilibrium
from unsnap.models.base import denoiser_of
from unsnap.networks import CNN, Capture
from unsnap.networks.frames import layers_of
from unsnap.zoo import equilibrium

Case = tuple[Tensor, Snapshot, Tensor | None]
SOLVERS: dict[str, Solver] = {
    "Picard": picard(),
    "Anderson, 6 points": anderson(6),
    "Anderson, 11 points": anderson(11),
    "safeguarded, 11 points": anderson(11, safeguard=0.9),
    "Broyden, memory 20": broyden(20),
}


class Stopwatch:
    """A function that adds up the processor time spent in it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self.seconds = function, 0.0

    def __call__(self, *inputs: Any) -> Any:
        begin = time.process_time()
        value = self.function(*inputs)
        self.seconds += time.process_time() - begin
        return value


class Passing:
    """Notes the evaluations, processor time and quality when the residual first falls to a level."""

    def __init__(self, level: float, truth: Tensor | None) -> None:
        self.level, self.truth = level, truth
        self.begin, self.spent = time.process_time(), 0.0
        self.found: dict[str, Any] = {"evaluations": "–", "PSNR dB": "–", "CPU s": "–"}

    def __call__(self, evaluation: int, x: Tensor, residual: Tensor) -> None:
        now = time.process_time()
        if self.found["CPU s"] == "–" and float(residual) <= self.level:
            quality = "–" if self.truth is None else round(float(psnr(x, self.truth).mean()), 2)
            self.found = {"evaluations": evaluation, "PSNR dB": quality, "CPU s": round(now - self.begin, 1)}
            self.spent = time.process_time() - now


def measure(
    model: Equilibrium, solver: Solver, case: Case, tol: float, max_iter: int, level: float = 2.2e-4
) -> dict[str, Any]:
    y, phi, truth = case
    passing = Passing(level, truth)
    with torch.no_grad():
        begin = time.process_time()
        capture = Capture(y, phi, model.started(y, phi))
        network = Stopwatch(denoiser_of(model.network, model.iteration, capture))
        data, camera = model.iteration.prepared(y, phi)
        f = Stopwatch(lambda state: model.iteration.step(state, data, camera, network, model.sigma))
        state = model.iteration.start(capture.start)
        ready = time.process_time()
        solution = fixed_point(f, state, solver=solver, tol=tol, max_iter=max_iter, callback=passing)
        end = time.process_time() - passing.spent
    return {
        "evaluations": solution.evaluations,
        "residual": float(solution.best),
        "outcome": outcome(solution),
        "PSNR dB": "–" if truth is None else round(float(psnr(solution.x, truth).mean()), 2),
        "CPU s": end - begin,
        "per evaluation": (end - ready) / solution.evaluations,
        "solver takes": f"{(end - ready - f.seconds) / network.seconds:.1%}",
        "data step takes": f"{(f.seconds - network.seconds) / network.seconds:.1%}",
        "at the level": "{evaluations} evaluations, {PSNR dB} dB, {CPU s} CPU s".format(**passing.found),
    }


def outcome(solution: FixedPoint) -> str:
    if bool(solution.converged):
        return "converged"
    first, last = float(solution.residual[0]), float(solution.residual[-1])
    return "not yet" if last < first else "diverges"


def made_up() -> Equilibrium:
    """D takes away 2.2 times what a small blur would, and a little of everything: eigenvalues down to about -2."""
    torch.manual_seed(0)
    network = CNN(layers=4, channels=64)
    first, *inner, last = (weight for weight, _ in layers_of(network.convs))
    tap = torch.tensor([1.0, 2.0, 1.0]) / 4
    detail = -torch.outer(tap, tap)
    detail[1, 1] += 1.05
    with torch.no_grad():
        for everything in network.parameters():
            everything.mul_(0.1)
        # A pair of maps carries the detail through the ReLUs, one its positive part and one its negative.
        first[0, 0] += detail
        first[1, 0] -= detail
        for weight in inner:
            weight[0, 0, 1, 1] += 1
            weight[1, 1, 1, 1] += 1
        last[0, 0, 1, 1] += 2.2
        last[0, 1, 1, 1] -= 2.2
    return Equilibrium(GAP(), network)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, nargs="?")
    parser.add_argument("scene", type=Path, nargs="?")
    parser.add_argument("--tol", type=float, help="default 1e-4; 1e-3 for the built-in network")
    parser.add_argument("--max-iter", type=int, default=200)
    parser.add_argument("--start", choices=STARTS, help="where to start from; default: as the model says")
    parser.add_argument("--level", type=float, default=2.2e-4, help="residual at which to look as well")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if (arguments.model is None) != (arguments.scene is None):
        parser.error("a model needs a scene")
    torch.set_num_threads(1)
    tol = arguments.tol or (1e-3 if arguments.model is None else 1e-4)
    if arguments.model is None:
        model, name = made_up(), "made-up CNN, built-in scene"
        measurement, masks, truth = snapshot(height=128, width=128)
        case: Case = measurement[None], Snapshot(masks), truth[None]
    else:
        model, name = equilibrium(arguments.model), f"{arguments.model.name}, {arguments.scene.name}"
        scene = load_scene(arguments.scene, snapshots=slice(1))
        case = scene.measurement, Snapshot(scene.masks), None if scene.truth is None else scene.truth[:1]
    if arguments.start is not None:
        model.start = STARTS[arguments.start]()
    rows = []
    for label, solver in SOLVERS.items():
        measure(model, solver, case, tol, 3)  # compiles
        rows.append({"solver": label, **measure(model, solver, case, tol, arguments.max_iter, arguments.level)})
    title = f"{name}: one snapshot from {model.start} to a relative residual of {tol:.0e}, one thread"
    show(f"{title}; level {arguments.level:.1e}", rows)
    finish(arguments.json, rows)


if __name__ == "__main__":
    main()
