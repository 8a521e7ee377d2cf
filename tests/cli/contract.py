"""What scripts may rely on in the JSON of `reconstruct`, `compare` and `bench`."""

from __future__ import annotations

CONTRACT = {
    *("method", "snapshots", "frames", "height", "width", "psnr", "ssim", "psnr_per_snapshot", "seconds"),
    *("cpu_seconds", "peak_rss_mb", "iterations", "residual", "converged", "output", "input_sha256", "unsnap_version"),
}
