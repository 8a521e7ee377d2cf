"""How fast is the live tier? Snapshots per second that gap-tv3d holds, and whether starting from the last video helps.

python benchmarks/live.py                # rates on all cores torch sees, for 256×256 and 640×480, T = 8
python benchmarks/live.py --warm         # PSNR by iterations, cold against warm, on rendered sequences
"""

from __future__ import annotations

import argparse
import time

import torch

from unsnap import TV, Snapshot, gap, psnr, reconstruct
from unsnap.masks import bernoulli
from unsnap.simulate import render

T = 8


def sequence(height: int, width: int, snapshots: int, seed: int) -> tuple[torch.Tensor, Snapshot, torch.Tensor]:
    phi = Snapshot(bernoulli(T, height, width, generator=torch.Generator().manual_seed(seed)))
    truth = render(T * snapshots, height, width, seed=seed).reshape(snapshots, T, height, width)
    return phi.A(truth), phi, truth


def rates() -> None:
    print(f"{torch.get_num_threads()} threads; frames per second = T × snapshots per second")
    for height, width in ((256, 256), (480, 640)):
        y, phi, truth = sequence(height, width, 4, 0)
        reconstruct(y[:1], phi, "gap-tv3d", iterations=1)  # kernels warm
        for iterations in (40, 20, 10, 5):
            wall, cpu, scores = time.perf_counter(), time.process_time(), []
            for snapshot, video in zip(y, truth, strict=True):
                found = reconstruct(snapshot, phi, "gap-tv3d", iterations=iterations).x
                scores += [psnr(found, video).mean()]
            wall, cpu = (time.perf_counter() - wall) / len(y), (time.process_time() - cpu) / len(y)
            print(
                f"{width}×{height}, {iterations:2d} iterations: {1 / wall:6.2f} snapshots/s, {T / wall:6.1f} frames/s, "
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
    if parser.parse_args().warm:
        warm()
    else:
        rates()
