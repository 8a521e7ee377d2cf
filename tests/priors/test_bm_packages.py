"""BM3D and BM4D with their authors' packages, no stand-ins: they run, and plug-and-play with them gains."""

from __future__ import annotations

import pytest
import torch

from laws import seeded
from unsnap.masks import bernoulli
from unsnap.methods import METHODS
from unsnap.metrics import psnr
from unsnap.operators import Snapshot
from unsnap.simulate import render


@pytest.mark.parametrize("name", ["bm3d", "bm4d"])
@pytest.mark.filterwarnings("ignore")  # of the packages
def test_plug_and_play_with_the_real_package(name: str) -> None:
    pytest.importorskip(name)
    phi, x = Snapshot(bernoulli(2, 16, 16, generator=seeded())), render(2, 16, 16, seed=1)
    y = phi.A(x)
    found = METHODS[f"pnp-{name}"](y, phi, iterations=1).x
    assert float(psnr(found, x).mean()) > float(psnr(phi.A_dagger(y), x).mean()) + 1
    assert found.dtype == torch.float32
