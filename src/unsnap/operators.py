r"""Forward models of coded cameras, written as the algebra they are.

$y = \Phi x$, $\Phi = [\mathrm{diag}(m_1) \dots \mathrm{diag}(m_T)]$, so $\Phi\Phi^\top = \mathrm{diag}(\sum_t m_t^2)$:
the *squares* of the masks. Every data step of every algorithm is therefore a closed form, pixel by pixel. Method names
follow deepinv, so that an operator can serve there as a physics.
"""

from __future__ import annotations

import math
from abc import abstractmethod

import torch
from torch import Tensor, nn

from unsnap.errors import InputError


class CodedOperator(nn.Module):
    """What the algorithms need from a camera: x (..., T, H, W) -> y, its adjoint, inverse, projection and prox."""

    masks: Tensor

    @abstractmethod
    def A(self, x: Tensor) -> Tensor:
        r"""$\Phi x$."""

    @abstractmethod
    def A_adjoint(self, y: Tensor) -> Tensor:
        r"""$\Phi^\top y$."""

    @abstractmethod
    def gram(self, y: Tensor) -> Tensor:
        r"""$\Phi\Phi^\top y$."""

    @abstractmethod
    def A_dagger(self, y: Tensor) -> Tensor:
        r"""Minimum-norm least-squares solution $\Phi^+ y = \Phi^\top(\Phi\Phi^\top)^+ y$."""

    @abstractmethod
    def prox_l2(self, z: Tensor, y: Tensor, gamma: float) -> Tensor:
        r"""$\arg\min_x \frac{\gamma}{2}\|\Phi x - y\|^2 + \frac12\|x - z\|^2$ in closed form, as in deepinv."""

    @abstractmethod
    def norm(self) -> float:
        r"""Spectral norm $\|\Phi\|$; gradient steps below $2/\|\Phi\|^2$ are stable."""

    def squared_norm(self) -> float:
        r"""$\|\Phi\|^2$, from which step sizes are made; 1 for an operator that measures nothing."""
        return self.norm() ** 2 or 1.0

    def peak(self) -> Tensor:
        """(..., 1, 1): the most open that a mask is, for every sample and shot; more than 0."""
        return self.masks.abs().amax((-3, -2, -1)).clamp(min=torch.finfo(self.masks.dtype).tiny)[..., None, None]

    def contrast(self) -> Tensor:
        """(..., 1, 1): the rms deviation of masks from their mean over frames, by which frames are told apart."""
        return self.masks.var(-3, correction=0).mean((-2, -1)).sqrt()[..., None, None]

    def project(self, x: Tensor, y: Tensor) -> Tensor:
        r"""Nearest point to x on $\{\Phi x = y\}$: $x + \Phi^+(y - \Phi x)$. Unmeasured pixels are left alone."""
        return x + self.A_dagger(self._misfit(x, y))

    def project_carried(self, x: Tensor, y: Tensor, carried: Tensor) -> tuple[Tensor, Tensor]:
        r"""Accelerated GAP's data step: $\bar y + (y - \Phi x)$, and the projection of x on what that measures."""
        carried = carried + self._misfit(x, y)
        return self.project(x, carried), carried

    def forward(self, x: Tensor) -> Tensor:
        return self.A(x)

    @property
    @abstractmethod
    def _image(self) -> torch.Size:
        """The shape that what is measured of one video has."""

    def _misfit(self, x: Tensor, y: Tensor) -> Tensor:
        self._check(y, self._image, "snapshot")
        return y - self.A(x)

    def _check(self, tensor: Tensor, shape: torch.Size, what: str) -> None:
        if tensor.shape[-len(shape) :] != shape:
            raise ValueError(
                f"{what} must end in {tuple(shape)} to fit masks {tuple(self.masks.shape)}, "
                f"got shape {tuple(tensor.shape)}"
            )


