"""Forward models of coded cameras: one module each, and the list of them by name.

A new camera is a module with a subclass of `CodedOperator` and one line in `CAMERAS`; files and commands then know it.
"""

from __future__ import annotations

from torch import Tensor

from unsnap.operators.base import CodedOperator
from unsnap.operators.bayer import RGB, Bayer, planes
from unsnap.operators.dispersed import Dispersed, DualDispersed
from unsnap.operators.multishot import Multishot
from unsnap.operators.snapshot import Snapshot
from unsnap.registry import Registry

__all__ = [
    "CAMERAS",
    "RGB",
    "Bayer",
    "CodedOperator",
    "Dispersed",
    "Multishot",
    "Snapshot",
    "camera",
    "kind_of",
    "planes",
]

CAMERAS: Registry[type[CodedOperator]] = Registry(
    "camera",
    {
        "snapshot": Snapshot,
        "multishot": Multishot,
        "bayer": Bayer,
        "rgb": RGB,
        "dispersed": Dispersed,
        "dual": DualDispersed,
    },
    CodedOperator,
)
"""Cameras by the name that scene files and `--kind` use; each is made from its masks."""


def kind_of(name: str) -> type[CodedOperator]:
    """The class of a camera by its name, with or without a setting behind a colon."""
    return CAMERAS.find(name.partition(":")[0])


def camera(name: str, masks: Tensor) -> CodedOperator:
    """The camera with these masks and this name, which may end in a setting, as `dispersed:0,2`.

    >>> import torch
    >>> camera("dispersed:0,1", torch.ones(3, 4, 4)).image
    torch.Size([4, 6])
    """
    return kind_of(name).named(masks, name.partition(":")[2])
