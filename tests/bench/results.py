"""Results of two methods on two scenes, as `bench` would have found them."""

from __future__ import annotations

from dataclasses import replace

from unsnap.run import Result

BASE = Result(
    method="gap-tv",
    scene="drop",
    snapshots=2,
    frames=8,
    height=64,
    width=64,
    psnr=30.0,
    ssim=0.9,
    psnr_per_snapshot=[29.0, 31.0],
    ssim_per_snapshot=[0.88, 0.92],
    seconds=1.5,
    cpu_seconds=3.0,
    peak_rss_mb=400.0,
    iterations=40,
    residual=1e-4,
    tolerance=1e-3,
    converged=True,
    diverged=False,
    device="cpu",
    seed=0,
    together=False,
    output=None,
    input_sha256="ab" * 32,
    unsnap_version="0",
    torch_version="0",
)
RESULTS = [
    BASE,
    replace(BASE, method="gap-tv3d", psnr=32.0, peak_rss_mb=500.0),
    replace(BASE, scene="traffic", psnr=20.0, cpu_seconds=1.0, input_sha256="cd" * 32),
    replace(BASE, scene="traffic", method="gap-tv3d", psnr=19.0, converged=False, residual=0.5, input_sha256="cd" * 32),
]
