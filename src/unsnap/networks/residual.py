"""Networks that add a change to what they are given: without the change, training begins at the start."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import torch
from torch import nn


@runtime_checkable
class Residual(Protocol):
    """A network whose output is its input plus a change; `last` is the layer that makes the change."""

    @property
    def last(self) -> nn.Conv2d: ...


@torch.no_grad()
def without_change(network: nn.Module) -> None:
    """Zero the last layer, so that the network begins as the identity; others begin as they are.

    >>> from unsnap.networks import ShiftUNet
    >>> network, x = ShiftUNet(context=False), torch.rand(4, 16, 16)
    >>> without_change(network)
    >>> torch.equal(network(x), x)
    True
    """
    if isinstance(network, Residual):
        network.last.weight.zero_()
        if network.last.bias is not None:
            network.last.bias.zero_()
