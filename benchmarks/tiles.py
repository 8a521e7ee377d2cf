"""Tiles against the whole, and a picture that does not fit: PSNR, differences at the seams, memory.

    python benchmarks/tiles.py [--size 1024] [--tile 256] [--offset 96] [--methods gap-tv3d,gap-wnnm] [--picture PATH]
    python benchmarks/tiles.py --size 512 --overlaps gap-tv3d
    python benchmarks/tiles.py --large 4096 [--frames 16] [--memory 2G] [--method gap-tv3d] [--iterations 40]

The picture is a mosaic of rendered scenes, whose noise, light and motion differ from one to the next. The large one is
made and reconstructed by `unsnap reconstruct --memory` in a process of its own, in a folder that is gone at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from common import finish, show
from unsnap import tiling
from unsnap.masks import bernoulli
from unsnap.methods import Method, get
from unsnap.metrics import psnr
from unsnap.scene import Scene
from unsnap.simulate import render
from unsnap.tiling.plan import FADE


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--methods", default="gap-tv3d,gap-wnnm")
    parser.add_argument("--tile", type=int, default=256)
    parser.add_argument("--offset", type=int, default=96, help="of the scenes, whose borders lie on seams without it")
    parser.add_argument("--overlaps", help="a method: what fewer or more pixels around a tile make of it")
    parser.add_argument("--picture", type=Path, help="the seams of the last method, as a picture")
    parser.add_argument("--large", type=int, help="side of a picture that does not fit")
    parser.add_argument("--frames", type=int, default=16)
    parser.add_argument("--memory", default="2G")
    parser.add_argument("--method", default="gap-tv3d")
    parser.add_argument("--iterations", type=int, default=40)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.large:
        rows = [large(arguments)]
    elif arguments.overlaps:
        method, scene = get(arguments.overlaps), mosaic(arguments.size, arguments.offset)
        whole = method(scene.measurement, scene.operator).x[0]
        rows = [compare(scene, replace(method, reach=r), whole, arguments.size // 2)[0] for r in (0, 4, 8, 16, 24, 32)]
    else:
        rows, scene = [], mosaic(arguments.size, arguments.offset)
        for name in arguments.methods.split(","):
            method = get(name)
            start = time.process_time()
            whole = method(scene.measurement, scene.operator).x[0]
            spent = time.process_time() - start
            row, joined = compare(scene, method, whole, arguments.tile)
            rows.append({**row, "CPU s": spent, "CPU s tiled": row["CPU s tiled"]})
            if arguments.picture:
                draw(whole, joined, arguments.tile, arguments.picture)
    show("tiles", rows)
    finish(arguments.json, rows)


def mosaic(size: int, offset: int, frames: int = 8, side: int = 256) -> Scene:
    """Rendered scenes of other light, noise and speed beside one another; the first begins `offset` pixels outside."""
    count = -(-(size + offset) // side)
    generator = torch.Generator().manual_seed(0)
    base = render(2 * frames, side, side)
    rows = []
    for r in range(count):
        row = []
        for c in range(count):
            k = r * count + c
            part = base[(k % 2) * 4 : (k % 2) * 4 + frames].rot90(k % 4, (-2, -1))
            row.append((0.35 + 0.65 * ((5 * k) % 7) / 6) * part)
        rows.append(torch.cat(row, -1))
    truth = torch.cat(rows, -2)[:, offset : offset + size, offset : offset + size].contiguous()
    masks = bernoulli(frames, size, size, generator=generator)
    scene = Scene.of(truth[None], masks)
    noise = 0.02 * torch.randn(scene.measurement.shape, generator=generator)
    return replace(scene, measurement=scene.measurement + noise)


def compare(scene: Scene, method: Method, whole: Tensor, side: int) -> tuple[dict[str, Any], Tensor]:
    """Tiles of `side` pixels against the picture as a whole."""
    if scene.truth is None:
        raise SystemExit("no truth")
    frames, height, width = scene.operator.video
    plan = tiling.plan((frames, height, width), method, side=side)
    start = time.process_time()
    answers = tiling.survey(tiling.sample(scene), method)
    parts = {
        t.index: tiling.kept(tiling.reconstruct(tiling.cut(scene, t), method, answers).x[0], t) for t in plan.tiles
    }
    spent = time.process_time() - start
    joined = torch.empty_like(whole)
    for frame, rows, picture in tiling.blended(plan, frames, lambda tile, frame: parts[tile.index][frame]):
        joined[frame, rows] = torch.from_numpy(picture)
    miss, seams = (joined - whole).abs(), [span.start for span in plan.rows[1:]]
    near = torch.cat(
        [miss[:, s - FADE : s + FADE].flatten() for s in seams]
        + [miss[..., s - FADE : s + FADE].flatten() for s in seams]
    )
    scores = [float(psnr(x[None], scene.truth).mean()) for x in (whole, joined)]
    row = {
        "method": method.name,
        "tiles": len(plan.tiles),
        "around": method.reach + FADE,
        "PSNR whole": scores[0],
        "difference dB": scores[1] - scores[0],
        "rms difference": float(miss.square().mean().sqrt()),
        "largest": float(miss.max()),
        "largest at seams": float(near.max()),
        "rms at seams": float(near.square().mean().sqrt()),
        "CPU s tiled": spent,
    }
    return row, joined


def draw(whole: Tensor, joined: Tensor, side: int, path: Path) -> None:
    """Around the corner of four tiles: whole, tiles, and their difference 200 times as large."""
    from PIL import Image

    part = (slice(side - 64, side + 64), slice(side - 64, side + 64))
    a, b = whole[0][part], joined[0][part]
    strip = torch.cat([a, b, 0.5 + 200 * (b - a)], -1).clamp(0, 1)
    picture = Image.fromarray((255 * strip).byte().numpy()).resize((3 * 256, 256), Image.Resampling.NEAREST)
    picture.save(path)


def large(arguments: argparse.Namespace) -> dict[str, Any]:
    """unsnap reconstruct in a process of its own, whose largest resident memory is what counts."""
    import h5py

    side, frames = arguments.large, arguments.frames
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:
        folder = Path(name)
        write_large(folder / "large.h5", frames, side, h5py)
        command = [sys.executable, "-m", "unsnap", "reconstruct", str(folder / "large.h5"), "-m", arguments.method]
        command += ["--iterations", str(arguments.iterations), "--memory", arguments.memory, "--json"]
        empty = _peak([sys.executable, "-c", "import unsnap.cli.reconstruct, unsnap.methods, numba, h5py, scipy.io"])[0]
        start = time.perf_counter()
        peak, out = _peak([*command, "-o", str(folder / "video.npy")])
        seconds = time.perf_counter() - start
        result = json.loads(out)
        video = np.load(folder / "video.npy", mmap_mode="r")
        return {
            "size": f"{side}²×{frames}",
            "method": arguments.method,
            "video MB": video.nbytes / 1e6,
            "PSNR": result["psnr"],
            "interpreter MB": empty / 1e6,
            "peak MB above": (peak - empty) / 1e6,
            "CPU s": result["cpu_seconds"],
            "wall s": seconds,
        }


def write_large(path: Path, frames: int, side: int, h5py: Any) -> None:
    """A scene of unsnap's own format, made frame by frame; the truth is the rendered scene, repeated."""
    tile = render(frames, 256, 256)
    generator = torch.Generator().manual_seed(0)
    y = torch.zeros(side, side)
    with h5py.File(path, "w") as file:
        masks = file.create_dataset("mask", (frames, side, side), "f4")
        truth = file.create_dataset("orig", (frames, side, side), "f4")
        for t in range(frames):
            mask = torch.empty(side, side).bernoulli_(0.5, generator=generator)
            picture = tile[t].repeat(-(-side // 256), -(-side // 256))[:side, :side]
            masks[t], truth[t] = mask.numpy(), picture.numpy()
            y.addcmul_(mask, picture)
        file["meas"], file["unsnap_format"] = y[None].numpy(), np.array([1], np.int32)


def _peak(command: list[str]) -> tuple[int, str]:
    """Largest resident memory of a command, and what it printed."""
    wrapped = (
        "import resource,subprocess,sys;r=subprocess.run(sys.argv[1:],stdout=subprocess.PIPE,text=True);"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss);print(r.stdout);sys.exit(r.returncode)"
    )
    environment = {**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
    run = subprocess.run([sys.executable, "-c", wrapped, *command], stdout=subprocess.PIPE, text=True, env=environment)
    first, _, rest = run.stdout.partition("\n")
    if run.returncode not in (0, 3):
        raise SystemExit(rest)
    return 1024 * int(first), rest


if __name__ == "__main__":
    main()
