"""What scripts may rely on in the JSON of `reconstruct`, `compare` and `bench`; what is in an npz."""

from __future__ import annotations

from pathlib import Path

import numpy as np

CONTRACT = {
    *("method", "snapshots", "frames", "height", "width", "psnr", "ssim", "psnr_per_snapshot", "seconds"),
    *("cpu_seconds", "peak_rss_mb", "iterations", "residual", "converged", "output", "input_sha256", "unsnap_version"),
    "warnings",
}


def stored(path: str | Path) -> dict[str, np.ndarray]:
    """All arrays of an npz, which is closed again."""
    with np.load(path) as file:
        return dict(file)
