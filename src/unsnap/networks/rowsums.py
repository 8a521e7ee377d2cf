r"""Proven bounds on convolutions, from the absolute row sums of their Gram matrix.

For a convolution K with kernels $k_{ic}$ (hidden map i, input map c), $KK^\top$ is again a convolution, with kernels
$r_{ij}(d) = \sum_{c,u} k_{ic}(u)\, k_{jc}(u + d)$. For any weights $q_i > 0$ and
$T_i = \sum_j \sum_d |r_{ij}(d)|\, q_j / q_i$ we have $KK^\top \preceq \mathrm{diag}(T)$, because $2|v_i v_j| \le
v_i^2 q_j/q_i + v_j^2 q_i/q_j$ in $v^\top KK^\top v \le \sum |r_{ij}||v_i||v_j|$. (Araujo et al., *A unified algebraic
perspective on Lipschitz neural networks*, ICLR 2023.)

Zero padding keeps the bound. On a finite image the operator is $K_\Omega = S_h K S_c^\top$, where K acts on the
infinite plane, $S^\top$ extends an image by zeros and S restricts to it. Then
$K_\Omega K_\Omega^\top = S_h K (S_c^\top S_c) K^\top S_h^\top \preceq S_h KK^\top S_h^\top \preceq
S_h\,\mathrm{diag}(T)\,S_h^\top$, since $S_c^\top S_c$ is a projector; and T is constant over the plane, so the right
side is T on the image.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d


def gram_sums(weight: Tensor) -> Tensor:
    """(i, j) -> sum over all shifts d of |r_ij(d)| in float64, for kernels (hidden, maps, height, width)."""
    kernels = weight.double()
    full = (weight.shape[-2] - 1, weight.shape[-1] - 1)
    return conv2d(kernels, kernels, padding=full).abs().sum((-2, -1))


def row_sums(weight: Tensor, log_q: Tensor) -> Tensor:
    """T (hidden,) in float64 for the weights q = exp(log_q)."""
    ratio = (log_q[None, :].double() - log_q[:, None].double()).exp()
    return (gram_sums(weight) * ratio).sum(1)


def squared_norm(weight: Tensor) -> Tensor:
    """A bound on ‖K‖², float64: the largest row sum, with the weights q that make it nearly the smallest.

    Those are the Perron vector of the (symmetric, nonnegative) matrix of sums; any positive q is valid, so the few
    power iterations that find it only decide how tight the bound is.
    """
    sums = gram_sums(weight)
    with torch.no_grad():
        q = torch.ones(len(sums), dtype=sums.dtype, device=sums.device)
        floor = sums.max().clamp(min=torch.finfo(sums.dtype).tiny) * 1e-6
        for _ in range(30):
            q = (sums + floor) @ q
            q = q / q.max()
    return (sums @ q / q).max()


_trusting: ContextVar[bool] = ContextVar("trusting", default=False)


@contextmanager
def trusting() -> Iterator[None]:
    """Take what is remembered without a look at the tensors, where a program is traced in which they are constants."""
    token = _trusting.set(True)
    try:
        yield
    finally:
        _trusting.reset(token)


class Remembered:
    """The last value of a function of tensors, kept as long as the tensors are the same, value by value.

    Not where the tensors themselves may be differentiated: a graph must lead back to those of this very call.
    """

    def __init__(self, function: Callable[..., tuple[Tensor, ...]]) -> None:
        self.function = function
        self._key: Sequence[Tensor] = ()
        self._value: tuple[Tensor, ...] = ()

    def __call__(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        if _trusting.get() and self._value:
            return self._value
        recording = torch.is_grad_enabled()
        # A parameter is no wrapper of torch.func and carries no tangent, as tensors without requires_grad may.
        if recording and not all(isinstance(t, nn.Parameter) and not t.requires_grad for t in tensors):
            return self.function(*tensors)
        if not self._fits(tensors) or (recording and any(value.is_inference() for value in self._value)):
            self._value = self.function(*tensors)
            self._key = [t.detach().clone() for t in tensors]
        return self._value

    def _fits(self, tensors: Sequence[Tensor]) -> bool:
        return len(self._key) == len(tensors) and all(
            a.dtype == b.dtype and a.device == b.device and torch.equal(a, b)
            for a, b in zip(self._key, tensors, strict=True)
        )
