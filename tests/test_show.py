"""Notebooks show scenes and solutions whatever is in them, in a few kilobytes, and a bar while they wait."""

from __future__ import annotations

import base64
import io
import re

import numpy as np
import pytest
import torch
from PIL import Image

from laws import seeded
from unsnap import Scene, Solution, reconstruct
from unsnap.masks import bernoulli
from unsnap.operators.bayer import mosaic
from unsnap.show import film_strip
from unsnap.simulate import render, simulate

MASKS = bernoulli(4, 24, 20, generator=seeded())


def solution(x: torch.Tensor, **more: object) -> Solution:
    batch = x.shape[:-3]
    none = torch.zeros(batch, dtype=torch.bool)
    return Solution(x, torch.full((7, *batch), 0.25), ~none, none, **more)


def pictures(html: str) -> list[np.ndarray]:
    found = re.findall(r"data:image/png;base64,([\w+/=]+)", html)
    return [np.asarray(Image.open(io.BytesIO(base64.b64decode(data)))) for data in found]


def test_frames_stand_side_by_side_and_samples_below_one_another() -> None:
    levels = torch.arange(1.0, 7).reshape(2, 3, 1, 1) / 6
    (strip,) = pictures(solution(levels.expand(2, 3, 5, 4))._repr_html_())
    assert strip.shape == (10, 12)
    np.testing.assert_array_equal(strip[::5, ::4], (levels[..., 0, 0] * 255).round().to(torch.uint8))


def test_colours_are_colours() -> None:
    video = torch.zeros(6, 5, 4)
    video[0], video[5] = 1, 1  # the first frame red, the second blue
    (strip,) = pictures(solution(video, colour=True)._repr_html_())
    np.testing.assert_array_equal(strip[0, ::4], [[255, 0, 0], [0, 0, 255]])


@pytest.mark.parametrize(
    "x",
    [
        torch.rand(8, 8, 300, 400, generator=seeded()),  # noise, which does not compress
        torch.rand(2, 2, 8, 30, 40, generator=seeded()).bfloat16(),
        torch.full((3, 16, 16), float("nan")),
        torch.tensor([float("inf"), -float("inf"), 1e30, -1.0]).reshape(4, 1, 1).expand(4, 9, 9),
        torch.zeros(()).expand(5, 1000, 60_000, 70_000),  # 21 TB, if anyone touched it
        torch.rand(3, 1, 5000, generator=seeded(), requires_grad=True),
        torch.zeros(0, 4, 8, 8),
    ],
    ids=["noise", "two batch axes", "nan", "infinite", "huge", "one row", "none"],
)
@pytest.mark.parametrize("colour", [False, True])
def test_any_video_is_shown_small(x: torch.Tensor, colour: bool) -> None:
    html = solution(x, colour=colour)._repr_html_()
    assert len(html) < 300_000
    assert len(pictures(html)) == (x.numel() > 0)


def test_what_is_known_is_said_and_escaped() -> None:
    masks = bernoulli(4, 24, 20, generator=seeded())
    html = reconstruct(masks.sum(0) / 2, masks, "gap-tv", iterations=3)._repr_html_()
    assert all(f">{word}<" in html for word in ("Solution gap-tv", "(4, 24, 20) float32", "3", "0 of 1"))
    evil = "<script>alert(1)</script>"
    scene = Scene(torch.rand(2, 24, 20), masks, meta={"name": evil, "notes": [evil, "x" * 9000]})
    html = (
        scene._repr_html_()
        + film_strip(torch.rand(2, 4, 4), evil)
        + solution(torch.rand(2, 4, 4), method=evil)._repr_html_()
    )
    assert evil not in html
    assert html.count("&lt;script&gt;") >= 4
    assert "not known" in html


def test_scenes_show_what_was_measured_and_the_truth() -> None:
    dark = simulate(1e-3 * render(4, 24, 20, seed=0), MASKS)
    snapshot, truth = pictures(dark._repr_html_())
    assert snapshot.max() == 255, "a snapshot has units of its own"
    assert truth.max() == 0
    red = torch.cat([torch.ones(4, 24, 20), torch.zeros(8, 24, 20)])[None]
    coloured = Scene.of(red, mosaic(MASKS, "rggb"), "bayer")
    assert pictures(coloured._repr_html_())[1][0, 0].tolist() == [255, 0, 0]
    assert reconstruct(coloured.measurement, coloured.operator, "gap-tv", iterations=1).colour
    assert len(pictures(Scene(torch.full((1, 24, 20), float("nan")), MASKS)._repr_html_())) == 1
