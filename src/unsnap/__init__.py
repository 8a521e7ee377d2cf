"""unsnap: turn one coded snapshot back into the video it contains.

>>> import unsnap
>>> scene = unsnap.load_scene("capture.mat")                               # doctest: +SKIP
>>> video = unsnap.reconstruct(scene.measurement, scene.masks).x           # doctest: +SKIP
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

# name -> module; loaded on first use, so that `import unsnap` costs nothing beyond torch.
_HOMES = {
    "InputError": "unsnap.errors",
    "Scene": "unsnap.scene",
    "Snapshot": "unsnap.operators",
    "Multishot": "unsnap.operators",
    "Bayer": "unsnap.operators",
    "Dispersed": "unsnap.operators",
    "TV": "unsnap.priors",
    "Wavelet": "unsnap.priors",
    "Denoiser": "unsnap.algorithms.iterate",
    "Solution": "unsnap.algorithms.iterate",
    "gd": "unsnap.algorithms",
    "pgd": "unsnap.algorithms",
    "fista": "unsnap.algorithms",
    "admm": "unsnap.algorithms",
    "gap": "unsnap.algorithms",
    "GAP": "unsnap.algorithms",
    "Equilibrium": "unsnap.models",
    "Unfolded": "unsnap.models",
    "certify": "unsnap.models",
    "save": "unsnap.models",
    "load": "unsnap.zoo",
    "METHODS": "unsnap.methods",
    "reconstruct": "unsnap.run",
    "map": "unsnap.campaign.stream",
    "stream": "unsnap.campaign.stream",
    "load_plugin": "unsnap.plugins",
    "to_deepinv": "unsnap.deepinv",
    "from_deepinv": "unsnap.deepinv",
    "load_scene": "unsnap.io",
    "save_scene": "unsnap.io",
    "read_video": "unsnap.io",
    "save_video": "unsnap.io",
    "calibrate": "unsnap.calibration",
    "Camera": "unsnap.calibration",
    "examine": "unsnap.doctor",
    "diagnose": "unsnap.doctor",
    "psnr": "unsnap.metrics",
    "ssim": "unsnap.metrics",
    "score": "unsnap.metrics",
}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'unsnap' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
