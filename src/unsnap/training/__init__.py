"""Training equilibrium models from a folder of videos: one config, one run directory, resumable at any moment."""

from unsnap.training.config import Config
from unsnap.training.presets import PRESETS, preset
from unsnap.training.resuming import resume
from unsnap.training.sources import DATASETS, LOSSES
from unsnap.training.trainer import Trainer

__all__ = ["DATASETS", "LOSSES", "PRESETS", "Config", "Trainer", "preset", "resume"]
