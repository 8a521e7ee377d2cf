"""The optimiser: matrices and kernels move along orthogonalised momentum (Muon), all else by Adam.

Jordan et al., *Muon: an optimizer for hidden layers in neural networks*, 2024. On our U-net it reaches the same
denoising error as AdamW in about two thirds of the processor time.

torch.optim.Muon is missing from the oldest torch that we support, takes 2-D parameters only and orthogonalises in
bfloat16: on `ShiftUNet` its step (with AdamW for the vectors) takes 6 times as long on a CPU without bfloat16 units as
this one, and differs from it by 1.5 % of its norm, all of it rounding (`python benchmarks/hand_written.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import torch
from torch import Tensor, nn

from unsnap.fields import Within, check, require

_NEWTON = (3.4445, -4.7750, 2.0315)  # quintic whose repetition drives all singular values towards 1


class Muon(torch.optim.Optimizer):
    """One learning rate for both kinds of parameters; decoupled weight decay."""

    def __init__(
        self, parameters: Iterable[nn.Parameter], lr: float, weight_decay: float = 0.0, momentum: float = 0.95
    ) -> None:
        super().__init__(parameters, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Move every parameter that has a gradient."""
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                p.mul_(1 - group["lr"] * group["weight_decay"])
                matrix = p.ndim >= 2 and min(p.shape[0], p[0].numel()) > 1
                move = self._along_matrix if matrix else self._along_vector
                p.sub_(group["lr"] * move(p, p.grad, group["momentum"]))

    def _along_matrix(self, p: Tensor, gradient: Tensor, momentum: float) -> Tensor:
        state = self.state[p]
        mean = state.setdefault("mean", torch.zeros_like(p))
        mean.lerp_(gradient, 1 - momentum)
        update = orthogonalised(gradient.lerp(mean, momentum).flatten(1))
        # The size that Adam's steps have, so that one rate serves both.
        scaled: Tensor = 0.2 * max(update.shape) ** 0.5 * update.reshape(p.shape)
        return scaled

    def _along_vector(self, p: Tensor, gradient: Tensor, momentum: float) -> Tensor:
        state = self.state[p]
        mean = state.setdefault("mean", torch.zeros_like(p))
        square = state.setdefault("square", torch.zeros_like(p))
        count = state["count"] = state.get("count", 0) + 1
        mean.lerp_(gradient, 0.1)
        square.lerp_(gradient.square(), 0.001)
        size = (square / (1 - 0.999**count)).sqrt() + 1e-8
        step: Tensor = mean / (1 - 0.9**count) / size
        return step


def orthogonalised(matrix: Tensor, iterations: int = 5) -> Tensor:
    """Near the orthogonal matrix U V^T of the singular value decomposition, by Newton-Schulz: values in 0.7 … 1.2."""
    a, b, c = _NEWTON
    tall = matrix.shape[0] > matrix.shape[1]
    u: Tensor = matrix.T if tall else matrix
    u = u / (torch.linalg.vector_norm(u) + 1e-7)
    for _ in range(iterations):
        gram = u @ u.T
        u = a * u + (b * gram + c * (gram @ gram)) @ u
    return u.T if tall else u


def check_memory(optimizer: torch.optim.Optimizer) -> None:
    """What it remembers, which may come from a file, fits its parameters; a ValueError otherwise."""
    for group in optimizer.param_groups:
        check("optimiser: ", Muon, {k: v for k, v in group.items() if k != "params"})
        for p in group["params"]:
            for name, value in list(optimizer.state.get(p, {}).items()):  # looking it up would make an entry
                if name == "count":
                    require("optimiser: count", value, Annotated[int, Within(1, 10**12)])
                elif not isinstance(value, Tensor) or value.shape != p.shape or not (value.abs() < 1e30).all():
                    raise ValueError(f"its optimiser remembers a {name} that does not fit {tuple(p.shape)}")
                else:  # in memory of its own, which can be written to
                    optimizer.state[p][name] = value.clone()
