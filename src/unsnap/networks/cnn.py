r"""Residual convolutional denoisers: $D(x) = x - \mathrm{net}(x)$, frame by frame.

The four-layer one is the denoiser of DE-GAP-CNN (Zhao, Zheng & Yuan, AAAI 2023). Its spectral twin divides every
convolution by an estimate of its norm (Ryu et al., *Plug-and-play methods provably converge with properly trained
denoisers*, ICML 2019).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, conv_transpose2d

from unsnap.networks.frames import Layer, conv_stack, convolutions, frames_of, layers_of
from unsnap.networks.settings import flags, whole


class CNN(nn.Module):
    """`layers` convolutions 3 x 3 of `channels` maps with ReLU between; they predict the noise. Any (..., T, H, W).

    spectral: divide each convolution by its spectral norm on size x size images ("real spectral normalisation"). The
    norm comes from power iteration: an *estimate from below*, not a certificate. It follows the weights when `refine`
    is called, once per training step; a forward pass never changes it, so that the network stays a pure function.
    """

    def __init__(
        self, layers: int = 4, channels: int = 64, bias: bool = False, spectral: bool = False, size: int = 40
    ) -> None:
        super().__init__()
        whole("CNN", least=2, layers=layers)
        whole("CNN", channels=channels, size=size)
        flags("CNN", bias=bias, spectral=spectral)
        self.settings: dict[str, Any] = {
            "layers": layers, "channels": channels, "bias": bias, "spectral": spectral, "size": size
        }  # fmt: skip
        self.convs = convolutions([1, *[channels] * (layers - 1), 1], bias=bias)
        self.spectral = spectral
        if spectral:
            for k, (weight, _) in enumerate(layers_of(self.convs)):
                self.register_buffer(f"direction{k}", torch.randn(1, weight.shape[1], size, size))
            self.refine(20)

    def forward(self, x: Tensor, sigma: float | Tensor = 0.0) -> Tensor:
        """The clean video; sigma is ignored: the network knows one noise level, that of its training."""
        return x - conv_stack(self._weights(), frames_of(x)).reshape(x.shape)

    @torch.no_grad()
    def refine(self, iterations: int = 1) -> list[float]:
        """Power iterations on the convolutions, from where the last call stopped; returns the estimated norms."""
        norms = []
        for k, (weight, _) in enumerate(layers_of(self.convs) if self.spectral else []):
            v = self._direction(k)
            for _ in range(iterations):
                step = conv_transpose2d(conv2d(v, weight, padding=1), weight, padding=1)
                v.copy_(step / torch.linalg.vector_norm(step).clamp(min=torch.finfo(v.dtype).tiny))
            norms.append(float(_gain(weight, v)))
        return norms

    def _weights(self) -> list[Layer]:
        if not self.spectral:
            return layers_of(self.convs)
        return [(w / _gain(w, self._direction(k)), b) for k, (w, b) in enumerate(layers_of(self.convs))]

    def _direction(self, k: int) -> Tensor:
        return self.get_buffer(f"direction{k}")


def _gain(weight: Tensor, v: Tensor) -> Tensor:
    """‖Wv‖ for a unit image v: the norm of W once v is its leading right singular vector, and its derivative too."""
    norm: Tensor = torch.linalg.vector_norm(conv2d(v, weight, padding=1))
    return norm.clamp(min=torch.finfo(v.dtype).tiny)
