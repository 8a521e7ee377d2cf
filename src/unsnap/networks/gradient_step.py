r"""A denoiser that descends a learned energy: $D = I - \tau\nabla g$, $g(x) = \sum_i \psi((Kx + b)_i)$.

Numbers are those of docs/cookbook/convergence.md, where this is (25).
$\psi'' \le 1$ in size, so $\nabla g$ is L-Lipschitz with $L = \|K\|^2$, bounded by row sums (`rowsums.py`, which also
covers zero padding), and $\tau = 0.9/L$. Then $P \circ D$, P the projection on $\{\Phi x = y\}$, is projected gradient
descent: g never increases along it, and $g(x_{k+1}) \le g(x_k) - (1/\tau - L/2)\|x_{k+1} - x_k\|^2$ makes the steps
vanish. That the iterates settle is another matter. (Hurault, Leclaire & Papadakis, *Gradient step denoiser for
convergent plug-and-play*, ICLR 2022.)

For a convex $\psi$ they do. $D$ is averaged (Baillon & Haddad: $\nabla g$ is $1/L$-cocoercive), so D∘P is (21),
averaged; and a fixed point exists for every snapshot and mask, because $\sum_i\psi(w_i)$ grows without bound in all
directions of $w = Kx + b$, hence has a minimum over the affine set of all w that $\{\Phi x = y\}$ allows.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d

from unsnap.errors import InputError
from unsnap.networks.frames import frames_of, per_frame
from unsnap.networks.rowsums import Remembered, squared_norm
from unsnap.networks.settings import flags, whole

STEP = 0.9


class GradientStep(nn.Module):
    r"""One certified descent step on a learned energy, frame by frame; any (..., T, H, W). sigma is ignored.

    channels, kernel: number and (odd) size of the filters K. convex: $\psi(z) = \sqrt{1 + z^2} - 1$, so that D is
    1-Lipschitz too; otherwise $\frac12\log(1 + z^2)$, which forgives edges.
    """

    def __init__(self, channels: int = 32, kernel: int = 7, convex: bool = True) -> None:
        super().__init__()
        whole("GradientStep", channels=channels, kernel=kernel)
        flags("GradientStep", convex=convex)
        if kernel % 2 == 0:
            raise InputError(f"GradientStep: kernel must be odd, got {kernel}")
        self.settings: dict[str, Any] = {"channels": channels, "kernel": kernel, "convex": convex}
        # Filters without a mean: a flat image has no energy to lose.
        weight = torch.randn(channels, 1, kernel, kernel) / kernel
        self.weight = nn.Parameter(weight - weight.mean((-2, -1), keepdim=True))
        self.bias = nn.Parameter(torch.zeros(channels))
        self._step = Remembered(_step)

    def forward(self, x: Tensor, sigma: float | Tensor = 0.0) -> Tensor:
        """x − τ∇g(x)."""
        (back,) = self._step(self.weight)
        return x - per_frame(lambda z: self._pull(z, back), frames_of(x)).reshape(x.shape)

    def value(self, x: Tensor) -> Tensor:
        """g(x), one value per sample: (...,)."""
        square = self._responses(frames_of(x)).square()
        # sqrt(1 + s) − 1 without cancellation for small s.
        potential = square / ((1 + square).sqrt() + 1) if self.settings["convex"] else 0.5 * square.log1p()
        return potential.sum((-3, -2, -1)).reshape(x.shape[:-2]).sum(-1)

    def curvature(self) -> Tensor:
        """L, a proven Lipschitz constant of ∇g."""
        return squared_norm(self.weight)

    @torch.no_grad()
    def lipschitz_bound(self) -> dict[str, Any]:
        """The evidence: L, the step τ < 1/L, and the bound on D (1, or 1 + τL/8 as the log potential bends back)."""
        smoothness, convex = float(self.curvature()), self.settings["convex"]
        bound, kind = (1.0, "convex gradient step") if convex else (1 + STEP / 8, "gradient step")
        step = STEP / smoothness if smoothness > 0 else 0.0
        return {"kind": kind, "bound": bound, "curvature": smoothness, "step": step, "layers": []}

    def _responses(self, frames: Tensor) -> Tensor:
        return conv2d(frames, self.weight, self.bias, padding=self.weight.shape[-1] // 2)

    def _pull(self, frames: Tensor, back: Tensor) -> Tensor:
        z = self._responses(frames)
        slope = z / (1 + z.square()).sqrt() if self.settings["convex"] else z / (1 + z.square())
        return conv2d(slope, back, padding=self.weight.shape[-1] // 2)


def _step(weight: Tensor) -> tuple[Tensor, ...]:
    """τ K^T as an ordinary convolution."""
    smoothness = squared_norm(weight)
    scaled = weight.double() * (STEP / smoothness.clamp(min=torch.finfo(smoothness.dtype).tiny))
    return (scaled.flip(-2, -1).transpose(0, 1).to(weight).contiguous(),)
