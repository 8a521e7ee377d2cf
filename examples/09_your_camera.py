"""Raw files of a camera with every fault, and what repairing each of them is worth.

    python examples/09_your_camera.py [FOLDER]

writes what such a camera would: snapshots as pages of a 12-bit TIFF, its dark and white frames, its masks, and a list
of bad pixels. The command line does the same as the last line of the table, first with `unsnap calibrate` and
`-o camera.npz` in place of `reconstruct` and `--camera`:

    unsnap reconstruct raw.tif --masks masks.npz --scale 500 --dark dark.tif --white white.tif --bad-pixels bad.txt \\
        --saturated exclude --camera camera.npz
"""

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import tifffile
import torch

import unsnap
from unsnap.io import save_arrays
from unsnap.io.raw import Raw
from unsnap.masks import bernoulli
from unsnap.simulate import render

folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp())
folder.mkdir(parents=True, exist_ok=True)
random = np.random.default_rng(0)
T, SIDE, WHITE, FULL = 8, 64, 500, 1900  # WHITE: counts of white through one open mask; FULL: where the well is full

video = render(2 * T, SIDE, SIDE, seed=4).reshape(2, T, SIDE, SIDE)
plate = bernoulli(T, SIDE + 8, SIDE + 8, generator=torch.Generator().manual_seed(0))


def seen(down: float, right: float) -> torch.Tensor:
    """What the pixels see of the plate when it is moved: parts of two cells along each axis."""
    found = plate
    for axis, move in ((-2, down), (-1, right)):
        whole = int(move // 1)
        found = (1 - move + whole) * found.roll(whole, axis) + (move - whole) * found.roll(whole + 1, axis)
    return found[:, 4:-4, 4:-4].contiguous()


masks = seen(1.4, -0.8)  # those that code the capture; the file holds them as they were recorded
light = WHITE * (masks * video).sum(1).numpy()

# The other faults: a dark signal that glows at the left, gains that differ, dead, hot and restless pixels, a full well.
dark = 200 + 150 * np.exp(-np.arange(SIDE) / 20) + random.normal(0, 3, (SIDE, SIDE))
gain = np.linspace(0.75, 1.2, SIDE)[:, None] * random.normal(1, 0.03, (SIDE, SIDE))
restless, dead, hot = (random.integers(0, SIDE, (15, 2)) for _ in range(3))
gain[tuple(dead.T)] = 0
dark[tuple(hot.T)] += 2000


def counts(falling: np.ndarray) -> np.ndarray:
    """What the sensor reads: 12 bits."""
    return (gain * falling + dark + random.normal(0, 5, falling.shape)).clip(0, FULL).round().astype(np.uint16)


light[:, restless[:, 0], restless[:, 1]] = random.uniform(0, 4 * WHITE, (2, 15))  # at times, and not in test pictures
tifffile.imwrite(folder / "raw.tif", counts(light))
tifffile.imwrite(folder / "dark.tif", np.stack([counts(np.zeros((SIDE, SIDE))) for _ in range(8)]))
tifffile.imwrite(folder / "white.tif", np.stack([counts(np.full((SIDE, SIDE), 1000.0)) for _ in range(8)]))
save_arrays(folder / "masks.npz", mask=seen(0, 0).numpy())
(folder / "bad.txt").write_text("# y,x\n" + "\n".join(f"{y},{x}" for y, x in restless))

repairs = {
    "dark frame": {"dark": folder / "dark.tif"},
    "white frame": {"white": folder / "white.tif"},
    "bad pixels": {"bad_pixels": folder / "bad.txt"},
    "saturated pixels": {"saturated": "exclude"},
}


def read(*names: str) -> unsnap.Scene:
    """The capture with some of the repairs."""
    raw = replace(Raw(), **{key: value for name in names for key, value in repairs[name].items()})
    return unsnap.load_scene(folder / "raw.tif", masks=folder / "masks.npz", scale=WHITE, raw=raw)


def tell(name: str, scene: unsnap.Scene) -> None:
    # The operator in place of the masks: it also knows which pixels are left out.
    solution = unsnap.reconstruct(scene.measurement, scene.operator, "gap-tv3d")
    print(f"{name:28s} PSNR {unsnap.score(solution.x, video).psnr:6.2f} dB")


scene = read(*repairs)
camera = unsnap.calibrate(scene)  # where the masks really were
tell("as it is", read())
tell("all but the moved masks", scene)
for missing in repairs:
    tell(f"all but the {missing}", camera.apply(read(*(name for name in repairs if name != missing))))
tell("all repaired", camera.apply(scene))
down, across = camera.uncertainty["shift"]
print(f"  note: moved by {camera.shift[0]:.3f} ± {down:.3f} rows, {camera.shift[1]:.3f} ± {across:.3f} columns")
for note in scene.meta["notes"]:
    print("  note:", note)
perfect = unsnap.reconstruct((masks * video).sum(1), masks, "gap-tv3d")
print(f"{'a perfect camera':28s} PSNR {unsnap.score(perfect.x, video).psnr:6.2f} dB")
