"""Cost and peak memory of a method from 256 x 256 to 2160p (T = 8) and with T = 4 to 24 frames, in fresh processes.

    python benchmarks/scale.py [--method gap-tv3d] [--sizes 256²,512²,1080p,2160p] [--frames 4,8,16,24] [--arrays]
                               [--json PATH]

Frames are swept at the first of the sizes. Time is processor time per million pixels of the video, one thread: of the
fastest iteration, relative to the first row, and of all that comes before the first. Memory is the growth of the
resident set, in units of the video (T·H·W·4 bytes): above the loaded scene, and with it (masks and snapshot).
Part of it is memory that glibc keeps after it was freed: little of large pictures, up to two videos of small ones, more
or less from run to run. With --arrays it keeps nothing (every array is a mapping of its own, which costs some time),
so that arrays alone are counted.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import unsnap
from common import finish, show
from unsnap.simulate import render

SIZES = {
    "256²": (256, 256, 6),
    "512²": (512, 512, 6),
    "1080p": (1080, 1920, 4),
    "2160p": (2160, 3840, 3),
}
"""Height, width, iterations: as many as it takes to see a fast one."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", choices=tuple(unsnap.METHODS), default="gap-tv3d")
    parser.add_argument("--sizes", default=",".join(SIZES), help="some of " + ", ".join(SIZES))
    parser.add_argument("--frames", default="4,8,16,24")
    parser.add_argument("--arrays", action="store_true", help="glibc keeps nothing that was freed: arrays alone")
    parser.add_argument("--json", type=Path)
    parser.add_argument(
        "--worker", type=int, nargs=4, metavar=("FRAMES", "HEIGHT", "WIDTH", "ITERATIONS"), help=argparse.SUPPRESS
    )
    arguments = parser.parse_args()
    if arguments.worker:
        print(json.dumps(measure(arguments.method, *arguments.worker)))
        return
    sizes = arguments.sizes.split(",")
    cases = [(name, 8) for name in sizes] + [(sizes[0], int(t)) for t in arguments.frames.split(",") if int(t) != 8]
    settings = {"MALLOC_MMAP_THRESHOLD_": "65536"} if arguments.arrays else {}
    runs = [_in_fresh_process(settings, arguments.method, frames, *SIZES[name]) for name, frames in cases]
    rows = [
        {
            "size": f"{name} × {frames}",
            "CPU s per megapixel·frame·iteration": run["cost"],
            "relative to the first": run["cost"] / runs[0]["cost"],
            "CPU s per megapixel·frame before": run["before"],
            "video MB": run["video"] / 1e6,
            "peak above scene / video": run["above"] / run["video"],
            "peak with scene / video": run["whole"] / run["video"],
        }
        for (name, frames), run in zip(cases, runs, strict=True)
    ]
    show(f"{arguments.method}, one thread", rows)
    finish(arguments.json, rows)


def _in_fresh_process(settings: dict[str, str], method: str, *numbers: int) -> dict[str, Any]:
    command = [sys.executable, __file__, "--method", method, "--worker", *map(str, numbers)]
    environment = {**os.environ, **settings}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    run: dict[str, Any] = json.loads(done.stdout)
    return run


def measure(name: str, frames: int, height: int, width: int, iterations: int) -> dict[str, float]:
    torch.set_num_threads(1)
    method = unsnap.METHODS[name]
    tile = render(frames, 256, 256)
    y, masks = scene(tile, 64, 64)
    method(y, unsnap.Snapshot(masks), iterations=2)  # compiles the kernels
    empty = resident()
    forget_peak()
    y, masks = scene(tile, height, width)
    loaded = resident()
    ticks = [time.process_time()]

    def tick(iteration: int, x: Tensor, change: Tensor) -> None:
        if iteration >= 1:  # those of a start count up to 0
            ticks.append(time.process_time())

    method(y, unsnap.Snapshot(masks), iterations=iterations, callback=tick)
    peak = highest()
    cost = min(b - a for a, b in pairwise(ticks[1:]))
    pixels = frames * height * width
    return {
        "cost": cost / (pixels / 1e6),
        "before": max(ticks[1] - ticks[0] - cost, 0) / (pixels / 1e6),
        "video": pixels * 4,
        "above": peak - loaded,
        "whole": peak - empty,
    }


def scene(tile: Tensor, height: int, width: int) -> tuple[Tensor, Tensor]:
    """Snapshot and masks of the tiled video, made frame by frame so that making them leaves no peak behind."""
    generator = torch.Generator().manual_seed(0)
    y, masks = torch.zeros(height, width), torch.empty(len(tile), height, width)
    for t in range(len(tile)):
        masks[t].bernoulli_(0.5, generator=generator)
        y.addcmul_(masks[t], tile[t].repeat(-(-height // 256), -(-width // 256))[:height, :width])
    return y, masks


def forget_peak() -> None:
    """Count the largest size of this process anew, if the system can (Linux): imports and compilers need memory too."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def highest() -> int:
    """Bytes of memory this process held at most."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def resident() -> float:
    """Bytes of memory this process holds now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


if __name__ == "__main__":
    main()