class Snapshot(CodedOperator):
    r"""One snapshot of T masked frames: $y = \sum_t m_t \odot x_t$.

    masks: (T, H, W), or (N, T, H, W) for one set per sample; any real values.
    Video (..., T, H, W), snapshot (..., H, W).

    >>> phi = Snapshot(torch.tensor([[[1.0, 0.0]], [[1.0, 2.0]]]))         # T = 2, one row of two pixels
    >>> phi.A(torch.ones(2, 1, 2))
    tensor([[2., 2.]])
    """

    energy: Tensor
    inverse: Tensor

    def __init__(self, masks: Tensor) -> None:
        super().__init__()
        masks = _real_masks(masks, (3, 4), "(T, H, W) or (N, T, H, W)")
        energy = masks.square().sum(-3)
        self.register_buffer("masks", masks)
        self.register_buffer("energy", energy)
        brightest = energy.detach().amax((-2, -1), keepdim=True)
        live = energy > brightest * torch.finfo(energy.dtype).eps ** 2
        self.register_buffer("inverse", torch.where(live, 1 / torch.where(live, energy, 1), 0))

    def A(self, x: Tensor) -> Tensor:
        self._check(x, self.masks.shape[-3:], "video")
        if self._fused(x):
            from unsnap.kernels import data
            from unsnap.kernels.dispatch import array

            y = data.forward(array(x, -1, *x.shape[-3:]), array(self.masks, -1, *x.shape[-3:]))
            return torch.from_numpy(y).reshape(*x.shape[:-3], *x.shape[-2:])
        return (self.masks * x).sum(-3)

    def A_adjoint(self, y: Tensor) -> Tensor:
        self._check(y, self._image, "snapshot")
        return self.masks * y.unsqueeze(-3)

    def gram(self, y: Tensor) -> Tensor:
        self._check(y, self._image, "snapshot")
        return self.energy * y

    def A_dagger(self, y: Tensor) -> Tensor:
        self._check(y, self._image, "snapshot")
        return self.A_adjoint(self.inverse * y)

    def project(self, x: Tensor, y: Tensor) -> Tensor:
        return self._data_step(x, y, self.inverse)

    def project_carried(self, x: Tensor, y: Tensor, carried: Tensor) -> tuple[Tensor, Tensor]:
        self._check(x, self.masks.shape[-3:], "video")
        self._check(y, self._image, "snapshot")
        self._check(carried, self._image, "snapshot")
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

    def prox_l2(self, z: Tensor, y: Tensor, gamma: float) -> Tensor:
        return self._data_step(z, y, gamma / (1 + gamma * self.energy))

    def norm(self) -> float:
        return math.sqrt(float(self.energy.detach().max()))

    @property
    def _image(self) -> torch.Size:
        return self.masks.shape[-2:]

    def _data_step(self, x: Tensor, y: Tensor, gain: Tensor) -> Tensor:
        r"""$x + \Phi^\top[g \odot (y - \Phi x)]$: projection for $g = 1/\sum m^2$, prox for $1/(\rho + \sum m^2)$."""
        self._check(x, self.masks.shape[-3:], "video")
        self._check(y, self._image, "snapshot")
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

    def extra_repr(self) -> str:
        return f"masks={tuple(self.masks.shape)}"


class Multishot(CodedOperator):
    r"""K snapshots of the *same* video with K mask sets: $y_k = \sum_t m_{kt} \odot x_t$.

    masks: (K, T, H, W), or (N, K, T, H, W) per sample. Video (..., T, H, W), snapshots (..., K, H, W).
    $\Phi\Phi^\top$ is a K x K matrix at every pixel, inverted exactly (pseudo-inverse where masks are dependent).
    """

    matrix: Tensor
    inverse: Tensor

    def __init__(self, masks: Tensor) -> None:
        super().__init__()
        masks = _real_masks(masks, (4, 5), "(K, T, H, W) or (N, K, T, H, W)")
        matrix = torch.einsum("...ktij,...ltij->...ijkl", masks, masks)
        scale = matrix.detach().amax((-4, -3, -2, -1))[..., None, None]
        tolerance = max(matrix.shape[-1], 2) * torch.finfo(masks.dtype).eps
        limits = {"rtol": torch.full_like(scale, tolerance), "atol": scale * tolerance**2}
        inverse = torch.linalg.pinv(matrix, hermitian=True, **limits)
        self.register_buffer("masks", masks)
        self.register_buffer("matrix", matrix)
        self.register_buffer("inverse", inverse)

    def A(self, x: Tensor) -> Tensor:
        self._check(x, self.masks.shape[-3:], "video")
        return (self.masks * x.unsqueeze(-4)).sum(-3)

    def A_adjoint(self, y: Tensor) -> Tensor:
        self._check(y, self._image, "snapshot")
        return (self.masks * y.unsqueeze(-3)).sum(-4)

    def gram(self, y: Tensor) -> Tensor:
        self._check(y, self._image, "snapshot")
        return _per_pixel(self.matrix, y)

    def A_dagger(self, y: Tensor) -> Tensor:
        self._check(y, self._image, "snapshot")
        return self.A_adjoint(_per_pixel(self.inverse, y))

    def prox_l2(self, z: Tensor, y: Tensor, gamma: float) -> Tensor:
        system = gamma * self.matrix + torch.eye(self.matrix.shape[-1]).to(self.matrix)
        misfit = gamma * self._misfit(z, y).movedim(-3, -1).unsqueeze(-1)
        return z + self.A_adjoint(torch.linalg.solve(system, misfit).squeeze(-1).movedim(-1, -3))

    def norm(self) -> float:
        return math.sqrt(float(torch.linalg.matrix_norm(self.matrix.detach(), ord=2).max()))

    @property
    def _image(self) -> torch.Size:
        return self.masks.shape[-4:-3] + self.masks.shape[-2:]


def _per_pixel(matrix: Tensor, y: Tensor) -> Tensor:
    return torch.einsum("...ijkl,...lij->...kij", matrix, y)


def _real_masks(masks: Tensor, ranks: tuple[int, int], layout: str) -> Tensor:
    if masks.ndim not in ranks or masks.numel() == 0:
        raise InputError(f"masks must be {layout} and not empty, got shape {tuple(masks.shape)}")
    if masks.is_complex():
        raise InputError(f"masks must be real, got {masks.dtype}; pass their real part")
    masks = masks if masks.is_floating_point() else masks.to(torch.float32)
    if not bool(torch.isfinite(masks).all()):
        raise InputError("masks must be finite, got NaN or Inf; replace those values, for example by 0")
    return masks
