"""FFDNet: Zhang, Zuo & Zhang, *Toward a fast and flexible solution for CNN-based image denoising*, TIP 2018."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, pixel_shuffle, pixel_unshuffle

from unsnap.errors import InputError
from unsnap.networks.frames import conv_stack, convolutions, frames_of, layers_of, sigma_of
from unsnap.networks.settings import whole

LAYOUTS = ("kair", "ipol")


class FFDNet(nn.Module):
    """Grey FFDNet, frame by frame: the 2 x 2 phases of the image and a constant map of sigma, 15 layers of 64 maps.

    layout: "kair" (the authors' network: the map comes last, the output is the clean image) or "ipol" (Tassano's: the
    map comes first, the output is the noise). sigma in [0, 1] units, as in both; a number or one per sample. Odd
    heights and widths are extended by repeating the last row or column, and cropped again.
    """

    def __init__(self, layers: int = 15, channels: int = 64, layout: str = "kair") -> None:
        super().__init__()
        whole("FFDNet", least=2, layers=layers)
        whole("FFDNet", channels=channels)
        if layout not in LAYOUTS:
            raise InputError(f"FFDNet: layout must be one of {', '.join(LAYOUTS)}, got {layout!r}")
        self.settings: dict[str, Any] = {"layers": layers, "channels": channels, "layout": layout}
        self.convs = convolutions([5, *[channels] * (layers - 1), 4], bias=True)

    def forward(self, x: Tensor, sigma: float | Tensor) -> Tensor:
        height, width = x.shape[-2:]
        frames = frames_of(x)
        if height % 2 or width % 2:
            frames = pad(frames, (0, width % 2, 0, height % 2), mode="replicate")
        phases = pixel_unshuffle(frames, 2)
        noise = sigma_of(sigma, x).expand(-1, 1, *phases.shape[-2:])
        kair = self.settings["layout"] == "kair"
        inputs = torch.cat([phases, noise] if kair else [noise, phases], 1)
        out = pixel_shuffle(conv_stack(layers_of(self.convs), inputs), 2)[..., :height, :width].reshape(x.shape)
        return out if kair else x - out
