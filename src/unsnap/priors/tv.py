r"""Total variation: $R(x) = \sum_i \varphi(|Dx|_i)$, D the forward differences in space and, optionally, time.

The denoiser is $\mathrm{prox}_{\sigma R}$, approached by Chambolle's semi-implicit dual ascent from p = 0:
$$u = x + D^\top p, \qquad p \leftarrow \frac{p - \tau Du}{1 + (\tau/\sigma)\,\max(|Du|, \varepsilon)}.$$
$\varepsilon = 0$ is TV; $\varepsilon > 0$ is its Huber smoothing, which is differentiable.
Chambolle, *An algorithm for total variation minimization and applications*, J. Math. Imaging Vis. 2004.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from unsnap.priors.checks import check_sigma


@dataclass(frozen=True)
class TV:
    """Total-variation prior on videos (..., T, H, W).

    temporal: weight of differences between frames relative to those in space; 0 is 2-D TV, frame by frame;
    isotropic: length of the gradient vector rather than the sum of its components' sizes;
    iterations: dual updates; a handful inside a plug-and-play loop, hundreds for the exact prox;
    smoothing: the Huber threshold, in intensity units.

    >>> x = torch.tensor([[[0.0, 0.0, 1.0, 1.0]]])
    >>> TV(iterations=500)(x, 0.1)                       # the step shrinks by 0.1 / 2 on either side
    tensor([[[0.0500, 0.0500, 0.9500, 0.9500]]])
    """

    temporal: float = 0.0
    isotropic: bool = True
    iterations: int = 5
    smoothing: float = 0.0

    def __post_init__(self) -> None:
        if not (self.temporal >= 0 and self.smoothing >= 0 and self.iterations >= 1):
            raise ValueError(
                f"TV needs temporal >= 0, smoothing >= 0 and iterations >= 1, got temporal={self.temporal}, "
                f"smoothing={self.smoothing}, iterations={self.iterations}"
            )

    def __call__(self, x: Tensor, sigma: float | Tensor, /) -> Tensor:
        """Approximate prox of sigma * R; sigma in intensity units, a number or one per sample."""
        check_sigma(sigma)
        if isinstance(sigma, Tensor) and _fusible(x, sigma.to(x)):
            if sigma.numel() == 1:
                sigma = float(sigma)
            elif x.numel() > 0 and sigma.ndim <= x.ndim - 3:
                return self._each(x, sigma)
        if isinstance(sigma, Tensor):
            weight = sigma.reshape(sigma.shape + (1,) * (x.ndim - sigma.ndim)).to(x)
            return self._denoise_torch(x, weight.clamp(min=torch.finfo(x.dtype).tiny))
        if sigma == 0 or x.numel() == 0:
            return x.clone()
        return self._denoise_fused(x, sigma) if _fusible(x) else self._denoise_torch(x, sigma)

    def value(self, x: Tensor) -> Tensor:
        """R(x), one value per sample: (...,)."""
        d = self._gradient(x)
        size = d.square().sum(0, keepdim=True) if self.isotropic else d.square()
        if self.smoothing == 0:
            return size.sqrt().sum(0).sum((-3, -2, -1))
        # sqrt has no derivative at 0, so the quadratic branch must not pass through it.
        quadratic = size <= self.smoothing**2
        length = torch.where(quadratic, self.smoothing**2, size).sqrt()
        huber = torch.where(quadratic, size / (2 * self.smoothing), length - self.smoothing / 2)
        return huber.sum(0).sum((-3, -2, -1))

    @property
    def curvature(self) -> float:
        """Lipschitz constant of ∇R (infinite without smoothing)."""
        return (8 + 4 * self.temporal**2) / self.smoothing if self.smoothing > 0 else float("inf")

    def _each(self, x: Tensor, sigma: Tensor) -> Tensor:
        """Every video with its own number: the kernel takes one."""
        levels = sigma.reshape(sigma.shape + (1,) * (x.ndim - 3 - sigma.ndim)).expand(x.shape[:-3]).reshape(-1)
        videos = x.reshape(-1, *x.shape[-3:])
        return torch.stack([self(v, s) for v, s in zip(videos, levels.tolist(), strict=True)]).reshape(x.shape)

    def _denoise_fused(self, x: Tensor, sigma: float) -> Tensor:
        from unsnap.kernels import tv
        from unsnap.kernels.dispatch import array

        cleaned = tv.denoise(
            array(x),
            sigma,
            self.iterations,
            temporal=self.temporal,
            isotropic=self.isotropic,
            smoothing=self.smoothing,
        )
        return torch.from_numpy(cleaned)

    def _denoise_torch(self, x: Tensor, weight: float | Tensor) -> Tensor:
        tau = 1 / (4 + 2 * self.temporal**2)
        p = torch.zeros_like(self._gradient(x))
        for _ in range(self.iterations):
            d = self._gradient(x + self._adjoint(p))
            size = d.square().sum(0, keepdim=True) if self.isotropic else d.square()
            # The smallest normal number keeps the derivative of sqrt finite where the image is flat.
            length = size.clamp(min=max(self.smoothing**2, torch.finfo(x.dtype).tiny)).sqrt()
            p = (p - tau * d) / (1 + (tau / weight) * length)
        return x + self._adjoint(p)

    def _gradient(self, x: Tensor) -> Tensor:
        """Dx: differences down, right and (weighted) forward in time, stacked in front; zero at the last one."""
        down = pad(x[..., 1:, :] - x[..., :-1, :], (0, 0, 0, 1))
        right = pad(x[..., 1:] - x[..., :-1], (0, 1))
        if self.temporal == 0:
            return torch.stack([down, right])
        forward = pad(x[..., 1:, :, :] - x[..., :-1, :, :], (0, 0, 0, 0, 0, 1))
        return torch.stack([down, right, self.temporal * forward])

    def _adjoint(self, p: Tensor) -> Tensor:
        """Dᵀp."""
        down, right = p[0][..., :-1, :], p[1][..., :-1]
        out = pad(down, (0, 0, 1, 0)) - pad(down, (0, 0, 0, 1)) + pad(right, (1, 0)) - pad(right, (0, 1))
        if self.temporal == 0:
            return out
        forward = self.temporal * p[2][..., :-1, :, :]
        return out + pad(forward, (0, 0, 0, 0, 1, 0)) - pad(forward, (0, 0, 0, 0, 0, 1))


def _fusible(x: Tensor, *others: Tensor) -> bool:
    from unsnap.kernels.dispatch import usable

    return usable(x, *others) and x.ndim >= 3
