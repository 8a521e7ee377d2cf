"""Is the cost linear in pixels, frames and snapshots? Processor seconds over two orders of magnitude of each.

    python benchmarks/linear.py [--method gap-tv3d] [--repeats 3] [--plot PATH] [--json PATH]

One thread; processor time, the least of some runs, because others use the machine, too. A call costs something however
small its picture is (half a millisecond for every iteration), so what is fitted is a + b·n, by relative error, and the
largest deviation from it tells whether the cost is linear. Then two processes of one thread each against one: twice the
processor seconds of one alone over those of one beside another, which is what two idle cores could gain at most.
"""

from __future__ import annotations

import argparse
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

from common import finish, show
from unsnap.masks import bernoulli
from unsnap.methods import get
from unsnap.operators import Snapshot
from unsnap.simulate import render

SWEEPS: dict[str, list[tuple[int, int, int]]] = {
    "pixels": [(1, 8, side) for side in (64, 128, 256, 640)],
    "frames": [(1, frames, 64) for frames in (2, 8, 32, 200)],
    "snapshots": [(count, 8, 64) for count in (1, 4, 20, 100)],
}
"""Snapshots, frames, side."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", default="gap-tv3d")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    cost(arguments.method, (1, 8, 64), 1)
    rows = []
    for name, cases in SWEEPS.items():
        sizes = [n * t * side * side for n, t, side in cases]
        costs = [cost(arguments.method, case, arguments.repeats) for case in cases]
        fixed, each, miss = line(sizes, costs)
        rows += [
            {
                "of": name,
                "megapixel·frames": s / 1e6,
                "CPU s": c,
                "fixed s": fixed,
                "s each more": each,
                "deviates by": miss,
            }
            for s, c in zip(sizes, costs, strict=True)
        ]
    show(f"{arguments.method}, one thread", rows)
    pair = two_processes(arguments.method, arguments.repeats)
    show("one process, and two at a time", [pair])
    if arguments.plot:
        plot(rows, arguments.method, arguments.plot)
    finish(arguments.json, {"sweeps": rows, "two": pair})


def line(sizes: list[int], costs: list[float]) -> tuple[float, float, float]:
    """a and b (per million) of a + b·n, and the largest relative deviation from it."""
    n, c = np.array(sizes) / 1e6, np.array(costs)
    (fixed, each), *_ = np.linalg.lstsq(np.stack([1 / c, n / c], 1), np.ones(len(c)), rcond=None)
    return float(fixed), float(each), float(np.abs((fixed + each * n) / c - 1).max())


def cost(name: str, case: tuple[int, int, int], repeats: int) -> float:
    """Processor seconds of one run, the least of some."""
    count, frames, side = case
    generator = torch.Generator().manual_seed(0)
    phi = Snapshot(bernoulli(frames, side, side, generator=generator))
    y = phi.A(render(frames, side, side)).expand(count, side, side).contiguous()
    method, times = get(name), []
    for _ in range(repeats):
        start = time.process_time()
        method(y, phi)
        times.append(time.process_time() - start)
    return min(times)


def _task(arguments: tuple[str, int]) -> float:
    torch.set_num_threads(1)
    cost(arguments[0], (1, 8, 64), 1)
    return cost(arguments[0], (4, 8, 256), arguments[1])


def two_processes(name: str, repeats: int) -> dict[str, Any]:
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        alone = next(iter(pool.map(_task, [(name, repeats)])))
        both = max(pool.map(_task, [(name, repeats)] * 2))
    return {"CPU s alone": alone, "CPU s beside another": both, "2 × alone / beside": 2 * alone / both}


def plot(rows: list[dict[str, Any]], method: str, path: Path) -> None:
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(5, 3.4), layout="constrained")
    for name in SWEEPS:
        own = [row for row in rows if row["of"] == name]
        label = f"{name}: {own[0]['fixed s']:.2g} + {own[0]['s each more']:.2g}·n"
        axes.loglog([row["megapixel·frames"] for row in own], [row["CPU s"] for row in own], "o-", label=label)
    ends = np.array([min(r["megapixel·frames"] for r in rows), max(r["megapixel·frames"] for r in rows)])
    axes.loglog(ends, ends * np.median([row["s each more"] for row in rows]), "k:", label="linear")
    axes.set(xlabel="megapixel·frames", ylabel="processor seconds", title=f"{method}, one thread")
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
