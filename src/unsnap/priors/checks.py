"""What priors ask of the strength and of the videos they are given."""

from __future__ import annotations

import torch
from torch import Tensor

from unsnap.errors import InputError
from unsnap.kernels.dispatch import transforming


def check_sigma(sigma: float | Tensor) -> None:
    """A ValueError unless all of it is at least 0; not where values cannot be looked at (torch.compile, torch.func)."""
    if isinstance(sigma, Tensor):
        if sigma.is_meta or torch.compiler.is_compiling() or transforming():
            return
        fine = bool((sigma.detach() >= 0).all())
    else:
        fine = sigma >= 0
    if not fine:
        raise ValueError(f"sigma must be a number >= 0, got {sigma}")


def check_size(patch: int, height: int, width: int) -> None:
    """An InputError unless a patch fits."""
    if min(height, width) < patch:
        raise InputError(
            f"a video of {height}×{width} pixels is too small for patches of {patch}×{patch}; "
            "use a method without patches, such as gap-tv3d"
        )
