"""One mask that moves: does it tell unequal exposures from masks that lie further along their way, and how surely?

    python benchmarks/moving_mask.py CAPTURE --clips FOLDER [--shift 0.65] [--json PATH]

CAPTURE is a real one whose masks are one mask on its way (along rows). They code validation clips and a wheel that is
drawn, with equal exposures and noise of 0.02, at rest and moved along the way by quintic splines, which the search does
not use. "said": what `inspect` says about exposure; "error / σ": of the shift along the way that `calibrate` finds from
the middle of 128 × 128 pixels.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.ndimage import shift as moved_by

from common import console, finish, show
from unsnap import Scene, calibrate, diagnose, load_scene
from unsnap.io import read_video

Array = NDArray[np.float32]
SIDE = 128


def wheel(frames: int, height: int, width: int, degrees: float) -> Array:
    """Six bright spokes that turn by so many degrees a frame, before an even wall; every pixel is the mean of four."""
    found = np.zeros((frames, height, width), np.float32)
    for down, right in ((-0.25, -0.25), (-0.25, 0.25), (0.25, -0.25), (0.25, 0.25)):
        y, x = np.mgrid[:height, :width] - np.reshape([height / 2 - down, width / 2 - right], (2, 1, 1))
        angle = np.degrees(np.arctan2(y, x)) - degrees * np.arange(frames)[:, None, None]
        found += np.where(np.hypot(y, x) < 0.45 * height, np.where(angle % 60 < 30, 0.75, 0.12), 0.4) / 4
    return found


def scene(video: Array, coding: Array, given: Array, random: np.random.Generator) -> Scene:
    y = (coding * video).sum(0) + 0.02 * random.standard_normal(video.shape[1:])
    return Scene(torch.from_numpy(y.astype(np.float32))[None], torch.from_numpy(np.ascontiguousarray(given)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("capture", type=Path)
    parser.add_argument("--clips", type=Path, required=True)
    parser.add_argument("--shift", type=float, default=0.65)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    masks = load_scene(options.capture).masks.numpy()
    frames, height, width = masks.shape
    away = np.stack([moved_by(mask, (options.shift, 0), order=5, mode="mirror") for mask in masks])
    videos = {path.stem: read_video(path)[:frames, :height, :width].numpy() for path in options.clips.glob("*.npz")}
    videos["wheel"] = wheel(frames, height, width, 4.0)
    middle = tuple(slice((side - SIDE) // 2, (side + SIDE) // 2) for side in (height, width))
    random = np.random.default_rng(0)
    rows: list[dict[str, Any]] = []
    found: list[dict[str, Any]] = []
    for name, video in sorted(videos.items()):
        for coding in (masks, away):
            one = scene(video, coding, masks, random)
            said = [finding for finding in diagnose(one, deep=True) if finding.subject == "exposure"]
            rows.append({"video": name, "moved": coding is away, "level": said[0].level, "said": said[0].text})
            if coding is masks:
                continue
            part = (slice(None), *middle)
            camera = calibrate(scene(video[part], coding[part], masks[part], random))
            error, sigma = camera.shift[0] - options.shift, camera.uncertainty["shift"][0]
            found.append({"video": name, "error": error, "σ": sigma, "error / σ": error / sigma})
            console.print(rows[-2:], found[-1])
    show(f"what inspect says, through masks of {options.capture.name}", rows)
    show(f"the shift of {options.shift} pixels that calibrate finds", found)
    finish(options.json, {"inspect": rows, "calibrate": found})


if __name__ == "__main__":
    main()
