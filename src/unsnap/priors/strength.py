"""What every prior asks of the strength it is given."""

from __future__ import annotations

import torch
from torch import Tensor

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
