"""Processor seconds of every method for one snapshot of 8 frames 256×256: the numbers of `unsnap methods`.

python benchmarks/method_times.py [--methods a,b,c] [--limit SECONDS] [--json FILE]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from common import finish, show, snapshot
from unsnap.methods import METHODS, get
from unsnap.run import run
from unsnap.scene import Scene


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--methods", help="names, separated by commas; default: all that can run here")
    parser.add_argument("--limit", type=float, default=40, help="leave out what is known to take longer, in seconds")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # threads that wait for one another would be counted as work
    measurement, masks, truth = snapshot()
    scene = Scene(measurement[None], masks, truth[None])
    rows = []
    for method in map(get, arguments.methods.split(",")) if arguments.methods else METHODS.values():
        known = method.cpu_seconds
        slow = not arguments.methods and known is not None and known > arguments.limit
        if slow or method.missing() is not None:
            print(f"{method.name}: left out, {method.missing() or f'known to take {known:.0f} s'}")
            continue
        _, result = run(scene, method)
        recorded = "–" if known is None else f"{known:.3g}"
        row = {"method": method.name, "CPU s": result.cpu_seconds, "recorded": recorded}
        rows.append(row | {"iterations": result.iterations, "PSNR dB": result.psnr})
        print(f"{method.name}: {result.cpu_seconds:.3g} CPU-s", flush=True)
    if rows:
        show("one snapshot of 8 frames 256×256, one thread", rows)
    finish(arguments.json, rows)


if __name__ == "__main__":
    main()
