"""The way to and from deepinv: our operators as its physics, its denoisers of images as ours of videos.

Images there are (B, C, H, W): a video has its frames as channels, (B, T, H, W), and a snapshot one, (B, 1, H, W).
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from unsnap.algorithms.iterate import Denoiser
from unsnap.errors import InputError
from unsnap.operators import CodedOperator, Multishot


def to_deepinv(phi: CodedOperator, **options: Any) -> Any:
    """A `deepinv.physics.LinearPhysics` around the operator, with all of its closed forms; phi is shared, not copied.

    Video (B, T, H, W); snapshot (B, 1, H, W), or (B, K, H, W) for K shots. options: those of LinearPhysics, such as
    noise_model. Solver settings that deepinv passes to `A_dagger` and `prox_l2` have nothing to set.
    """
    try:
        base = import_module("deepinv.physics").LinearPhysics
    except (ImportError, RuntimeError, AttributeError, OSError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(
            f"deepinv cannot be imported ({reason}); install it with `pip install deepinv`, and a torchvision made for "
            f"torch {torch.__version__}"
        ) from error
    physics = type("CodedPhysics", (_ClosedForms, base), {})(**options)
    physics.operator = phi
    return physics


class _ClosedForms:
    """What a LinearPhysics would compute by iteration; keyword arguments are for its noise model or its solvers."""

    operator: CodedOperator

    def A(self, x: Tensor, **kwargs: Any) -> Tensor:
        return self._image(self.operator.A(_batch(x, "video", "T")))

    def A_adjoint(self, y: Tensor, **kwargs: Any) -> Tensor:
        return self.operator.A_adjoint(self._snapshot(y))

    def A_A_adjoint(self, y: Tensor, **kwargs: Any) -> Tensor:
        return self._image(self.operator.gram(self._snapshot(y)))

    def A_dagger(self, y: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return self.operator.A_dagger(self._snapshot(y))

    def prox_l2(self, z: Tensor | float | None, y: Tensor, gamma: float | Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """gamma: a number, or a tensor of one or of one per sample."""
        y = self._snapshot(y)
        if not isinstance(z, Tensor):
            z = torch.full_like(self.operator.A_adjoint(y), 0.0 if z is None else z)
        if isinstance(gamma, Tensor):  # to stand before the axes of a snapshot, or before (H, W, K, K)
            axes = 4 if isinstance(self.operator, Multishot) else len(self.operator.image)
            gamma = gamma.reshape(() if gamma.numel() == 1 else (-1, *[1] * axes))
        return self.operator.prox_l2(_batch(z, "video", "T"), y, gamma)

    def compute_sqnorm(self, x0: Tensor, **kwargs: Any) -> Tensor:
        """‖Φ‖², on which deepinv's `compute_norm` is built."""
        return x0.new_tensor(self.operator.norm() ** 2)

    @property
    def _single(self) -> bool:
        return len(self.operator.image) == 2

    def _image(self, y: Tensor) -> Tensor:
        return y.unsqueeze(1) if self._single else y

    def _snapshot(self, y: Tensor) -> Tensor:
        if not self._single:
            return _batch(y, "snapshots", "K")
        if _batch(y, "snapshot", "1").shape[1] != 1:
            raise InputError(f"snapshot must be (B, 1, H, W), got shape {tuple(y.shape)}")
        return y.squeeze(1)


def _batch(tensor: Tensor, what: str, channels: str) -> Tensor:
    if tensor.ndim != 4:
        raise InputError(f"{what} must be (B, {channels}, H, W), got shape {tuple(tensor.shape)}; add a batch axis")
    return tensor


def from_deepinv(denoiser: Callable[[Tensor, Any], Tensor]) -> Denoiser:
    """A denoiser of images as a denoiser of videos (..., T, H, W): each frame is an image of its own.

    denoiser(images, sigma) is called as in deepinv, once for each video: images (T, 1, H, W); sigma, where white is 1,
    as the number that it is, or a tensor of one per image. So any of deepinv's denoisers of grey images fits, for one
    `deepinv.models.DRUNet(in_channels=1, out_channels=1)`. A network stays one: it can be moved and trained.

    >>> halve = from_deepinv(lambda images, sigma: images / 2)
    >>> float(halve(torch.ones(2, 4, 8, 8), 0.1).mean())
    0.5
    """
    return _Framewise(denoiser)


class _Framewise(nn.Module):
    def __init__(self, denoiser: Callable[[Tensor, Any], Tensor]) -> None:
        super().__init__()
        self.denoiser = denoiser

    def forward(self, x: Tensor, sigma: float | Tensor | None = None, /) -> Tensor:
        if sigma is None:
            raise InputError("sigma is missing; call denoiser(x, sigma) with the noise level in units where white is 1")
        if x.ndim < 3:
            raise InputError(f"video must be (..., T, H, W), got shape {tuple(x.shape)}")
        videos = x.reshape(-1, x.shape[-3], 1, *x.shape[-2:])
        cleaned = [self.denoiser(*pair) for pair in zip(videos, _levels(sigma, x), strict=True)]
        for video in cleaned:
            if video.shape != videos.shape[1:]:
                raise InputError(f"the denoiser must return {tuple(videos.shape[1:])}, got {tuple(video.shape)}")
        return torch.stack(cleaned).reshape(x.shape)


def _levels(sigma: float | Tensor, x: Tensor) -> list[float] | list[Tensor]:
    """What the denoiser is told of each video: a number as it is, a tensor as one level for each of its frames."""
    lead, frames = x.shape[:-3], x.shape[-3]
    if not isinstance(sigma, Tensor):
        return [sigma] * lead.numel()
    if sigma.numel() != 1 and sigma.shape != lead:
        raise InputError(f"sigma must be one number or one per video {tuple(lead)}, got shape {tuple(sigma.shape)}")
    levels = sigma.reshape(()) if sigma.numel() == 1 else sigma
    return list(levels.expand(lead).reshape(-1, 1).expand(-1, frames).to(x))
