"""From a training run to a shipped model: the weights, an equilibrium's with the solver that validation chose.

python benchmarks/zoo_publish.py RUN/best.safetensors de-gap --solver '{"name": "anderson", "memory": 6}' --tol 1e-3
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from unsnap.fixed_point import SOLVERS
from unsnap.models import Equilibrium, Unfolded
from unsnap.models.file import revived, save
from unsnap.zoo import FOLDER, trainable


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("name")
    parser.add_argument("--solver", type=json.loads, default={"name": "anderson", "memory": 6})
    parser.add_argument("--tol", type=float, default=1e-3)
    parser.add_argument("--max-iter", type=int, default=60)
    parser.add_argument("--sigma", type=float)
    parser.add_argument(
        "--half", action="store_true", help="store weights in half precision; they are computed in single"
    )
    options = parser.parse_args()
    model = trainable(options.source)
    if isinstance(model, Equilibrium):
        model.solver, model.tol, model.max_iter = revived(options.solver, SOLVERS), options.tol, options.max_iter
        model.sigma = model.sigma if options.sigma is None else options.sigma
    if options.half:
        model = model.half()
        if isinstance(model, Unfolded):
            model.sigmas.data = trainable(options.source).sigmas.data  # a few numbers, exactly
    path = save(FOLDER / f"{options.name}.safetensors", model)
    print(f"{path}: {path.stat().st_size / 2**20:.2f} MiB, {model.about}")


if __name__ == "__main__":
    main()
