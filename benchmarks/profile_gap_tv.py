"""Where the time of GAP-TV goes: data step, TV, relative change, and the rest.

python benchmarks/profile_gap_tv.py [--method gap-tv] [--json PATH]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

import unsnap
from common import cpu_seconds, finish, show, snapshot
from unsnap.algorithms.iterate import relative_change
from unsnap.priors import TV

REPEATS = 40


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", choices=("gap-tv", "gap-tv3d"), default="gap-tv")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    y, masks, _ = snapshot()
    phi = unsnap.Snapshot(masks)
    method = unsnap.METHODS[arguments.method]
    flat, deep = TV(iterations=4), TV(temporal=0.15, isotropic=False, iterations=4)
    denoise = deep if arguments.method == "gap-tv3d" else flat
    with torch.no_grad():
        x = method(y, phi).x
        other = x + 0.01
        total = cpu_seconds(lambda: method(y, phi), REPEATS) / method.iterations
        parts = {
            "data step: carry the misfit, project": cpu_seconds(lambda: phi.project_carried(x, y, y), REPEATS),
            "TV: 4 dual updates, 1 evaluation": cpu_seconds(lambda: denoise(x, 0.1), REPEATS),
            "relative change": cpu_seconds(lambda: relative_change(x, other), REPEATS),
        }
    parts["rest"] = total - sum(parts.values())
    rows = [{"part": name, "ms per iteration": 1e3 * t, "share": f"{t / total:.0%}"} for name, t in parts.items()]
    rows.append({"part": "whole iteration", "ms per iteration": 1e3 * total, "share": "100%"})
    show(f"{arguments.method}, one 256×256×8 snapshot, one thread", rows)
    finish(arguments.json, rows)


if __name__ == "__main__":
    main()
