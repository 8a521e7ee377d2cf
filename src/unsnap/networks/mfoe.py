r"""Multivariate fields of experts: an explicit energy of groups of filter responses, and a step that descends it.

$$R_\sigma(x) = \lambda\sum_{k,p} s_k^2\,\psi_k\big((W_k x)_p / s_k\big), \qquad
\psi_k(z) = M(z) - q_k\tau_k M\big(cQ_kz / (q_k\tau_k)\big), \qquad M(z) = \min_u \|u\|_\infty + \tfrac12\|z - u\|^2.$$

$W_k$ are the d filters of group k, of mean 0 and together of norm 1; p runs over pixels; $q_k = \|Q_k\|^2$,
$\tau_k \ge 1$, c = 0.999; the sizes $s_k$ depend on σ. M is convex, and its gradient, the projection on the
$\ell_1$-ball, is 1-Lipschitz. The Hessian of the second term is at most $c^2/\tau_k < 1$, so ψ bends by at most 1
either way, and $\nabla R_\sigma$ is L-Lipschitz with $L = \lambda\|W\|^2$, whatever σ. Hence
$D = I - \nabla R_\sigma/L$ followed by a projection on a convex set never raises $R_\sigma$ there (`descent.py`).

Ducotterd & Unser, *Multivariate fields of experts*, arXiv:2508.06490, 2025. The filters are three convolutions one
after the other, which are applied as one here, so that zero padding happens once and keeps the bound.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, conv_transpose2d
from torch.nn.utils.parametrize import register_parametrization

from unsnap.errors import InputError
from unsnap.networks.frames import frames_of, sigma_of
from unsnap.networks.frequencies import largest_gain, squared_gain
from unsnap.networks.rowsums import Remembered
from unsnap.networks.settings import whole

_INNER = 0.999
_SMALLEST = 1e-9
_PIXELS = 1 << 16  # at a time
_FEW = 8


class _ZeroMean(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return weight - weight.mean((1, 2, 3), keepdim=True)


class MFoE(nn.Module):
    """`network(x, sigma)` is one step down the energy, frame by frame; `value(x, sigma)` the energy.

    groups, size: of filters; channels: between the three convolutions. Parts are named as in the authors' files.
    """

    def __init__(self, groups: int = 15, size: int = 4, channels: tuple[int, int] = (4, 8)) -> None:
        super().__init__()
        channels = tuple(channels)  # type: ignore[assignment]  # a list in files
        if len(channels) != 2:
            raise InputError(f"MFoE: channels must be two numbers, got {channels}")
        whole("MFoE", groups=groups, size=size, first=channels[0], second=channels[1])
        self.settings: dict[str, Any] = {"groups": groups, "size": size, "channels": list(channels)}
        self.lamb = nn.Parameter(torch.tensor(5.0))
        self.Q_param = nn.Parameter(torch.rand(groups, size, size) - 0.5)
        self.taus = nn.Parameter(torch.full((1, 1, groups, 1, 1), 2.5))
        kernels = zip(pairwise((1, *channels, groups * size)), (3, 5, 5), strict=True)
        convs = nn.ModuleList(nn.Conv2d(a, b, n, padding=n // 2, bias=False) for (a, b), n in kernels)
        register_parametrization(convs[0], "weight", _ZeroMean())
        self.conv_layer = nn.Module()
        self.conv_layer.conv_layers = convs
        self.mu = nn.Sequential(
            nn.Linear(1, groups), nn.ReLU(), nn.Linear(groups, groups), nn.ReLU(), nn.Linear(groups, groups)
        )
        self._filters = Remembered(_normalised)

    def forward(self, x: Tensor, sigma: float | Tensor = 0.0) -> Tensor:
        """x − ∇R/L."""
        filters, bound, *factors = self._weights()
        frames, sizes = frames_of(x), self._sizes(sigma_of(sigma, x))

        def pull(u: Tensor, s: Tensor) -> Tensor:
            slope = s * self._slope(self._responses(u, filters) / s)
            return _transposed(slope.flatten(1, 2), factors) / bound.to(u)

        return (frames - self._chunked(pull, frames, sizes)).reshape(x.shape)

    def value(self, x: Tensor, sigma: float | Tensor = 0.0) -> Tensor:
        """R(x), one value per sample: (...,), in float64."""
        filters = self._weights()[0]

        def energy(u: Tensor, s: Tensor) -> Tensor:
            potential = s.square() * self._potential(self._responses(u, filters) / s).unsqueeze(1)
            return potential.sum((1, 2, 3, 4), dtype=torch.float64)

        total = self._chunked(energy, frames_of(x), self._sizes(sigma_of(sigma, x)))
        return self.lamb.double().exp() * total.reshape(x.shape[:-2]).sum(-1)

    def curvature(self) -> Tensor:
        """L, a proven Lipschitz constant of ∇R."""
        return self.lamb.double().exp() * self._weights()[1]

    def _weights(self) -> tuple[Tensor, ...]:
        return self._filters(*(conv.weight for conv in self.conv_layer.conv_layers))  # type: ignore[union-attr]

    def _sizes(self, sigma: Tensor) -> Tensor:
        """s (n, 1, groups, 1, 1) for sigma (n, 1, 1, 1)."""
        level = sigma.flatten(1)
        size: Tensor = (0.05 * self.mu(20 * level - 2) + level).relu() * 0.01 + _SMALLEST
        return size[:, None, :, None, None]

    def _responses(self, frames: Tensor, filters: Tensor) -> Tensor:
        """(n, size, groups, H, W)"""
        found = conv2d(frames, filters, padding=filters.shape[-1] // 2)
        return found.reshape(len(found), self.settings["size"], self.settings["groups"], *found.shape[-2:])

    def _orientation(self) -> tuple[Tensor, Tensor]:
        """Q (groups, size, size) and q τ (1, 1, groups, 1, 1)."""
        q = self.Q_param / self.Q_param.abs().sum(2, keepdim=True).clamp(min=1)
        square = torch.linalg.matrix_norm(q, ord=2).square()
        return _INNER * q, square[:, None, None] * self.taus.relu().exp()

    def _slope(self, z: Tensor) -> Tensor:
        """∇ψ(z) for z (n, size, groups, H, W)."""
        q, scale = self._orientation()
        inner = projected(torch.einsum("klg,ngkhw->nlkhw", q, z) / scale)
        return projected(z) - torch.einsum("kgl,ngkhw->nlkhw", q, inner)

    def _potential(self, z: Tensor) -> Tensor:
        """ψ(z): (n, groups, H, W)."""
        q, scale = self._orientation()
        return _envelope(z) - scale[:, 0] * _envelope(torch.einsum("klg,ngkhw->nlkhw", q, z) / scale)

    @staticmethod
    def _chunked(work: Callable[[Tensor, Tensor], Tensor], frames: Tensor, sizes: Tensor) -> Tensor:
        count = max(1, _PIXELS // max(1, frames.shape[-2] * frames.shape[-1]))
        parts = zip(torch.split(frames, count), torch.split(sizes, count), strict=True)
        return torch.cat([work(u, s) for u, s in parts])


def projected(z: Tensor) -> Tensor:
    r"""On the unit $\ell_1$-ball along axis 1: $|z| - \theta$, θ the largest $(S_j - 1)/j$, $S_j$ the sum of j largest.

    >>> projected(torch.tensor([[2.0, 0.5, -1.5]]))
    tensor([[ 0.7500,  0.0000, -0.2500]])
    """
    size = z.abs()
    total, theta = torch.zeros_like(size[:, 0]), torch.zeros_like(size[:, 0])
    for j, largest in enumerate(_descending(size), 1):
        total = total + largest
        theta = torch.maximum(theta, (total - 1) / j)
    return z.sign() * (size - theta.unsqueeze(1)).relu()


def _descending(size: Tensor) -> list[Tensor]:
    """The values along axis 1, the largest first. Few are faster exchanged, all pixels at once, than sorted."""
    parts = list(size.unbind(1))
    if len(parts) > _FEW:
        return list(size.sort(1, descending=True).values.unbind(1))
    for last in range(len(parts) - 1, 0, -1):
        for j in range(last):
            parts[j : j + 2] = torch.maximum(parts[j], parts[j + 1]), torch.minimum(parts[j], parts[j + 1])
    return parts


def _envelope(z: Tensor) -> Tensor:
    """M(z), along axis 1."""
    inside = projected(z)
    return (z - inside).abs().amax(1) + 0.5 * inside.square().sum(1)


def _transposed(slope: Tensor, factors: list[Tensor]) -> Tensor:
    """The adjoint of the filters, by their factors: one convolution from many maps to one is slow."""
    for weight in reversed(factors):
        slope = conv_transpose2d(slope, weight)
    edge = sum(weight.shape[-1] - 1 for weight in factors) // 2
    return slope[..., edge : slope.shape[-2] - edge, edge : slope.shape[-1] - edge]


def _normalised(*weights: Tensor) -> tuple[Tensor, ...]:
    """The three convolutions as one, of norm 1, a proven bound on its squared norm, and its factors."""
    filters = weights[0]
    for weight in weights[1:]:  # each map's kernels, convolved with the next
        filters = conv2d(filters.transpose(0, 1), weight.flip(-2, -1), padding=weight.shape[-1] - 1).transpose(0, 1)
    norm = largest_gain(filters).clamp(min=torch.finfo(torch.float64).tiny).sqrt().to(filters)
    filters = filters / norm
    return filters, squared_gain(filters) * (1 + 1e-6), *weights[:-1], weights[-1] / norm
