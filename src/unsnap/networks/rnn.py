r"""A whole iteration as a network: $x \leftarrow \mathrm{RNN}_\theta(x, y, \Phi)$ for DE-RNN (math (13))."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from unsnap.networks.context import guess, picture, unit_masks
from unsnap.networks.settings import whole
from unsnap.operators import Snapshot


class BidirectionalRNN(nn.Module):
    """Convolutional recurrences forward and backward over the frames, called as `network(x, y, phi)`.

    x (..., T, H, W), y (..., H, W), any T. Each frame shows the network its estimate, the snapshot as a picture
    (y over the sum of masks), that picture behind the frame's mask, what the data step would add, and a first guess.
    The scale of the masks cancels. The output is added to the middle between the guess and the projection of x on
    {Φx = y}: a map with an equilibrium before anything is learned.
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

    def forward(self, x: Tensor, y: Tensor, phi: Snapshot) -> Tensor:
        return self.given(y, phi)(x)

    def given(self, y: Tensor, phi: Snapshot, guessed: Tensor | None = None) -> Callable[..., Tensor]:
        """The iteration x -> network(x, y, phi) for these snapshots: what does not change is computed once."""
        view = picture(y, phi).unsqueeze(-3)
        video = guess(y, phi) if guessed is None else guessed
        behind = view * unit_masks(phi)

        def iteration(x: Tensor, sigma: float | Tensor = 0.0) -> Tensor:
            correction = phi.A_dagger(y - phi.A(x))
            inputs = torch.stack([x, view.expand(x.shape), behind.expand(x.shape), correction, video], -3)
            frames = inputs.reshape(-1, *inputs.shape[-4:])
            return (x + correction + video) / 2 + self._recurrent(frames).reshape(x.shape)

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
