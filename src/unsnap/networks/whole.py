"""Published reconstructions, known by the names in their files: which of our networks they are, and of what size.

Our networks call their parts as the authors do, so that a file needs no translation. The weights themselves cannot be
had without asking their authors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from unsnap.networks.layouts import Shapes


@dataclass(frozen=True)
class PublishedModel:
    """title and name: for people, and in NETWORKS; stages: what the keys of each network begin with."""

    title: str
    name: str
    settings: dict[str, Any]
    iteration: str | None
    """None: it is a denoiser."""
    stages: tuple[str, ...] = ("",)

    def shapes(self) -> Shapes:
        from unsnap.networks import build

        with torch.device("meta"):
            one = {key: tuple(value.shape) for key, value in build(self.name, self.settings).state_dict().items()}
        return {f"{stage}{key}": shape for stage in self.stages for key, shape in one.items()}

    def state(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {key: tensors[key].float().contiguous() for key in self.shapes()}

    def facts(self) -> dict[str, Any]:
        return {"stages": len(self.stages)}


def published_model(shapes: Shapes) -> PublishedModel | None:
    """The model whose file has these keys, in the size that the shapes tell; None if it is none of them."""

    def size(key: str, axis: int = 0) -> int:
        shape = shapes.get(key, ())
        return shape[axis] if axis < len(shape) else 1

    def count(prefix: str) -> int:
        """How many of prefix0, prefix1, … there are."""
        numbers = {key[len(prefix) :].partition(".")[0] for key in shapes if key.startswith(prefix)}
        return max(1, len(numbers))

    if "Q_param" in shapes:
        convs = [size(f"conv_layer.conv_layers.{part}") for part in ("0.parametrizations.weight.original", "1.weight")]
        settings = {"groups": size("Q_param"), "size": size("Q_param", 1), "channels": convs}
        return PublishedModel("MFoE (Ducotterd & Unser 2025)", "mfoe", settings, None)
    if "fem.0.weight" in shapes:
        settings = {
            "width": size("fem.0.weight"),
            "blocks": count("resdnet_list."),
            "groups": count("resdnet_list.0.cformer_list."),
        }
        return PublishedModel("EfficientSCI (Wang, Cao & Yuan 2023)", "efficientsci", settings, "recurrent")
    if "token_gen.0.weight" in shapes:
        reach = size("layers.0.blocks.0.time_attn.relative_position_bias_table")
        settings = {"width": size("token_gen.0.weight"), "layers": count("layers."), "frames": (reach + 1) // 2}
        return PublishedModel("STFormer (Wang et al. 2023)", "stformer", settings, "gap")
    if "first_frame_net.conv1.weight" in shapes:
        settings = {"frames": max(1, size("first_frame_net.conv1.weight", 1) - 1)}
        return PublishedModel("BIRNAT (Cheng et al. 2022)", "birnat", settings, "recurrent")
    if "unet1.conv_last.weight" in shapes:
        settings = {"frames": size("unet1.conv_last.weight"), "channels": size("unet1.conv_last.weight", 1)}
        stages = tuple(f"unet{k}." for k in range(1, count("unet") + 1))
        return PublishedModel("GAP-net (Meng, Jalali & Yuan 2020)", "stage_unet", settings, "gap", stages)
    if "encode1.conv1.weight" in shapes:
        settings = {"frames": size("conv1.weight", 1), "channels": size("conv1.weight")}
        return PublishedModel("U-net (Qiao et al. 2020)", "full_unet", settings, "gap")
    return None
