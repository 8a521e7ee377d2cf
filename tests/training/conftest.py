"""A folder of small rendered videos, and validations that are as small."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from unsnap.simulate import render
from unsnap.training import trainer, validate


@pytest.fixture(scope="session")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clips")
    for seed in range(3):
        np.savez(folder / f"clip{seed}.npz", frames=(render(12, 40, 40, seed=seed).numpy() * 255).astype(np.uint8))
    return folder


@pytest.fixture(scope="module", autouse=True)
def short_validation() -> Iterator[None]:
    """What these runs do between their few steps takes no longer than those; nothing here depends on its depth."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer, "VALIDATION_SIZE", 16)
        patch.setattr(validate, "DEPTHS", (5,))
        yield
