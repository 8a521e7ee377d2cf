r"""Proven bounds on convolutions from a grid of frequencies, a few per cent above the true norm.

On the infinite plane a convolution K with kernels $k_{ic}(u)$ turns a wave of frequency $\omega$ into the same wave
times the matrix $\hat K(\omega)_{ic} = \sum_u k_{ic}(u)\,e^{-i\omega\cdot u}$, so that $\|K\|^2$ is the maximum over
all $\omega$ of $\lambda(\omega)$, the largest eigenvalue of $\hat K^*\hat K$. Zero padding keeps the bound, see
`rowsums.py`.

Between the points of a grid. For a fixed vector x, $p(\omega) = \|\hat K(\omega)x\|^2 \ge 0$ is a trigonometric
polynomial, of degree d = (length of the kernel) - 1 along an axis. Let M be its maximum along that axis and place it at
t = 0. The inequality of Bernstein and Szegő for $s = p - M/2$, which lies between $-M/2$ and $M/2$, is
$s'^2 + d^2 s^2 \le d^2 (M/2)^2$. With $s = (M/2)\cos\theta$ it says $|\theta'| \le d$; and $\theta(0) = 0$, so
$p(t) \ge M\,(1 + \cos dt)/2 = M\cos^2(dt/2)$ for $|t| \le \pi/d$. Of N > d equidistant points one lies within $\pi/N$:

$$M \le \max_{\mathrm{grid}} p \,/ \cos^2\frac{\pi d}{2N}.$$

Along the second axis likewise, from the points of the first; and the maximum over unit vectors x gives
$\|K\|^2 \le \max_{\mathrm{grid}}\lambda \,/ \prod_{\mathrm{axes}}\cos^2(\pi d/2N)$. (For polynomials of either sign the
factor is $\cos(\pi d/N)$: Ehlich & Zeller, *Math. Z.* 1964. Bounds from frequencies: Pfister & Bresler, *IEEE Trans.
Signal Process.* 2019.)
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

POINTS = 8
"""Points of the grid per degree: the bound is at most 1.08 times the squared norm in two dimensions."""


def squared_gain(weight: Tensor) -> Tensor:
    """A bound on ‖K‖² on the infinite plane, float64, for kernels (hidden, maps, height, width); differentiable.

    The eigenvalues are LAPACK's in float64, off by some 1e-14 of the largest: whoever rounds adds a margin for that.
    """
    return largest_gain(weight) * _between(weight.shape[-2]) * _between(weight.shape[-1])


def largest_gain(weight: Tensor) -> Tensor:
    """The largest of ‖K̂‖² on the grid, float64: at most ‖K‖², and the bound above at most 1.08 times it."""
    kernels = weight.double()
    with torch.no_grad():
        waves = torch.stack(_strongest(kernels))
    # ‖K̂x‖² at that frequency and its x, both held fixed: the derivative of the maximum is that of its maximiser.
    responses = kernels.flatten(1) @ waves.flatten(1).T
    return responses.square().sum()


def _strongest(kernels: Tensor) -> tuple[Tensor, Tensor]:
    """(maps, height, width): the wave times unit vector, real and imaginary part, that K amplifies most on the grid."""
    maps, (height, width) = kernels.shape[1], kernels.shape[-2:]
    waves = _waves(height, width).to(kernels.device)
    columns = kernels.flatten(0, 1).flatten(1).T.contiguous()
    real, imaginary = (part @ columns for part in waves)
    responses = torch.complex(real, imaginary).reshape(-1, len(kernels), maps)
    gram = responses.mH @ responses if maps <= len(kernels) else responses @ responses.mH
    if gram.is_meta or not bool(torch.isfinite(gram).all()):
        return (torch.full_like(kernels[0], torch.nan),) * 2
    k = int(torch.linalg.eigvalsh(gram)[:, -1].argmax())
    vector = torch.linalg.svd(responses[k], full_matrices=False)[2][0].conj()
    product = (vector[:, None] * torch.complex(waves[0, k], waves[1, k])).reshape(maps, height, width)
    return product.real, product.imag


@lru_cache(maxsize=16)
def _waves(height: int, width: int) -> Tensor:
    """(2, frequencies, height · width): cos and -sin of ω·u on the grid, one of each pair ω, -ω (kernels are real)."""
    rows, columns = _count(height), _count(width)
    pairs = {min((a, b), (-a % rows, -b % columns)) for a in range(rows) for b in range(columns)}
    grid = torch.tensor(sorted(pairs), dtype=torch.float64) / torch.tensor([rows, columns], dtype=torch.float64)
    u = torch.cartesian_prod(torch.arange(height), torch.arange(width)).double()
    phase = 2 * math.pi * grid @ u.T
    return torch.stack([phase.cos(), -phase.sin()])


def _count(length: int) -> int:
    """N for a kernel of this length."""
    return max(1, POINTS * (length - 1))


def _between(length: int) -> float:
    """1 / cos²(πd / 2N): what may lie between the points along one axis."""
    return 1 / math.cos(math.pi * (length - 1) / (2 * _count(length))) ** 2
