r"""BIRNAT: Cheng et al., *Recurrent neural networks for snapshot compressive imaging*, TPAMI 2022.

End to end: one network makes the first frame, a recurrence makes the others from it one by one, and a second one runs
back through all of them. Each step sees what is left of the snapshot, $y - \Phi z$ with z the frames made so far, the
still picture in those to come, and nothing in its own. Attributes are called as in the authors' files; `forward_rnn`
and `backrnn` are also how the paper on equilibria named the parts of its DE-RNN.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from unsnap.algorithms.iterate import Denoiser
from unsnap.networks.capture import Capture, Conditioned
from unsnap.networks.settings import whole
from unsnap.networks.spacetime import extended
from unsnap.networks.windows import mirrored

_ROWS = 1024  # of the attention matrix at once: all of it has as many entries as pixels squared


class Birnat(Conditioned):
    """Any T, H and W; of a video of other length than `frames`, the first frame is made from as many of the masks."""

    def __init__(self, frames: int = 8) -> None:
        super().__init__()
        whole("Birnat", frames=frames)
        self.settings: dict[str, Any] = {"frames": frames}
        self.first_frame_net = _FirstFrame(frames + 1)
        self.forward_rnn, self.backrnn = _Recurrence(), _Recurrence()

    def condition(self, capture: Capture) -> Denoiser:
        return lambda x, sigma: self(capture)

    def forward(self, capture: Capture) -> Tensor:
        picture, count = capture.picture, capture.start.shape[-3]
        order = mirrored(range(self.settings["frames"]), count) if count < self.settings["frames"] else None
        masks = capture.masks.expand(capture.start.shape)
        masks = masks[:, : self.settings["frames"]] if order is None else masks[:, order]
        height, width = picture.shape[-2:]
        inputs = extended(torch.cat([picture.unsqueeze(1), masks * picture.unsqueeze(1)], 1), 2)
        first = self.first_frame_net(inputs)[..., :height, :width]
        features = picture.new_zeros(len(picture), 20, *picture.shape[-2:])
        guess = picture.unsqueeze(1).expand(capture.start.shape)
        video, features = self.forward_rnn(capture, guess, first, features, list(range(count)))
        back: Tensor = self.backrnn(capture, guess, video[:, -1:], features, list(range(count))[::-1])[0]
        return back


def _left(capture: Capture, z: Tensor) -> Tensor:
    """(B, H, W): what z leaves of the snapshot, where a white frame behind an open mask is 1."""
    rest = replace(capture, y=capture.y - capture.phi.A(z))
    return rest.picture * capture.masks.expand(z.shape).sum(-3)


class _Recurrence(nn.Module):
    """Frames in the given order, the first of which is known; returns all of them and the features after the last."""

    def __init__(self) -> None:
        super().__init__()
        leaky = nn.LeakyReLU
        self.extract_feature1 = _Wrapped(
            _conv(1, 20, 5), _conv(20, 20, 1), leaky(), _conv(20, 20), _conv(20, 40, 1), leaky(), _conv(40, 20)
        )
        self.up_feature1 = _Wrapped(
            _conv(50, 40), _conv(40, 30, 1), leaky(), _conv(30, 20), _conv(20, 20, 1), leaky(), _conv(20, 20),
            _conv(20, 1, 1),
        )  # fmt: skip
        self.conv_x = nn.Sequential(
            _conv(2, 20, 5), _conv(20, 20, 1), leaky(), _conv(20, 80, stride=2), _conv(80, 40, 1), leaky(),
            _conv(40, 40), leaky(), nn.ConvTranspose2d(40, 10, 3, stride=2, padding=1, output_padding=1),
        )  # fmt: skip
        self.h_h = nn.Sequential(_conv(50, 30), _conv(30, 20, 1), leaky(), _conv(20, 20))
        self.res_part1, self.res_part2 = _ThreeBlocks(50), _ThreeBlocks(50)

    def forward(
        self, capture: Capture, guess: Tensor, frame: Tensor, features: Tensor, order: list[int]
    ) -> tuple[Tensor, Tensor]:
        height, width = frame.shape[-2:]
        frames = {order[0]: frame}
        for t in order[1:]:
            known = [
                frames.get(s, guess[:, s : s + 1]) if s != t else torch.zeros_like(frame) for s in range(len(order))
            ]
            left = _left(capture, torch.cat(known, 1)).unsqueeze(1)
            told = self.conv_x(extended(torch.cat([guess[:, :1], left], 1), 2))[..., :height, :width]
            u = torch.cat([features, told, self.extract_feature1(frame)], 1)
            u = self.res_part2(self.res_part1(u))
            features, frame = self.h_h(u), self.up_feature1(u)
            frames[t] = frame
        return torch.cat([frames[t] for t in range(len(order))], 1), features


class _FirstFrame(nn.Module):
    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.conv1, self.conv2, self.conv3 = _conv(inputs, 32, 5), _conv(32, 64), _conv(64, 64, 1)
        self.conv4 = _conv(64, 128, stride=2)
        self.conv5 = nn.ConvTranspose2d(128, 64, 3, stride=2, padding=1, output_padding=1)
        self.conv51, self.conv52, self.conv6 = _conv(64, 32), _conv(32, 16, 1), _conv(16, 1)
        self.res_part1, self.res_part2, self.res_part3 = (_ThreeBlocks(128) for _ in range(3))
        self.conv7, self.conv8, self.conv9, self.conv10 = (_conv(128, 128, size) for size in (3, 1, 3, 1))
        self.att1 = _Attention(128)

    def forward(self, u: Tensor) -> Tensor:
        leaky = nn.functional.leaky_relu
        for conv in (self.conv1, self.conv2, self.conv3, self.conv4):
            u = leaky(conv(u))
        u = self.conv8(leaky(self.conv7(self.res_part1(u))))
        u = self.conv10(leaky(self.conv9(self.res_part2(u))))
        u = self.att1(self.res_part3(u))
        u = leaky(self.conv52(leaky(self.conv51(leaky(self.conv5(u))))))
        out: Tensor = self.conv6(u)
        return out


class _Attention(nn.Module):
    """Every pixel gives itself to the others, in shares that sum to one."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1, self.conv2 = _conv(channels, channels // 8, 1), _conv(channels, channels // 8, 1)
        self.conv3, self.conv4 = _conv(channels, channels, 1), _conv(channels, channels, 1)
        self.gamma1 = nn.Parameter(torch.zeros(1))

    def forward(self, u: Tensor) -> Tensor:
        giving, taking, given = (conv(u).flatten(2) for conv in (self.conv1, self.conv2, self.conv3))
        total = torch.zeros_like(given)
        for k in range(0, giving.shape[-1], _ROWS):
            rows = slice(k, k + _ROWS)
            shares = (giving[..., rows].transpose(1, 2) @ taking).softmax(-1)
            total = total + given[..., rows] @ shares
        out: Tensor = u + self.gamma1 * self.conv4(total.reshape(u.shape))
        return out


class _ThreeBlocks(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        leaky = nn.LeakyReLU
        self.conv1, self.conv2, self.conv3 = (
            nn.Sequential(
                _conv(channels, channels), leaky(), _conv(channels, channels, 1), leaky(), _conv(channels, channels)
            )
            for _ in range(3)
        )

    def forward(self, u: Tensor) -> Tensor:
        for conv in (self.conv1, self.conv2, self.conv3):
            u = u + conv(u)
        return u


class _Wrapped(nn.Module):
    """Layers under the name that the authors' files have for them."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.conv = nn.Sequential(*layers)

    def forward(self, u: Tensor) -> Tensor:
        out: Tensor = self.conv(u)
        return out


def _conv(inputs: int, outputs: int, size: int = 3, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, size, stride=stride, padding=size // 2)
