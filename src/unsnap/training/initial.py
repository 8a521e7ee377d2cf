"""Weights to begin with: what a network shares with an earlier model it takes from there."""

from __future__ import annotations

from torch import nn

from unsnap import zoo
from unsnap.errors import InputError
from unsnap.model_file import load_model


def begin_with(network: nn.Module, source: str) -> list[str]:
    """Copy the weights of the same name and size from a model file or a shipped model; the names of the others."""
    model = load_model(source)[0] if source.endswith(".safetensors") else zoo.equilibrium(source)
    own, found = network.state_dict(), model.network.state_dict()
    common = {key: value for key, value in found.items() if key in own and own[key].shape == value.shape}
    if not common:
        raise InputError(
            f"{source} has no weights in common with this network (its first is {next(iter(found), None)!r}, "
            f"ours {next(iter(own), None)!r}); begin with a model of the same architecture"
        )
    network.load_state_dict(common, strict=False)
    return [key for key in own if key not in common]
