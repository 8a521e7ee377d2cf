"""Refusing a run that cannot work, before anything is read or written."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor

from unsnap.errors import InputError, short
from unsnap.io import claim_output
from unsnap.io.budget import left
from unsnap.models.file import describe
from unsnap.training.config import Config
from unsnap.training.sources import DATASETS, LOSSES
from unsnap.training.world import World


def check_config(config: Config, world: World) -> None:
    """Refuse what cannot work before anything is read."""
    try:
        model = config.model()
        describe(model)  # what nobody could load again is not worth training
    except InputError:  # says itself what is wrong
        raise
    except (TypeError, ValueError) as error:
        raise InputError(f"the network {config.network!r} cannot be built ({error}); correct its settings") from error
    denoising = max(config.gaussian, config.blend, config.gaussian_share) > 0
    if denoising and (model.iteration.whole or config.kind != "equilibrium"):
        raise InputError(
            f"this {config.kind} of {config.iteration!r} has no single denoiser: set gaussian, blend and "
            "gaussian_share to 0"
        )
    _check_loss(config)
    if config.dataset is not None:
        DATASETS.find(config.dataset)
    if 1e9 * config.cache > left():
        raise InputError(f"cache = {config.cache:g} GB is more memory than there is ({left() / 1e9:.1f} GB); take less")
    if config.batch % world.size:
        raise InputError(f"batch must be a multiple of the {world.size} processes, got {config.batch}; change either")


def _check_loss(config: Config) -> None:
    """Refuse a loss that is not one finite number with a gradient."""
    loss, size = LOSSES.find(config.loss), (2, config.frames[0], config.crop, config.crop)
    x = torch.full(size, 0.5, requires_grad=True)
    try:
        value: object = loss(x, torch.zeros(size))
    except Exception as error:  # whatever a plug-in raises
        raise InputError(
            f"the loss {config.loss!r} must take videos and truths (B, T, H, W), and fails with "
            f"{type(error).__name__}: {short(str(error))}"
        ) from error
    if not isinstance(value, Tensor) or value.shape != () or not value.requires_grad or not bool(value.isfinite()):
        if not isinstance(value, Tensor):
            found = f"{type(value).__name__}; compute with the tensors it is given"
        elif value.shape != ():
            found = f"shape {tuple(value.shape)}; take the mean over the samples"
        elif not bool(value.isfinite()):
            found = f"{float(value.detach())} for a grey and a black video; let it have a value there"
        else:
            found = "a number without a gradient; leave out detach() and no_grad"
        raise InputError(
            f"the loss {config.loss!r} must return one finite number with a gradient, a tensor of shape (), got {found}"
        )


def claim_folder(folder: Path, names: Iterable[str], inputs: Iterable[str | Path | None], force: bool) -> None:
    """Refuse a directory in which another run is, or from which this one reads."""
    for name in names:
        target = folder / name
        claim_output(target, (target.suffix,), inputs=inputs, force=True)
        if target.exists() and not force:
            raise InputError(
                f"{folder} already holds a run ({name}); resume it (--resume), choose another folder or add --force"
            )
