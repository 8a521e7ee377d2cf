r"""One snapshot of T masked frames: the camera of the field.

$\Phi = [\mathrm{diag}(m_1) \dots \mathrm{diag}(m_T)]$, so $\Phi\Phi^\top = \mathrm{diag}(\sum_t m_t^2)$: the *squares*
of the masks. Every data step of every algorithm is therefore a closed form, pixel by pixel.
"""

from __future__ import annotations

import torch
from torch import Tensor

from unsnap.operators.diagonal import Diagonal


class Snapshot(Diagonal):
    r"""One snapshot of T masked frames: $y = \sum_t m_t \odot x_t$.

    masks: (T, H, W), or (N, T, H, W) for one set per sample; any real values.
    Video (..., T, H, W), snapshot (..., H, W).

    >>> phi = Snapshot(torch.tensor([[[1.0, 0.0]], [[1.0, 2.0]]]))         # T = 2, one row of two pixels
    >>> phi.A(torch.ones(2, 1, 2))
    tensor([[2., 2.]])
    """

    def __init__(self, masks: Tensor) -> None:
        super().__init__(masks)

    @property
    def image(self) -> torch.Size:
        return self.masks.shape[-2:]

    def A(self, x: Tensor) -> Tensor:
        self._check(x, self.video, "video")
        if self._fused(x):
            from unsnap.kernels import data
            from unsnap.kernels.dispatch import array

            y = data.forward(array(x, -1, *x.shape[-3:]), array(self.masks, -1, *x.shape[-3:]))
            return torch.from_numpy(y).reshape(*x.shape[:-3], *x.shape[-2:])
        return (self.masks * x).sum(-3)

    def A_adjoint(self, y: Tensor) -> Tensor:
        self._check(y, self.image, "snapshot")
        return self.masks * y.unsqueeze(-3)

    def project(self, x: Tensor, y: Tensor) -> Tensor:
        return self._data_step(x, y, self.inverse)

    def project_carried(self, x: Tensor, y: Tensor, carried: Tensor) -> tuple[Tensor, Tensor]:
        self._check(x, self.video, "video")
        self._check(y, self.image, "snapshot")
        self._check(carried, self.image, "snapshot")
        if not (self._fused(x, y, carried, self.inverse) and x.shape[:-3] == y.shape[:-2] == carried.shape[:-2]):
            return super().project_carried(x, y, carried)
        from unsnap.kernels import data
        from unsnap.kernels.dispatch import array

        video, image = x.shape[-3:], y.shape[-2:]
        out, total = data.carried_step(
            array(x, -1, *video),
            array(y, -1, *image),
            array(carried, -1, *image),
            array(self.masks, -1, *video),
            array(self.inverse, -1, *image),
        )
        return torch.from_numpy(out).reshape(x.shape), torch.from_numpy(total).reshape(y.shape)

    def prox_l2(self, z: Tensor, y: Tensor, gamma: float | Tensor) -> Tensor:
        return self._data_step(z, y, gamma / (1 + gamma * self.energy))

    def _data_step(self, x: Tensor, y: Tensor, gain: Tensor) -> Tensor:
        r"""$x + \Phi^\top[g \odot (y - \Phi x)]$: projection for $g = 1/\sum m^2$, prox for $1/(\rho + \sum m^2)$."""
        self._check(x, self.video, "video")
        self._check(y, self.image, "snapshot")
        aligned = x.shape[:-3] == y.shape[:-2] and gain.shape == self.energy.shape
        if aligned and self._fused(x, y, gain):
            from unsnap.kernels import data
            from unsnap.kernels.dispatch import array

            video, image = x.shape[-3:], y.shape[-2:]
            out = data.step(
                array(x, -1, *video), array(y, -1, *image), array(self.masks, -1, *video), array(gain, -1, *image)
            )
            return torch.from_numpy(out).reshape(x.shape)
        return x + self.A_adjoint(gain * (y - (self.masks * x).sum(-3)))

    def _fused(self, *tensors: Tensor) -> bool:
        from unsnap.kernels.dispatch import usable

        x = tensors[0]
        aligned = self.masks.ndim == 3 or x.shape[:-3] == self.masks.shape[:1]
        return aligned and x.numel() > 0 and usable(self.masks, *tensors)
