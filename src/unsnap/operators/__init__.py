"""Forward models of coded cameras: one module each, and the list of them by name.

A new camera is a module with a subclass of `CodedOperator` and one line in `CAMERAS`; files and commands then know it.
"""

from __future__ import annotations

from unsnap.operators.base import CodedOperator
from unsnap.operators.bayer import RGB, Bayer, planes
from unsnap.operators.dispersed import Dispersed
from unsnap.operators.multishot import Multishot
from unsnap.operators.snapshot import Snapshot
from unsnap.registry import Registry

__all__ = ["CAMERAS", "RGB", "Bayer", "CodedOperator", "Dispersed", "Multishot", "Snapshot", "planes"]

CAMERAS: Registry[type[CodedOperator]] = Registry(
    "camera", {"snapshot": Snapshot, "multishot": Multishot}, CodedOperator
)
"""Cameras by the name that scene files and `--camera` use; each is made from its masks."""
