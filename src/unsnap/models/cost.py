"""What a model costs: its weights, and the multiplications and additions of one reconstruction."""

from __future__ import annotations

import copy
from typing import NamedTuple

import torch

from unsnap.models.base import Model
from unsnap.models.equilibrium import Equilibrium
from unsnap.operators import Snapshot


class Cost(NamedTuple):
    parameters: int
    gmac: float
    """10⁹ multiplications with addition: of all stages of an unfolded model, of one evaluation of an equilibrium."""


def cost(model: Model, frames: int = 8, height: int = 256, width: int = 256) -> Cost:
    """Counted by torch on tensors without contents, so that it takes no time; starts are not counted.

    >>> from unsnap import GAP, Unfolded
    >>> from unsnap.networks import FullUNet
    >>> counted = cost(Unfolded(GAP(), FullUNet(), [0.0]))        # published: 0.82 M and 53 G
    >>> counted.parameters, round(counted.gmac)
    (817608, 53)
    """
    from torch.utils.flop_counter import FlopCounterMode

    parameters = sum(weight.numel() for part in model.children() for weight in part.parameters())
    with torch.device("meta"):
        phi = Snapshot(torch.ones(frames, height, width))
        y, start = torch.ones(1, height, width), torch.ones(1, frames, height, width)
    empty = copy.deepcopy(model).to("meta")
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        if isinstance(empty, Equilibrium):
            empty.bind(y, phi, start)(empty.iteration.start(start))
        else:
            empty(y, phi, start=start)
    return Cost(parameters, counter.get_total_flops() / 2e9)
