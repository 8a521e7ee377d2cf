"""Several snapshots of one video, each with masks of its own."""

from __future__ import annotations

import torch
from torch import Tensor

from unsnap.operators.base import CodedOperator


class Multishot(CodedOperator):
    r"""K snapshots of the *same* video with K mask sets: $y_k = \sum_t m_{kt} \odot x_t$.

    masks: (K, T, H, W), or (N, K, T, H, W) per sample. Video (..., T, H, W), snapshots (..., K, H, W).
    $\Phi\Phi^\top$ is a K x K matrix at every pixel, inverted exactly (pseudo-inverse where masks are dependent).
    """

    RANK = 4
    matrix: Tensor
    inverse: Tensor

    def __init__(self, masks: Tensor) -> None:
        super().__init__(masks, "KTHW")
        masks = self.masks
        with torch.autocast(masks.device.type, enabled=False):
            exact = solvable(masks)
            matrix = torch.einsum("...ktij,...ltij->...ijkl", exact, exact)
            scale = matrix.detach().amax((-4, -3, -2, -1))[..., None, None]
            tolerance = max(matrix.shape[-1], 2) * torch.finfo(matrix.dtype).eps
            limits = {"rtol": torch.full_like(scale, tolerance), "atol": scale * tolerance**2}
            inverse = torch.linalg.pinv(matrix, hermitian=True, **limits)
        self.register_buffer("matrix", matrix.to(masks))
        self.register_buffer("inverse", inverse.to(masks))

    @property
    def image(self) -> torch.Size:
        return self.masks.shape[-4:-3] + self.masks.shape[-2:]

    def A(self, x: Tensor) -> Tensor:
        self._check(x, self.video, "video")
        return (self.masks * x.unsqueeze(-4)).sum(-3)

    def A_adjoint(self, y: Tensor) -> Tensor:
        self._check(y, self.image, "snapshot")
        return (self.masks * y.unsqueeze(-3)).sum(-4)

    def gram(self, y: Tensor) -> Tensor:
        self._check(y, self.image, "snapshot")
        return _per_pixel(self.matrix, y)

    def A_dagger(self, y: Tensor) -> Tensor:
        self._check(y, self.image, "snapshot")
        return self.A_adjoint(_per_pixel(self.inverse, y))

    def prox_l2(self, z: Tensor, y: Tensor, gamma: float | Tensor) -> Tensor:
        matrix = solvable(self.matrix)
        system = gamma * matrix + torch.eye(matrix.shape[-1]).to(matrix)
        misfit = (gamma * self._misfit(z, y).movedim(-3, -1).unsqueeze(-1)).to(system)
        return z + self.A_adjoint(torch.linalg.solve(system, misfit).squeeze(-1).movedim(-1, -3).to(z))

    def squared_norms(self) -> Tensor:
        norms: Tensor = torch.linalg.matrix_norm(solvable(self.matrix), ord=2)
        return norms.amax((-2, -1)).to(self.matrix)


def solvable(tensor: Tensor) -> Tensor:
    """In a precision that torch's linear algebra knows: half of one becomes single."""
    return tensor if tensor.dtype in (torch.float32, torch.float64) else tensor.float()


def _per_pixel(matrix: Tensor, y: Tensor) -> Tensor:
    return torch.einsum("...ijkl,...lij->...kij", matrix, y)
