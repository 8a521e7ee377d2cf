"""Denoisers with weights. All are called as `denoiser(x, sigma)`, x (..., T, H, W) in [0, 1] units, any T, H and W."""

from __future__ import annotations

import inspect
from typing import Any

from torch import nn

from unsnap.errors import InputError
from unsnap.networks.certified import Certified
from unsnap.networks.cnn import CNN
from unsnap.networks.dncnn import DnCNN
from unsnap.networks.fastdvdnet import FastDVDnet
from unsnap.networks.ffdnet import FFDNet
from unsnap.networks.gradient_step import GradientStep
from unsnap.networks.rnn import BidirectionalRNN
from unsnap.networks.shift import ShiftUNet
from unsnap.networks.unet import UNet

__all__ = [
    "ARCHITECTURES", "CNN", "BidirectionalRNN", "Certified", "DnCNN", "FFDNet", "FastDVDnet", "GradientStep",
    "ShiftUNet", "UNet", "build",
]  # fmt: skip

ARCHITECTURES: dict[str, type[nn.Module]] = {
    "cnn": CNN,
    "dncnn": DnCNN,
    "ffdnet": FFDNet,
    "fastdvdnet": FastDVDnet,
    "certified": Certified,
    "gradient_step": GradientStep,
    "rnn": BidirectionalRNN,
    "shift": ShiftUNet,
    "unet": UNet,
}


def build(name: str, settings: dict[str, Any]) -> nn.Module:
    """The network of this name with fresh weights; `settings` are its constructor's arguments.

    >>> build("cnn", {"layers": 2, "channels": 3}).settings["channels"]
    3
    """
    if name not in ARCHITECTURES:
        raise InputError(f"unknown network {name!r}; known are {', '.join(ARCHITECTURES)}")
    known = list(inspect.signature(ARCHITECTURES[name]).parameters)
    unknown = [key for key in settings if key not in known]
    if unknown:
        raise InputError(f"network {name!r} has no setting {unknown[0]!r}; it takes {', '.join(known)}")
    return ARCHITECTURES[name](**settings)
