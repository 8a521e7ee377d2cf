"""Going on from a checkpoint: exactly where it was, longer, or somewhere else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unsnap.errors import InputError
from unsnap.training import checkpoint, schedule
from unsnap.training.config import Config
from unsnap.training.presets import changed
from unsnap.training.trainer import Trainer


def resume(
    source: str | Path,
    folder: str | Path | None = None,
    *,
    more_minutes: float | None = None,
    more_steps: int | None = None,
    changes: dict[str, Any] | None = None,
    **options: Any,
) -> Trainer:
    """The trainer as it was at the last checkpoint of a run directory (or in a checkpoint file).

    more_minutes, more_steps: the run's new end, counted from where it is now; the stages never go back. changes: other
    fields of the config, at the price of bit-identity. options: of `Trainer`.
    """
    path = checkpoint.find(source)
    state = checkpoint.load_checkpoint(path)
    config = Config.from_json(state.get("config", ""), str(path))
    if folder is None and path.name != checkpoint.NAME:
        raise InputError(f"{path} is not in a run directory of its own; name the folder for the new run (-o)")
    target = path.parent if folder is None else Path(folder)
    try:
        step, elapsed = int(state["step"]), float(state["elapsed"])
        done = min(1.0, schedule.progress(config, step, elapsed))  # a run by the clock ends a little late
        reached = max(float(state.get("reached", 0)), done)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} is not a whole checkpoint ({error!r}); restore it or start a new run") from error
    changes = dict(changes or {})
    for name in sorted({"seed", "init"} & changes.keys()):
        raise InputError(f"{name} is what a run begins with, and {path} has begun; start a new run to change it")
    if more_minutes is not None or more_steps is not None:
        changes["minutes"] = None if more_minutes is None else elapsed / 60 + more_minutes
        changes["steps"] = None if more_steps is None else step + more_steps
    config = changed(config, changes)
    return Trainer(config, target, state={**state, "reached": reached, "source": str(path)}, **options)
