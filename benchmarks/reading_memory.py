"""Peak memory of reading a scene or a video over what was claimed for it: at most 1, or the bound is none.

    python benchmarks/reading_memory.py [MEGABYTES]

Every file is read in a process of its own, whose peak before (libraries, a small file of the same kind) is taken off.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

CHILD = """
import re, sys
from pathlib import Path
from unsnap.io import load_scene, memory, read_video
read = read_video if sys.argv[1] == "video" else load_scene
def peak(): return 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
read(sys.argv[2])
before = peak()
with memory(2**40) as budget:
    read(sys.argv[3])
print(budget.peak, peak() - before)
"""


def write(path: Path, size: int, dtype: str) -> None:
    """A scene (8 masks, one snapshot, its truth), or a video where the format holds one array."""
    import h5py
    import scipy.io
    import tifffile
    import torch

    from unsnap.io import save_arrays, save_video

    side = max(16, int((size / np.dtype(dtype).itemsize / 17) ** 0.5))
    rng = np.random.default_rng(0)
    mask = rng.integers(0, 2, (8, side, side)).astype(dtype)
    truth = rng.integers(0, 256, (8, side, side)).astype(dtype)
    arrays = {"meas": (mask.astype("f4") * truth).sum(0).astype(dtype), "mask": mask, "orig": truth}
    kind, *how = path.stem.split("-")
    if kind == "v73":
        with h5py.File(path, "w", userblock_size=512) as file:
            for name, array in arrays.items():
                file[name] = array.T
    elif path.suffix == ".mat" and "plain" in how:
        scipy.io.savemat(path, {name: np.moveaxis(a, 0, -1) if a.ndim == 3 else a for name, a in arrays.items()})
    elif path.suffix == ".tif":
        tifffile.imwrite(path, truth, photometric="minisblack", compression="zlib" if "zlib" in how else None)
    elif path.suffix == ".mp4":
        save_video(path, torch.from_numpy(truth.astype("f4") / 255))
    elif path.suffix == ".npy":
        np.save(path, truth)
    elif path.suffix == ".npz" and "plain" in how:
        np.savez(path, **arrays)
    else:
        if path.suffix == ".mat":
            arrays = {name: np.moveaxis(a, 0, -1) if a.ndim == 3 else a for name, a in arrays.items()}
        save_arrays(path, **arrays)


def main() -> None:
    size = int(sys.argv[1]) * 2**20 if len(sys.argv) > 1 else 60 * 2**20
    names = (
        "scene-plain.npz", "scene.npz", "scene.h5", "scene-plain.mat", "scene.mat", "v73.mat", "video.npy", "video.tif",
        "video-zlib.tif", "video.mp4",
    )  # fmt: skip
    print(f"{'file':18} {'dtype':8} {'MB':>5} {'claimed':>8} {'peak':>6} {'peak/claimed':>13}")
    for name in names:
        for dtype in {".tif": ("uint8", "float32"), ".mp4": ("uint8",)}.get(Path(name).suffix, ("uint8", "float64")):
            with tempfile.TemporaryDirectory() as folder:
                small, large = Path(folder) / f"small-{name}", Path(folder) / name
                small = small.with_name(name.replace(".", "-small."))
                write(small, 10_000, dtype)
                write(large, size, dtype)
                kind = name.split(".")[0].split("-")[0]
                command = [sys.executable, "-c", CHILD, kind, str(small), str(large)]
                claimed, peak = map(int, subprocess.run(command, capture_output=True, check=True).stdout.split())
                stored = large.stat().st_size
            row = f"{stored / 1e6:5.0f} {claimed / 1e6:8.0f} {peak / 1e6:6.0f} {peak / claimed:13.2f}"
            print(f"{name:18} {dtype:8} {row}", flush=True)


if __name__ == "__main__":
    main()
