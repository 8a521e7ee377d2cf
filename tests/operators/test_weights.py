"""Pixels count by their weights: what has weight 0 is as if it had not been measured, and every closed form stays."""

from __future__ import annotations

import pytest
import torch

import laws
from laws import close, uniform
from unsnap import Scene, reconstruct
from unsnap.algorithms.noise import noise_map
from unsnap.masks import bernoulli
from unsnap.metrics import psnr
from unsnap.operators import CodedOperator, Multishot, Snapshot
from unsnap.simulate import render

CAMERAS = [Snapshot(uniform(3, 5, 4)), Multishot(uniform(2, 3, 5, 4)), Snapshot(uniform(4, 3, 5, 4))]
VIDEO = render(6, 40, 44, seed=4)
MASKS = bernoulli(6, 40, 44, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("phi", CAMERAS, ids=["snapshot", "multishot", "own masks"])
@pytest.mark.parametrize("per_sample", [False, True])
def test_a_weighted_camera_obeys_the_laws_and_scales_what_it_measures(phi: CodedOperator, per_sample: bool) -> None:
    weights = uniform(*([4] if per_sample else []), *phi.image, seed=5)
    weights = torch.where(weights < 0.3, 0, weights)
    x = uniform(4, *phi.video, seed=1)
    heavy = phi.weighted(weights)
    close(heavy.A(x), weights * phi.A(x))
    laws.camera(heavy, x, weights * uniform(4, *phi.image, seed=2))


@pytest.mark.parametrize("method", ["gap-tv3d", "gap-wnnm", "de-gap"])
def test_the_video_does_not_depend_on_pixels_that_are_left_out(method: str) -> None:
    scene = Scene.of(VIDEO[None], MASKS)
    weights = (uniform(1, 40, 44, seed=6) > 0.1).float()
    videos = []
    for value in (0.0, 1e4):
        spoilt = Scene(torch.where(weights > 0, scene.measurement, value), MASKS, VIDEO[None]).weighted(weights)
        videos.append(reconstruct(spoilt.measurement, spoilt.operator, method, iterations=3).x)
    assert torch.equal(*videos)


def test_leaving_saturated_pixels_out_is_better_than_believing_them() -> None:
    scene = Scene.of(VIDEO[None], MASKS)
    level = float(scene.measurement.quantile(0.95))
    clipped = Scene(scene.measurement.clamp(max=level), MASKS, VIDEO[None])
    out = clipped.weighted((clipped.measurement < level).float())
    kept, left = (
        float(psnr(reconstruct(s.measurement, s.operator, "gap-tv3d").x, VIDEO[None]).mean()) for s in (clipped, out)
    )
    assert left > kept + 0.5


def test_the_noise_of_what_is_left_is_still_found() -> None:
    g = torch.Generator().manual_seed(1)
    phi = Snapshot(bernoulli(4, 96, 96, generator=g))
    y = phi.A(torch.full((4, 96, 96), 0.5)) + 0.05 * torch.randn(96, 96, generator=g)
    weights = (torch.rand(96, 96, generator=g) > 0.2).float()
    weights[:50] = 0
    found = noise_map(y * weights, phi.weighted(weights).masks)
    assert (found[60:] / 0.05 - 1).abs().max() < 0.2


def test_parts_of_a_scene_keep_their_weights() -> None:
    weights = (uniform(3, 40, 44, seed=7) > 0.5).float()
    scene = Scene.of(torch.stack([VIDEO] * 3), MASKS).weighted(weights)
    assert torch.equal(scene.pick([2]).weights, weights[2:])
    assert torch.equal(scene.window(8, 4, 5).operator.masks, (MASKS * weights[:, None])[..., 4:12, 5:13])
    close(scene.coded, scene.measurement)
