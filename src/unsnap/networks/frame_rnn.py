r"""DE-RNN's map without any foreign video: $f(x) = \mathrm{RNN}_\theta(x, y, \Phi)$, over the frames there and back.

The paper's own parts are BIRNAT's recurrences (`forward_rnn` and `backrnn`, 382,251 weights each, all at full
resolution: 200 GMAC per direction for 256 × 256 × 8); its first-frame network was never released. Here as many weights
per direction stand at three scales, which a CPU evaluates in a second and not in a minute.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pixel_shuffle

from unsnap.algorithms.iterate import Denoiser
from unsnap.networks.capture import Capture, Conditioned
from unsnap.networks.scales import Scales, phases
from unsnap.networks.settings import between, three


class FrameRNN(Conditioned):
    """A whole iteration for `Recurrent()`, made of recurrences of U-nets; any T, H and W, and no start as an input.

    Each frame is described by the estimate, what the data step adds to it, the frame's mask, the snapshot as a picture,
    that picture behind the mask, and the noise of the snapshot; the masks' scale cancels. A first-frame network makes
    the features with which the recurrence over the frames begins; a second one runs back, sees what the first made of
    each frame, and gives the change of x + Φ⁺(y − Φx). The last layer is zero at first: training begins at the start.
    damping: share of x that stays, which changes no equilibrium and calms a map that overshoots.
    """

    def __init__(
        self, channels: Sequence[int] = (20, 56, 104), blocks: Sequence[int] = (1, 1, 1), damping: float = 0.0
    ) -> None:
        super().__init__()
        three("FrameRNN", channels=channels, blocks=blocks)
        between("FrameRNN", -1e-9, 1, damping=damping)
        self.settings: dict[str, Any] = {"channels": list(channels), "blocks": list(blocks), "damping": damping}
        a = channels[0]
        self.estimate = nn.Conv2d(8, a, 3, padding=1)
        self.context = nn.Conv2d(16, a, 3, padding=1, bias=False)
        self.first_frame = nn.Sequential(
            nn.Conv2d(a, a, 3, padding=1), nn.ReLU(), nn.Conv2d(a, a, 3, padding=1), nn.Tanh()
        )
        self.forward_rnn, self.backrnn = _Recurrence(channels, blocks), _Recurrence(channels, blocks)
        self.leave = nn.Conv2d(a, 4, 3, padding=1)
        nn.init.zeros_(self.leave.weight)
        nn.init.zeros_(self.leave.bias)  # type: ignore[arg-type]
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # faster on a CPU

    @property
    def told(self) -> bool:
        return False  # y and Φ, but not the start

    def forward(self, x: Tensor, capture: Capture) -> Tensor:
        return self.condition(capture)(x, 0.0)

    def condition(self, capture: Capture) -> Denoiser:
        y, phi, damping = capture.y, capture.phi, self.settings["damping"]
        inputs = _beside(capture)
        kept: list[Tensor] = []

        def iteration(x: Tensor, sigma: float | Tensor, /) -> Tensor:
            if torch.is_grad_enabled() or not kept:
                kept[:] = [self.context(inputs)]
            correction = phi.A_dagger(y - phi.A(x))
            entered = self.estimate(phases(_planes([x, correction])))
            change = self._change((entered + kept[0]).unflatten(0, (-1, x.shape[-3])))
            new = x + correction + change[..., : x.shape[-2], : x.shape[-1]]
            return damping * x + (1 - damping) * new if damping else new

        return iteration

    def _change(self, features: Tensor) -> Tensor:
        """(n, T, a, H/2, W/2) -> (n, T, H, W)."""
        frames = list(features.unbind(1))
        ahead = self.forward_rnn(frames, self.first_frame(frames[0]))
        back = self.backrnn([u + h for u, h in zip(frames, ahead, strict=True)][::-1], ahead[-1])[::-1]
        return torch.stack([pixel_shuffle(self.leave(h), 2) for h in back], 1).squeeze(-3)


class _Recurrence(Scales):
    """h ← tanh(U(u + conv(h))) from frame to frame."""

    def __init__(self, channels: Sequence[int], blocks: Sequence[int]) -> None:
        super().__init__()
        self.carry = nn.Conv2d(channels[0], channels[0], 3, padding=1)
        self.add_scales(channels, blocks)

    def forward(self, frames: list[Tensor], h: Tensor) -> list[Tensor]:
        states = []
        for u in frames:
            h = self.through_scales(u + self.carry(h)).tanh()
            states.append(h)
        return states


def _beside(capture: Capture) -> Tensor:
    """What each frame is told of the capture, in phases."""
    video = (capture.y.shape[0], *capture.phi.video)
    picture, masks = capture.picture.unsqueeze(-3), capture.masks
    planes = [masks, picture, picture * masks, 10 * capture.noise.unsqueeze(-3)]
    return phases(_planes([plane.expand(video) for plane in planes]))


def _planes(videos: list[Tensor]) -> Tensor:
    """Videos (n, T, H, W) -> (n · T, count, H, W)."""
    return torch.stack(videos, -3).flatten(0, 1)
