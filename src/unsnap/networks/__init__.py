"""Denoisers with weights. All are called as `denoiser(x, sigma)`, x (..., T, H, W) in [0, 1] units, any T, H and W."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import nn

from unsnap.errors import InputError
from unsnap.networks.bias_free import BiasFreeUNet
from unsnap.networks.birnat import Birnat
from unsnap.networks.capture import Capture, Conditioned, WithFeatures
from unsnap.networks.certified import Certified
from unsnap.networks.cnn import CNN
from unsnap.networks.dense_stage import DenseStage
from unsnap.networks.dncnn import DnCNN
from unsnap.networks.efficientsci import EfficientSCI
from unsnap.networks.fastdvdnet import FastDVDnet
from unsnap.networks.ffdnet import FFDNet
from unsnap.networks.frame_rnn import FrameRNN
from unsnap.networks.gradient_step import GradientStep
from unsnap.networks.mfoe import MFoE
from unsnap.networks.rnn import BidirectionalRNN
from unsnap.networks.shift import ShiftUNet
from unsnap.networks.shift_stage import ShiftStage
from unsnap.networks.stages import FullUNet, StageUNet
from unsnap.networks.stformer import STFormer
from unsnap.networks.unet import UNet
from unsnap.registry import Registry

__all__ = [
    "CNN", "NETWORKS", "BiasFreeUNet", "BidirectionalRNN", "Birnat", "Capture", "Certified", "Conditioned",
    "DenseStage", "DnCNN", "EfficientSCI", "FFDNet", "FastDVDnet", "FrameRNN", "FullUNet", "GradientStep", "MFoE",
    "STFormer",
    "ShiftStage", "ShiftUNet", "StageUNet", "UNet", "WithFeatures", "build", "describe",
]  # fmt: skip

NETWORKS: Registry[type[nn.Module]] = Registry(
    "network",
    {
        "cnn": CNN,
        "dncnn": DnCNN,
        "ffdnet": FFDNet,
        "fastdvdnet": FastDVDnet,
        "bias_free_unet": BiasFreeUNet,
        "certified": Certified,
        "gradient_step": GradientStep,
        "mfoe": MFoE,
        "rnn": BidirectionalRNN,
        "frame_rnn": FrameRNN,
        "shift": ShiftUNet,
        "shift_stage": ShiftStage,
        "unet": UNet,
        "birnat": Birnat,
        "efficientsci": EfficientSCI,
        "full_unet": FullUNet,
        "stage_unet": StageUNet,
        "dense_stage": DenseStage,
        "stformer": STFormer,
    },
    nn.Module,
    listed="`unsnap.networks.NETWORKS` lists them",
)
"""Network classes by the name that model files and `unsnap train --network` use."""


def build(name: str, settings: dict[str, Any]) -> nn.Module:
    """The network of this name with fresh weights; `settings` are its constructor's arguments.

    >>> build("cnn", {"layers": 2, "channels": 3}).settings["channels"]
    3
    """
    network = NETWORKS.find(name)
    takes = inspect.signature(network).parameters
    known, any_name = list(takes), any(p.kind is p.VAR_KEYWORD for p in takes.values())
    unknown = [key for key in settings if key not in known and not any_name]
    if unknown:
        raise InputError(f"network {name!r} has no setting {unknown[0]!r}; it takes {', '.join(known)}")
    return network(**settings)


def describe(network: object) -> dict[str, Any]:
    """Name and settings from which `build` makes the network again; an InputError if it cannot."""
    kind = type(network).__name__
    name = NETWORKS.name_of(type(network)) if isinstance(network, nn.Module) else None
    if not isinstance(network, nn.Module) or name is None:
        raise InputError(
            f"{kind} is not a registered network, so nobody could load it again; write "
            f'`@unsnap.networks.NETWORKS.named("my-{kind.lower()}")` above its class'
        )
    settings = getattr(network, "settings", {})
    try:
        with torch.random.fork_rng(devices=[]):  # nobody else's random numbers change
            again = build(name, settings)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"network {name!r} cannot be built again from its attribute `settings` = {settings!r} ({error}); set it to "
            "the constructor's arguments"
        ) from error
    shapes = [{k: v.shape for k, v in net.state_dict().items()} for net in (network, again)]
    if shapes[0] != shapes[1]:
        raise InputError(
            f"network {name!r} built from its attribute `settings` = {settings!r} has other weights than this one; set "
            "it to the constructor's arguments"
        )
    return {"name": name, "settings": settings}
