r"""A whole iteration as a network: $x \leftarrow \mathrm{RNN}_\theta(x, y, \Phi)$ for DE-RNN.

Equation (13) of docs/cookbook/equilibrium.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from unsnap.algorithms.iterate import Denoiser
from unsnap.networks.capture import Capture, Conditioned
from unsnap.networks.settings import whole


class BidirectionalRNN(Conditioned):
    """Convolutional recurrences forward and backward over the frames, called as `network(x, capture)`; any T.

    Its inputs for each frame are the estimate, the snapshot as a picture (y over the sum of masks), that picture behind
    the frame's mask, what the data step would add, and the start. The scale of the masks cancels. The output is added
    to the middle between the start and the projection of x on {Φx = y}: a map with an equilibrium before anything is
    learned.
    """

    def __init__(self, channels: int = 24) -> None:
        super().__init__()
        whole("BidirectionalRNN", channels=channels)
        self.settings: dict[str, Any] = {"channels": channels}
        self.enter = nn.Conv2d(5, channels, 3, padding=1)
        self.ahead = nn.Conv2d(2 * channels, channels, 3, padding=1)
        self.behind = nn.Conv2d(2 * channels, channels, 3, padding=1)
        self.leave = nn.Conv2d(2 * channels, 1, 3, padding=1)
        with torch.no_grad():
            # A small change at first: a contraction by about a half, whose equilibrium can be learned from.
            self.leave.weight.mul_(0.1)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # a third faster on a CPU

    @property
    def last(self) -> nn.Conv2d:
        return self.leave

    def forward(self, x: Tensor, capture: Capture) -> Tensor:
        return self.condition(capture)(x, 0.0)

    def condition(self, capture: Capture) -> Denoiser:
        y, phi, start = capture.y, capture.phi, capture.start
        picture = capture.picture.unsqueeze(-3)
        behind = picture * capture.masks

        def iteration(x: Tensor, sigma: float | Tensor, /) -> Tensor:
            correction = phi.A_dagger(y - phi.A(x))
            inputs = torch.stack([x, picture.expand(x.shape), behind.expand(x.shape), correction, start], -3)
            frames = inputs.reshape(-1, *inputs.shape[-4:])
            return (x + correction + start) / 2 + self._recurrent(frames).reshape(x.shape)

        return iteration

    def _recurrent(self, frames: Tensor) -> Tensor:
        """(n, T, 5, H, W) -> (n, T, 1, H, W)."""
        features = [self.enter(frames[:, t]).relu() for t in range(frames.shape[1])]
        forward = _recur(self.ahead, features)
        backward = _recur(self.behind, reversed(features))[::-1]
        return torch.stack([self.leave(torch.cat(pair, 1)) for pair in zip(forward, backward, strict=True)], 1)


def _recur(cell: nn.Module, features: Iterable[Tensor]) -> list[Tensor]:
    """h_t = tanh(conv(u_t, h_{t−1})), from h = 0."""
    states: list[Tensor] = []
    for u in features:
        h = states[-1] if states else torch.zeros_like(u)
        states.append(cell(torch.cat([u, h], 1)).tanh())
    return states
