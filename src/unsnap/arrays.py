"""Arrays of numpy where tensors are computed with."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unsnap.errors import InputError


def tensor_of(value: Tensor | NDArray[Any], name: str) -> Tensor:
    """A tensor as it is, or one of the same real numbers; an array of another kind is refused by name."""
    try:
        tensor = value if isinstance(value, Tensor) else _shared(np.asarray(value))
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{name} must be a tensor or a numeric array, got {type(value).__name__} ({error})") from error
    if tensor.is_complex():
        raise InputError(f"{name} must be real, got {tensor.dtype}; pass the real part")
    return tensor


def _shared(array: NDArray[Any]) -> Tensor:
    """Torch shares memory with arrays that are writable and whose strides are not negative; others are copied."""
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    return torch.from_numpy(np.require(native, requirements=["C", "W"]))


def as_tensor(value: Tensor | NDArray[Any], name: str) -> Tensor:
    """As real numbers of 32 bits or more; an array of another kind is refused by name."""
    tensor = tensor_of(value, name)
    return tensor if tensor.is_floating_point() and tensor.dtype.itemsize >= 4 else tensor.to(torch.float32)
