"""The numpy yardstick of the speed benchmark computes the same video as the library."""

from __future__ import annotations

import torch

import unsnap
from snippets import script
from unsnap.masks import bernoulli
from unsnap.simulate import render


def test_gap_tv_is_the_field_s_gap_tv() -> None:
    generator = torch.Generator().manual_seed(0)
    truth = render(4, 40, 48, supersample=1).double()
    masks = bernoulli(4, 40, 48, generator=generator, dtype=torch.float64)
    y = (masks * truth).sum(0)
    ours = unsnap.reconstruct(y, masks, "gap-tv").x
    twin = script("benchmarks/numpy_twin.py")
    theirs = twin.gap_tv(y.numpy(), masks.movedim(0, -1).numpy(), weight=0.15, iterations=40, inner=5)
    torch.testing.assert_close(ours, torch.from_numpy(theirs).movedim(-1, 0), rtol=0, atol=1e-10)
