"""How well `calibrate` finds masks that were moved, turned, stretched and blurred behind the optics.

    python benchmarks/calibration.py [--clips FOLDER] [--size 128] [--trials 36] [--seed 0] [--json PATH]

A trial is decided by --seed and its number. With --json every trial is kept as soon as it is done, and the same command
goes on where it was stopped; so does one with more --trials.

The masks that code the capture are made on a grid four times as fine (features as large as pixels, 1.3 or 2 pixels, or
one mask that moves; sharp or through optics), moved there by cubic splines, blurred, and then summed over each pixel;
the search has only the summed masks at rest, between whose pixels it interpolates by itself: it never sees the kernel
that made the truth, whose splines ring a little at sharp edges. Every third capture is aligned. PSNR is that of
gap-tv3d, without the border of 6 pixels where the masks at rest know nothing, and with the true gain, as no snapshot
tells it from the brightness of the scene. "limit" is what the true motion, blur and offset lose with the softness that
makes the masks most nearly right between their given pixels: masks finer than their pixels are not known between them,
and no search can find them.

Columns: n captures that were moved; how many lose at most 0.3 dB; aligned captures left alone; error of the shift in
pixels, median and 95 %; loss, median and most; the largest limit; what was gained; error of the offset; how often shift
(either axis) and offset are within twice the uncertainty that is stated (95 % would be right); processor seconds.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter, map_coordinates

from common import console, finish, show
from unsnap import Scene, psnr, reconstruct
from unsnap.calibration import Camera, calibrate
from unsnap.io import read_video
from unsnap.simulate import render

FINE, MARGIN, BORDER = 4, 8, 6
KINDS = ("sharp", "optics 0.3", "optics 0.6", "features of 1.3", "features of 2", "moving")
Array = NDArray[np.float32]


def plate(kind: str, frames: int, size: int, random: np.random.Generator) -> Array:
    """Masks on the fine grid, with a margin."""
    side = size + 2 * MARGIN
    pitch = {"features of 1.3": 1.3, "features of 2": 2.0}.get(kind, 1.0)
    optics = {"sharp": 0.0, "optics 0.6": 0.6}.get(kind, 0.3)
    count = int(side / pitch) + 2
    dots = (random.random((frames, count, count)) < 0.5).astype(np.float32)
    if kind == "moving":
        long = (random.random((count + frames, count)) < 0.5).astype(np.float32)
        dots = np.stack([long[frames - t : frames - t + count] for t in range(frames)])
    nearest = (np.arange(side * FINE) / (FINE * pitch)).astype(int)
    fine = dots[:, nearest][:, :, nearest]
    return gaussian_filter(fine, (0, optics * FINE, optics * FINE)) if optics else fine


def seen(fine: Array, size: int, camera: Camera) -> Array:
    """What the pixels see of the plate when it is moved and blurred."""
    if camera.blur:
        fine = gaussian_filter(fine, (0, camera.blur * FINE, camera.blur * FINE))
    if not camera.motion.still:
        middle = (fine.shape[-1] - 1) / 2
        grid = np.arange(fine.shape[-1]) - middle
        y, x = grid[:, None] - camera.shift[0] * FINE, grid[None] - camera.shift[1] * FINE
        cos, sin = np.cos(np.radians(camera.rotation)), np.sin(np.radians(camera.rotation))
        places = [(cos * y + sin * x) / camera.scale + middle, (cos * x - sin * y) / camera.scale + middle]
        fine = np.stack([map_coordinates(picture, places, order=3, mode="mirror") for picture in fine])
    side = size + 2 * MARGIN
    masks = fine.reshape(-1, side, FINE, side, FINE).mean((2, 4))[:, MARGIN:-MARGIN, MARGIN:-MARGIN]
    return np.ascontiguousarray(masks.clip(0, 1), np.float32)


def videos(folder: Path | None, size: int, frames: int) -> list[tuple[str, Array]]:
    found = [(f"rendered {seed}", render(frames, size, size, seed=seed).numpy()) for seed in range(4)]
    for path in sorted(folder.glob("*.npz")) if folder else []:
        clip = read_video(path).numpy()
        top, left = (clip.shape[1] - size) // 2, (clip.shape[2] - size) // 2
        found.append((path.stem, clip[:frames, top : top + size, left : left + size]))
    return found


def trial(number: int, name: str, x: Array, kind: str, random: np.random.Generator) -> dict[str, Any]:
    frames, size = x.shape[0], x.shape[-1]
    fine = plate(kind, frames, size, random)
    true = Camera()
    gain, blurry = float(random.uniform(0.7, 1.3)), float(random.uniform(0, 0.8))
    if number % 3 != 2:
        shift = tuple(float(v) for v in random.uniform(-3, 3, 2))
        turn, stretch = float(random.uniform(-1, 1)), 1 + float(random.uniform(-0.01, 0.01))
        true = Camera(shift, turn, stretch, blurry if number % 2 else 0.0, offset=float(random.uniform(0, 0.3)))
    given, masks = seen(fine, size, Camera()), seen(fine, size, true)
    noise = 0.02 * random.standard_normal((size, size))
    y = torch.from_numpy((gain * (masks * x).sum(0) + true.offset + noise).astype(np.float32))[None]
    scene = Scene(y, torch.from_numpy(given))
    start = time.process_time()
    found = calibrate(scene)
    seconds = time.process_time() - start

    def score(scene: Scene) -> float:
        inner = (..., slice(BORDER, -BORDER), slice(BORDER, -BORDER))
        video = reconstruct(scene.measurement / gain, scene.masks, "gap-tv3d").x[inner]
        return float(psnr(video, torch.from_numpy(x)[None][inner]).mean())

    right = score(Scene(y - true.offset, torch.from_numpy(masks)))
    inner = (..., slice(BORDER, -BORDER), slice(BORDER, -BORDER))
    models = [replace(true, softness=softness).apply(scene) for softness in (-0.2, -0.1, 0, 0.15, 0.3, 0.45, 0.6)]
    best = min(models, key=lambda one: float((one.masks - torch.from_numpy(masks))[inner].square().sum()))
    row = {
        "number": number, "scene": name, "masks": kind, "aligned": true == Camera(), "changed": found.changed,
        "shift error": float(np.hypot(*np.subtract(found.shift, true.shift))),
        "rotation error": abs(found.rotation - true.rotation), "scale error %": 100 * abs(found.scale - true.scale),
        "offset error": found.offset - true.offset, "blur": true.blur, "blur found": found.blur,
        "told": found.told, "gained dB": 0.0, **within(found, true),
        "limit dB": right - (right if true == Camera() else score(best)),
        "given dB": score(scene), "calibrated dB": score(found.apply(scene)), "true dB": right, "CPU-s": seconds,
    }  # fmt: skip
    return {**row, "loss dB": right - row["calibrated dB"], "gained dB": row["calibrated dB"] - row["given dB"]}


def within(found: Camera, true: Camera) -> dict[str, float]:
    """Errors in units of the uncertainty stated."""
    told = found.uncertainty if found.told else {"shift": [np.inf, np.inf], "offset": np.inf}
    errors = [*np.subtract(found.shift, true.shift) / told["shift"], (found.offset - true.offset) / told["offset"]]
    return dict(zip(("shift y / σ", "shift x / σ", "offset / σ"), map(float, errors), strict=True))


def summary(rows: list[dict[str, Any]], name: str) -> dict[str, Any]:
    moved = [row for row in rows if not row["aligned"]]
    still = [row for row in rows if row["aligned"]]
    errors, losses, limits, gains, offsets = (
        np.array([row[key] for row in moved])
        for key in ("shift error", "loss dB", "limit dB", "gained dB", "offset error")
    )
    deviations = np.array([row[f"shift {axis} / σ"] for row in moved for axis in "yx"])
    left = sum(not row["changed"] for row in still)
    found = {
        "px": np.median(errors), "95 %": np.quantile(errors, 0.95), "loss dB": np.median(losses), "most": losses.max(),
        "limit": limits.max(), "gain dB": np.median(gains), "offset": np.median(np.abs(offsets)),
        "in 2 σ": np.mean(np.abs(deviations) < 2), "offset in 2 σ": np.mean([abs(r["offset / σ"]) < 2 for r in moved]),
        "CPU-s": np.median([row["CPU-s"] for row in rows]),
    }  # fmt: skip
    counts = {"n": len(moved), "≤ 0.3": int((losses <= 0.3).sum()), "still": f"{left}/{len(still)}"}
    return {"masks": name, **counts, **{key: round(float(value), 3) for key, value in found.items()}}


def kept(path: Path | None, settings: dict[str, str]) -> list[dict[str, Any]]:
    """The trials that an earlier run with these settings has done."""
    if path is None or not path.exists():
        return []
    results = json.loads(path.read_text())["results"]
    if results["settings"] != settings:
        raise SystemExit(f"{path} holds trials with other settings, {results['settings']}; name another file")
    return list(results["trials"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clips", type=Path)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--frames", type=int, default=8)
    parser.add_argument("--trials", type=int, default=36)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--each", action="store_true", help="print every trial")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found, kinds = videos(options.clips, options.size, options.frames), options.kinds.split(",")
    settings = {name: str(getattr(options, name)) for name in ("clips", "size", "frames", "seed", "kinds")}
    rows = kept(options.json, settings)
    done = {row["number"] for row in rows}
    for number in sorted(set(range(options.trials)) - done):
        name, x = found[number % len(found)]
        random = np.random.default_rng([options.seed, number])
        rows.append(trial(number, name, x, kinds[(number // 3) % len(kinds)], random))
        finish(options.json, {"settings": settings, "trials": rows})
        if options.each:
            console.print({k: round(v, 3) if isinstance(v, float) else v for k, v in rows[-1].items()}, width=300)
    moved = {row["masks"] for row in rows if not row["aligned"]}
    groups = [summary([row for row in rows if row["masks"] == kind], kind) for kind in kinds if kind in moved]
    show(f"calibration, {options.size}², T = {options.frames}, {len(rows)} trials", [*groups, summary(rows, "all")])


if __name__ == "__main__":
    main()
