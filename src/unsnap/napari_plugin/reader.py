"""A scene file as layers: what was measured, the masks, and the truth where it is known, all (N, T, H, W)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from torch import Tensor

import unsnap

Layer = tuple[Any, dict[str, Any], str]
"""Data, options and kind, as napari takes them."""
KEY = "unsnap"
"""Where a layer's metadata holds the scene that it is of."""


def get_reader(path: str | list[str]) -> Callable[[str], list[Layer]] | None:
    """What reads this path: one file at a time."""
    return read if isinstance(path, str) else None


def read(path: str) -> list[Layer]:
    """The layers of a scene file; an InputError says what is wrong with another."""
    scene = unsnap.load_scene(path)
    name = str(scene.meta.get("name", "capture"))
    size = (scene.snapshots, scene.frames, *scene.operator.video[-2:])
    snapshot = np.broadcast_to(scene.pictures[:, None].numpy(), size)  # the same behind every frame, and no copy
    layers: list[Layer] = [(snapshot, {"name": f"{name} snapshot", "metadata": {KEY: scene}}, "image")]
    if scene.camera == "snapshot":
        masks = np.broadcast_to(scene.masks.numpy(), size)
        layers.append((masks, {"name": f"{name} masks", "visible": False}, "image"))
    if scene.truth is not None:
        layers.append(video_layer(scene.truth, f"{name} truth", scene.video_options["colour"], visible=False))
    return layers


def video_layer(video: Tensor, name: str, colour: bool, **options: Any) -> Layer:
    """Videos (N, T, H, W), or (N, 3T, H, W) in colour, as a layer; white is 1."""
    array = video.detach().cpu().clamp(0, 1).numpy()
    if colour:
        array = np.moveaxis(array.reshape(len(array), 3, -1, *array.shape[-2:]), 1, -1)
    return array, {"name": name, "contrast_limits": (0, 1), "rgb": colour, **options}, "image"
