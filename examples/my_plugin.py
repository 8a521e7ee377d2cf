"""A plug-in: a network and a prior of one's own. Importing it registers them; it is not a script.

unsnap reconstruct capture.mat --plugin examples/my_plugin.py --method gap-median
unsnap train clips/ -o run --plugin examples/my_plugin.py --model gap-net --network my-conv3d
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from unsnap.networks import NETWORKS
from unsnap.priors import PRIORS, Prior


@NETWORKS.named("my-conv3d")
class Conv3dNet(nn.Module):
    """Two space-time convolutions that predict a correction of x (..., T, H, W); sigma is not used."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.settings = {"channels": channels}  # the constructor's arguments: a model file stores them
        self.body = nn.Sequential(nn.Conv3d(1, channels, 3, padding=1), nn.ReLU(), nn.Conv3d(channels, 1, 3, padding=1))

    def forward(self, x: Tensor, sigma: float | Tensor = 0.0) -> Tensor:
        return x + self.body(x.reshape(-1, 1, *x.shape[-3:])).reshape(x.shape)


def median(x: Tensor, sigma: float | Tensor) -> Tensor:
    """Blend every pixel with the median of the 3 x 3 x 3 pixels around it; all of it from sigma = 0.1 on."""
    clips = pad(x.reshape(-1, 1, *x.shape[-3:]), (1, 1, 1, 1, 1, 1), mode="replicate")
    blocks = clips.unfold(-3, 3, 1).unfold(-3, 3, 1).unfold(-3, 3, 1).flatten(-3)
    share = (10 * torch.as_tensor(sigma)).clamp(max=1).to(x)
    return x + share * (blocks.median(-1).values.reshape(x.shape) - x)


PRIORS.register("median", Prior(median, 0.05))  # the strength that GAP uses with it
