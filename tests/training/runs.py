"""Tiny runs, and what it means that two of them ended alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from unsnap.training import Config, Trainer, resume


def tiny(clips: Path, **changes: Any) -> Config:
    """A run through all stages that takes a second or two."""
    values: dict[str, Any] = {
        "settings": {"channels": [4, 4, 4], "blocks": [1, 1, 1]},
        "clips": str(clips),
        "start": "least_squares",
        "steps": 12,
        "batch": 4,
        "crop": 16,
        "frames": (4, 8),
        "gaussian": 0.1,
        "blend": 0.4,
        "gaussian_share": 0.0,
        "implicit": 0.3,
        "pool": 3,
        "age": 4,
        "warmup": 2,
        "checkpoint_every": 5,
        "validate_every": 1000,
    }
    return Config(**{**values, **changes})


def finished(config: Config, folder: Path) -> Trainer:
    """A run from its beginning to its end."""
    run = Trainer(config, folder)
    run.run()
    return run


def resumed(config: Config, folder: Path, stop: int) -> Trainer:
    """A run that is stopped after so many steps, and goes on from what it wrote."""

    def watch(facts: dict[str, Any]) -> None:
        if facts.get("step") == stop:
            part.stop()

    part = Trainer(config, folder, report=watch)
    part.run()
    assert part.step == stop
    again = resume(folder)
    assert same(lasting(again.state()), lasting(part.state()))
    again.run()
    return again


def same(a: Any, b: Any) -> bool:
    """Equal to the last bit, through dictionaries and lists."""
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)


def lasting(state: dict[str, Any]) -> dict[str, Any]:
    """A checkpoint's state without the time it took, nor how often it was resumed."""
    return {k: v for k, v in state.items() if k not in ("elapsed", "worked", "reached", "unsnap_checkpoint")}
