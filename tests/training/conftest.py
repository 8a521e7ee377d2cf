"""A folder of small rendered videos."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from unsnap.simulate import render


@pytest.fixture(scope="session")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clips")
    for seed in range(3):
        np.savez(folder / f"clip{seed}.npz", frames=(render(12, 40, 40, seed=seed).numpy() * 255).astype(np.uint8))
    return folder
