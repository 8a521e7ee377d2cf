r"""FastDVDnet: Tassano, Delon & Veit, *Towards real-time deep video denoising without flow estimation*, CVPR 2020.

Five frames make one: $\hat x_t = B_2(z_{t-1}, z_t, z_{t+1})$ with $z_s = B_1(x_{s-1}, x_s, x_{s+1})$, both blocks small
U-nets that see sigma beside every frame and predict the noise of the middle one.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pixel_shuffle

from unsnap.errors import InputError
from unsnap.networks.frames import conv_stack, layers_of, per_frame, sigma_of
from unsnap.networks.spacetime import extended
from unsnap.networks.windows import mirrored

_GROUPS = 3  # frames that a block sees


class FastDVDnet(nn.Module):
    """Denoises videos (..., T, H, W) of any T, H and W; sigma in [0, 1] units, a number or one per sample.

    colours: 1, or 3 for the authors' colour weights: the grey video is taken for all three colours and the results are
    averaged. Before the first and after the last frame the video goes on backwards, as in the authors' code (that of
    PnP-SCI goes round in circles instead). Heights and widths are extended to multiples of 4, and cropped again. Batch
    normalisation is folded into the convolutions when the authors' file is read.
    """

    def __init__(self, colours: int = 1) -> None:
        super().__init__()
        if colours not in (1, 3):
            raise InputError(f"FastDVDnet: colours must be 1 or 3, got {colours!r}")
        self.settings: dict[str, Any] = {"colours": colours}
        self.temp1, self.temp2 = _Block(colours), _Block(colours)

    def forward(self, x: Tensor, sigma: float | Tensor) -> Tensor:
        height, width = x.shape[-2:]
        videos = extended(x.reshape(-1, *x.shape[-3:]), 4)
        levels = sigma_of(sigma, x).reshape(*videos.shape[:2], 1, 1, 1)[:, :1]
        frames = videos[:, mirrored(range(-2, x.shape[-3] + 2), x.shape[-3])]
        frames = frames.unsqueeze(2).expand(-1, -1, self.settings["colours"], -1, -1)
        out = self.temp2.middle(self.temp1.middle(frames, levels), levels).mean(2)
        return out[..., :height, :width].reshape(x.shape)


class _Block(nn.Module):
    """A U-net of three scales on three frames and their maps of sigma."""

    def __init__(self, colours: int) -> None:
        super().__init__()
        first = nn.Conv2d(_GROUPS * (colours + 1), 90, 3, padding=1, groups=_GROUPS)
        self.inc = nn.ModuleList([first, _conv(90, 32)])
        self.downc0 = nn.ModuleList([_conv(32, 64, stride=2), _conv(64, 64), _conv(64, 64)])
        self.downc1 = nn.ModuleList([_conv(64, 128, stride=2), _conv(128, 128), _conv(128, 128)])
        self.upc2 = nn.ModuleList([_conv(128, 128), _conv(128, 128), _conv(128, 256)])
        self.upc1 = nn.ModuleList([_conv(64, 64), _conv(64, 64), _conv(64, 128)])
        self.outc = nn.ModuleList([_conv(32, 32), _conv(32, colours)])

    def middle(self, videos: Tensor, levels: Tensor) -> Tensor:
        """(n, T, C, H, W) -> (n, T - 2, C, H, W): every frame that has two neighbours, cleaned."""
        count, frames, colours, height, width = videos.shape
        maps = levels.expand(count, frames, 1, height, width)
        inputs = torch.cat([videos, maps], 2)
        triples = torch.cat([inputs[:, k : frames - 2 + k] for k in range(3)], 2).flatten(0, 1)
        return per_frame(self, triples).reshape(count, frames - 2, colours, height, width)

    def forward(self, triples: Tensor) -> Tensor:
        """Frames and maps (n, 3 (C + 1), H, W) -> the middle frame (n, C, H, W)."""
        colours = triples.shape[1] // _GROUPS - 1
        x0 = _run(self.inc[1:], _first(self.inc[0], triples)).relu()
        x1 = _run(self.downc0[1:], _first(self.downc0[0], x0)).relu()
        x2 = _run(self.downc1[1:], _first(self.downc1[0], x1)).relu()
        x2 = pixel_shuffle(_run(self.upc2, x2), 2)
        x1 = pixel_shuffle(_run(self.upc1, x1 + x2), 2)
        return triples[:, colours + 1 : 2 * colours + 1] - _run(self.outc, x0 + x1)


def _conv(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1)


def _first(conv: nn.Module, x: Tensor) -> Tensor:
    """A convolution with groups or a stride, and ReLU."""
    out: Tensor = conv(x)
    return out.relu()


def _run(convs: nn.ModuleList, x: Tensor) -> Tensor:
    """Plain convolutions with ReLU between them, on the fast path where there is one."""
    return conv_stack(layers_of(convs), x)
