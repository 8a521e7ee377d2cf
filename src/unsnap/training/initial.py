"""Weights to begin with: those of an earlier model, or such that training begins at the start and not below it."""

from __future__ import annotations

from torch import nn

from unsnap import zoo
from unsnap.errors import InputError
from unsnap.models import Equilibrium, Model, Unfolded
from unsnap.networks.residual import without_change
from unsnap.networks.scales import Block


def begin(model: Model, source: str | None) -> None:
    """The weights of `source`, or else those that change nothing where a network can be like that."""
    if source is not None:
        begin_with(model, source)
        return
    for network in _networks(model):
        without_change(network)


def begin_with(model: Model, source: str) -> list[str]:
    """Copy the weights of the same name and size from a model file or a shipped model; the names of the others.

    Every stage of an unfolded model begins with the network of an equilibrium, or with that of the same stage.
    Blocks of a U-net that the source lacks begin without effect: a network that was made deeper computes what it did.
    """
    given = [dict(network.state_dict()) for network in _networks(zoo.trainable(source))]
    missing: list[str] = []
    for stage, network in enumerate(_networks(model)):
        found, own = given[min(stage, len(given) - 1)], network.state_dict()
        common = {key: value for key, value in found.items() if key in own and own[key].shape == value.shape}
        if not common:
            raise InputError(
                f"{source} has no weights in common with this network (its first is {next(iter(found), None)!r}, "
                f"ours {next(iter(own), None)!r}); begin with a model of the same architecture"
            )
        network.load_state_dict(common, strict=False)
        new = own.keys() - common.keys()
        for name, part in network.named_modules():
            if isinstance(part, Block) and all(f"{name}.{key}" in new for key in part.state_dict()):
                part.without_effect()
        missing += [key for key in own if key in new]
    return missing


def _networks(model: Model) -> list[nn.Module]:
    if isinstance(model, Unfolded):
        return list(model.networks)
    return [model.network] if isinstance(model, Equilibrium) and isinstance(model.network, nn.Module) else []
