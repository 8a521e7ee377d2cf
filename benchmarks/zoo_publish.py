"""From a training run to a shipped model: the weights, with the solver that validation chose, into the zoo.

python benchmarks/zoo_publish.py RUN/best.safetensors de-gap --solver '{"name": "anderson", "memory": 5}' --tol 1e-3
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

from unsnap.models.file import save_model
from unsnap.zoo import FOLDER


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("name")
    parser.add_argument("--solver", type=json.loads, default={"name": "anderson", "memory": 5})
    parser.add_argument("--tol", type=float, default=1e-3)
    parser.add_argument("--max-iter", type=int, default=60)
    parser.add_argument("--sigma", type=float)
    options = parser.parse_args()
    model, recipe = load_model(options.source)
    changes = {"solver": options.solver, "tol": options.tol, "max_iter": options.max_iter}
    if options.sigma is not None:
        changes["sigma"] = options.sigma
    recipe = replace(recipe, **changes)
    path = save_model(FOLDER / f"{options.name}.safetensors", recipe, model.network.state_dict())
    print(f"{path}: {path.stat().st_size / 2**20:.2f} MiB, {recipe.about}")


if __name__ == "__main__":
    main()
