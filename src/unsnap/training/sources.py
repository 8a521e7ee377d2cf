"""Where a run's videos come from and what it makes small: ours, or a plug-in's.

    # mine.py
    from unsnap.training import DATASETS, LOSSES

    @DATASETS.named("noise")
    class Noise:
        def __init__(self, folder): ...                     # of `unsnap train FOLDER`, or None
        def draw(self, batch, frames, size, generator): ... # (batch, frames, size, size) in [0, 1]

    @LOSSES.named("absolute")
    def absolute(x, truth): return (x - truth).abs().mean()

`unsnap train --plugin mine.py --dataset noise --loss absolute`, or `--dataset mine.py:Noise --loss mine.py:absolute`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor

from unsnap.errors import InputError, short
from unsnap.models.base import log_rmse
from unsnap.plugins import load_plugin
from unsnap.registry import Registry
from unsnap.training.clips import Clips, read_clips, rendered_clips
from unsnap.training.config import Config

Tell = Callable[[int, int], None]
_HELD_OUT = 8


class Videos(Protocol):
    """What samples are drawn from."""

    def draw(self, batch: int, frames: int, size: int, generator: torch.Generator, /) -> Tensor:
        """Videos (batch, frames, size, size) in [0, 1]; all that is random comes from the generator."""


DATASETS: Registry[Callable[[str | None], Videos]] = Registry("dataset", {})
"""Videos by the name that `unsnap train --dataset` uses: called with the folder, or None."""
LOSSES: Registry[Callable[[Tensor, Tensor], Tensor]] = Registry("loss", {"log_rmse": log_rmse})
"""Losses by the name that `unsnap train --loss` uses: called with videos and truths (B, T, H, W), a number each."""


def known(registry: Registry[Any], name: str) -> str:
    """The name; of the form MODULE:OBJECT or FILE.py:OBJECT, that is loaded and registered first.

    Only what someone has typed goes through here: the text in a checkpoint must not load anything.
    """
    module, colon, what = name.rpartition(":")
    if colon and name not in registry:
        found = getattr(load_plugin(module), what, None)
        if not callable(found):
            raise InputError(f"{module} has no {what!r} that can be called; give MODULE:OBJECT")
        registry.register(name, found)
    registry.find(name)
    return name


def material(config: Config, size: int, tell: Tell) -> tuple[Videos, Clips]:
    """What to train with and what to validate with (where a dataset gives none: draws of its own of that size)."""
    if config.dataset is None:
        clips = rendered_clips(seed=config.seed) if config.clips is None else read_clips(config.clips, progress=tell)
        return clips.split() if config.validation is None else (clips, read_clips(config.validation, progress=tell))
    videos: Videos = Checked(DATASETS.find(config.dataset)(config.clips), config.dataset)
    if config.validation is not None:
        return videos, read_clips(config.validation, progress=tell)
    drawn = videos.draw(_HELD_OUT, 8, size, torch.Generator().manual_seed(config.seed + 1))
    return videos, Clips(list((255 * drawn).round().to(torch.uint8)), [f"drawn {k}" for k in range(_HELD_OUT)])


class Checked:
    """Videos of somebody else: a mistake is one sentence that names the dataset."""

    def __init__(self, videos: Videos, name: str) -> None:
        self.videos, self.name = videos, name
        if not callable(getattr(videos, "draw", None)):
            raise InputError(f"the dataset {name!r} must have a method draw(batch, frames, size, generator)")

    def draw(self, batch: int, frames: int, size: int, generator: torch.Generator) -> Tensor:
        drawn: object = self.videos.draw(batch, frames, size, generator)
        if not isinstance(drawn, Tensor) or drawn.shape != (batch, frames, size, size):
            found = tuple(drawn.shape) if isinstance(drawn, Tensor) else short(drawn)
            raise InputError(f"the dataset {self.name!r} must draw {(batch, frames, size, size)}, got {found}")
        drawn = drawn.float()
        if not bool(((drawn >= 0) & (drawn <= 1)).all()):
            raise InputError(
                f"the dataset {self.name!r} must draw values in [0, 1], got {float(drawn.max()):g} at most"
            )
        return drawn
