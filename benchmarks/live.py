"""How fast is the live tier? Snapshots per second that gap-tv3d holds, and whether starting from the last video helps.

python benchmarks/live.py                # rates on all cores torch sees, for 256×256 and 640×480, T = 8
python benchmarks/live.py --warm         # PSNR by iterations, cold against warm, on rendered sequences
python benchmarks/live.py --cores        # 8 snapshots of a file: one thread, two threads, two processes of one each

Rates are also given without the time in which this process was ready to run and others had the processor, as the system
counts it (/proc/self/schedstat): what an idle machine would give, as far as one can tell on one that is not.
"""

from __future__ import annotations

import argparse
import os
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import torch

from unsnap import TV, Snapshot, gap, psnr, reconstruct
from unsnap.masks import bernoulli
from unsnap.simulate import render

T = 8


def sequence(height: int, width: int, snapshots: int, seed: int) -> tuple[torch.Tensor, Snapshot, torch.Tensor]:
    phi = Snapshot(bernoulli(T, height, width, generator=torch.Generator().manual_seed(seed)))
    truth = render(T * snapshots, height, width, seed=seed).reshape(snapshots, T, height, width)
    return phi.A(truth), phi, truth


def waited() -> float:
    """Seconds in which this thread was ready to run and did not."""
    return int(Path("/proc/self/schedstat").read_text().split()[1]) / 1e9


def pieces(index: int, count: int, size: int, snapshots: int, threads: int) -> tuple[int, float, float, float]:
    """Every count-th snapshot: how many, wall-clock, waiting and processor seconds."""
    torch.set_num_threads(threads)
    y, phi, _ = sequence(size, size, snapshots, 0)
    reconstruct(y[:1], phi, "gap-tv3d", iterations=1)  # kernels warm
    own = y[index::count]
    since = time.perf_counter(), waited(), time.process_time()
    for snapshot in own:
        reconstruct(snapshot, phi, "gap-tv3d")
    wall, wait, cpu = (b - a for a, b in zip(since, (time.perf_counter(), waited(), time.process_time()), strict=True))
    return len(own), wall, wait, cpu


def cores(size: int = 256, snapshots: int = 8) -> None:
    """One thread, two threads of one process, two processes of one thread: which is the fastest for one file?"""
    print(f"gap-tv3d, {snapshots} snapshots of {T} × {size}², load {os.getloadavg()[0]:.1f}")
    first = None
    for name, processes, threads in (("1 thread", 1, 1), ("2 threads", 1, 2), ("2 processes", 2, 1)):
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            found = list(
                pool.map(pieces, range(processes), *([v] * processes for v in (processes, size, snapshots, threads)))
            )
        rate = snapshots / max(wall for _, wall, _, _ in found)
        free = sum(count / (wall - wait) for count, wall, wait, _ in found)
        cpu = sum(cpu for *_, cpu in found) / snapshots
        first = first or (rate, free, cpu)
        print(
            f"{name:12s} {rate:6.2f} snapshots/s ({rate / first[0]:.2f} ×), {free:6.2f} without waiting "
            f"({free / first[1]:.2f} ×), {cpu:.3f} CPU-s each ({cpu / first[2]:.2f} ×)",
            flush=True,
        )


def rates() -> None:
    print(f"{torch.get_num_threads()} threads, load {os.getloadavg()[0]:.1f}; frames/s = T × snapshots/s")
    for height, width in ((256, 256), (480, 640)):
        y, phi, truth = sequence(height, width, 4, 0)
        reconstruct(y[:1], phi, "gap-tv3d", iterations=1)  # kernels warm
        for iterations in (40, 20, 10, 5):
            wall, wait, cpu, scores = time.perf_counter(), waited(), time.process_time(), []
            for snapshot, video in zip(y, truth, strict=True):
                found = reconstruct(snapshot, phi, "gap-tv3d", iterations=iterations).x
                scores += [psnr(found, video).mean()]
            wall, cpu = (time.perf_counter() - wall) / len(y), (time.process_time() - cpu) / len(y)
            free = wall - (waited() - wait) / len(y)
            print(
                f"{width}×{height}, {iterations:2d} iterations: {1 / wall:6.2f} snapshots/s, {T / wall:6.1f} frames/s, "
                f"{1 / free:6.2f} and {T / free:6.1f} without waiting, "
                f"{cpu:.3f} CPU-s each ({1e6 * cpu / (T * height * width):.2f} CPU-s per megapixel-frame), "
                f"{float(torch.stack(scores).mean()):.2f} dB",
                flush=True,
            )


def warm() -> None:
    """The start: least squares; the last frame of the last video, repeated; or the last video as it is."""
    prior = TV(temporal=0.5)
    for iterations in (3, 5, 10, 20, 40):
        sums = torch.zeros(3)
        for seed in range(4):
            y, phi, truth = sequence(96, 96, 4, seed)
            video = gap(y[0], phi, prior, [0.1] * 40, early=False).x
            for k in range(1, 4):
                starts = (None, phi.project(video[-1:].expand_as(video), y[k]), phi.project(video, y[k]))
                found = [gap(y[k], phi, prior, [0.1] * iterations, x0=x0, early=False).x for x0 in starts]
                sums += torch.tensor([float(psnr(x, truth[k]).mean()) for x in found]) / 12
                video = found[0]
        print(
            f"{iterations:2d} iterations: cold {sums[0]:.2f} dB, last frame {sums[1]:.2f}, last video {sums[2]:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--warm", action="store_true")
    parser.add_argument("--cores", action="store_true")
    given = parser.parse_args()
    if given.warm:
        warm()
    elif given.cores:
        cores()
    else:
        rates()
