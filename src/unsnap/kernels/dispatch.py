"""When may a fused CPU kernel stand in for plain torch code?"""

from __future__ import annotations

from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor
from torch.autograd import forward_ad


def usable(*tensors: Tensor) -> bool:
    """True if nobody needs derivatives and all tensors are plain CPU tensors of one real dtype, float32 or float64."""
    if torch.compiler.is_compiling() or transforming():
        return False
    dtype, recording = tensors[0].dtype, torch.is_grad_enabled()
    return dtype in (torch.float32, torch.float64) and all(
        type(t) in (Tensor, torch.nn.Parameter)
        and t.device.type == "cpu"
        and t.dtype == dtype
        and not (recording and t.requires_grad)
        for t in tensors
    )


def array(tensor: Tensor, *shape: int) -> npt.NDArray[Any]:
    """The tensor's memory (copied only if it is not contiguous) as an array of the given shape."""
    flat: npt.NDArray[Any] = tensor.detach().contiguous().numpy()
    return flat.reshape(shape) if shape else flat


def transforming() -> bool:
    """Inside torch.func (vmap, grad, jvp) or forward-mode AD, where a tensor's memory is not the whole story."""
    return forward_ad._current_level >= 0 or torch._C._functorch.peek_interpreter_stack() is not None
