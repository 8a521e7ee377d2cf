"""What can be told without truth is told, and what cannot is not claimed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from unsnap import Scene, diagnose
from unsnap.masks import bernoulli, gray, moving, shifted
from unsnap.simulate import gaussian, render, simulate

RANDOM = torch.Generator().manual_seed(0)
MASKS = bernoulli(8, 96, 96, generator=RANDOM)
SCENE = replace(simulate(render(24, 96, 96, seed=1, speed=2), MASKS), truth=None)


def levels(scene: Scene, subject: str, *, deep: bool = False) -> list[str]:
    return [f.level for f in diagnose(scene, deep=deep) if f.subject == subject]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda m: m.flip(-2), "upside down"),
        (lambda m: m.flip(-1), "mirrored"),
        (lambda m: m.flip(-1, -2), "180°"),
        (lambda m: m.mT, "transposed"),
        (lambda m: m.rot90(1, (-2, -1)), "quarter to the left"),
        (lambda m: m.roll((-20, 31), (-2, -1)), "by -20 rows and 31 columns"),
        (lambda m: m.roll((2, -1), (-2, -1)), "by 2 rows and -1 column"),
    ],
)
def test_misplaced_masks_are_named(change: Callable[[Tensor], Tensor], words: str) -> None:
    wrong = replace(SCENE, masks=change(SCENE.masks).contiguous())
    (finding,) = [f for f in diagnose(wrong) if f.subject == "alignment"]
    assert finding.level == "fatal"
    assert words in finding.text
    signed = Scene.of(render(8, 96, 96, seed=1)[None], 2 * MASKS - 1)
    assert levels(signed, "alignment") == ["ok"]
    wrong = Scene(signed.measurement, change(signed.masks).contiguous())
    (finding,) = [f for f in diagnose(wrong) if f.subject == "alignment"]
    assert finding.level == "fatal"
    assert words in finding.text


@pytest.mark.parametrize("share", [0.02, 0.2])
def test_pixels_left_out_make_wrong_masks_no_better_and_right_ones_no_worse(share: float) -> None:
    weights = (torch.rand(96, 96, generator=torch.Generator().manual_seed(1)) > share).float()
    wrong = replace(SCENE, masks=SCENE.masks.flip(-2).contiguous())
    assert levels(wrong.weighted(weights), "alignment") == ["fatal"]
    found = diagnose(SCENE.weighted(weights))
    assert [f.level for f in found if f.subject == "alignment"] == ["ok"]
    assert not [f for f in found if f.subject in ("contrast", "hot pixels")]


@pytest.mark.parametrize("frames", [2, 8])
@pytest.mark.parametrize("kind", ["binary", "sparse", "grey", "moving", "one-hot", "signed", "normal", "minus"])
def test_no_false_alarm_on_a_sound_camera(frames: int, kind: str) -> None:
    side = 64
    masks = {
        "binary": lambda: bernoulli(frames, side, side, generator=RANDOM),
        "sparse": lambda: bernoulli(frames, side, side, p=0.1, generator=RANDOM),
        "grey": lambda: gray(frames, side, side, blur=0.8, generator=RANDOM),
        "moving": lambda: shifted(frames, side, side, blur=0.5, generator=RANDOM),
        "one-hot": lambda: torch.eye(frames)[torch.randint(frames, (side, side), generator=RANDOM)].movedim(-1, 0),
        "signed": lambda: 2 * bernoulli(frames, side, side, generator=RANDOM) - 1,
        "normal": lambda: torch.randn(frames, side, side, generator=RANDOM) / 3,
        "minus": lambda: bernoulli(frames, side, side, generator=RANDOM) - 0.1,
    }[kind]()
    made = simulate(render(frames, side, side), masks.contiguous(), noise=gaussian(0.05), generator=RANDOM)
    subjects = ("alignment", "hot pixels", "dead pixels", "frame order", "time")
    found = diagnose(replace(made, truth=None), deep=True)
    uncovered = [f for f in found if f.subject == "dead pixels" and "Σm²" in f.text]
    assert [f for f in found if f.subject in subjects and f.level in ("warning", "fatal") and f not in uncovered] == []


def test_a_constant_sum_of_masks_cannot_tell() -> None:
    one_hot = torch.eye(8)[torch.randint(8, (64, 64), generator=RANDOM)].movedim(-1, 0).contiguous()
    scene = Scene.of(render(8, 64, 64)[None], one_hot)
    assert levels(replace(scene, masks=one_hot.flip(-1), truth=None), "alignment") == ["note"]
    half = torch.randn(4, 64, 64, generator=RANDOM)
    balanced = Scene.of(render(8, 64, 64)[None], torch.cat([half, -half]))
    for masks in (balanced.masks, balanced.masks.flip(-2)):
        (finding,) = [f for f in diagnose(Scene(balanced.measurement, masks)) if f.subject == "alignment"]
        assert (finding.level, "Σm is the same everywhere" in finding.text) == ("note", True)


def test_time_that_runs_backwards_shows_in_snapshots_in_a_row_only() -> None:
    assert levels(SCENE, "time", deep=True) == ["ok"]
    backwards = replace(SCENE, masks=SCENE.masks.flip(-3).contiguous())
    assert levels(backwards, "time", deep=True) == ["warning"]
    assert levels(backwards.pick([0]), "time", deep=True) == ["note"]


def test_frames_out_of_order_are_put_in_order() -> None:
    order = [3, 0, 6, 1, 7, 4, 2, 5]
    (finding,) = [
        f for f in diagnose(replace(SCENE, masks=MASKS[order].contiguous()), deep=True) if f.subject == "frame order"
    ]
    sorted_back = [order.index(t) for t in range(8)]
    named = [int(word) for word in finding.text.rpartition("order ")[2].split(", ")]
    assert finding.level == "warning"
    assert named in (sorted_back, sorted_back[::-1])


def test_hot_and_dead_pixels_and_exposures_are_found() -> None:
    y = SCENE.measurement.clone()
    y[:, 40, 50], y[:, 20, 30] = 5 * float(y.max()), 0.0
    found = {f.subject: f.text for f in diagnose(replace(SCENE, measurement=y)) if f.level == "warning"}
    assert "(40, 50)" in found["hot pixels"]
    assert "(20, 30)" in found["dead pixels"]
    longer = MASKS * torch.tensor([1.0] * 7 + [1.7])[:, None, None]
    uneven = Scene(Scene.of(render(8, 96, 96, seed=1)[None], longer).measurement, MASKS)
    (finding,) = [f for f in diagnose(uneven, deep=True) if f.subject == "exposure"]
    assert finding.level == "warning"
    assert "frame 7" in finding.text


def test_a_moving_mask_further_along_its_way_is_named_beside_unequal_exposure() -> None:
    """Its first and last frames get less or more light, so that the two look alike; equally exposed ones do not."""
    plate = gray(1, 96 + 16, 96, blur=0.7, generator=torch.Generator().manual_seed(4))[0]
    given, further = (moving(plate, [(t + part, 0) for t in range(8)], 96, 96) for part in (4, 3.35))
    video = render(8, 96, 96, seed=1)[None]
    captures = [Scene(Scene.of(video, masks).measurement, given) for masks in (given, further)]
    found = [next(f for f in diagnose(one, deep=True) if f.subject == "exposure") for one in captures]
    assert [finding.level for finding in found] == ["ok", "warning"]
    assert "along its way" in found[1].text


@pytest.mark.parametrize("fault", ["sound", "offset", "blur", "half a pixel"])
def test_contrast_that_masks_do_not_explain_is_reported(fault: str) -> None:
    """Light through no mask, masks through a lens or between pixels: all lower the contrast of y against Σm."""
    y, masks = SCENE.measurement, SCENE.masks
    if fault == "offset":
        y = y + 0.2 * y.mean()
    elif fault != "sound":
        there = [masks, masks.roll(1, -1), *([masks.roll(-1, -1)] if fault == "blur" else [])]
        y = simulate(render(24, 96, 96, seed=1, speed=2), torch.stack(there).mean(0)).measurement
    found = levels(Scene(y, masks), "contrast")
    assert found == ([] if fault == "sound" else ["warning"])


def test_pixels_that_see_one_frame_are_dead_if_dark_in_every_snapshot() -> None:
    """One dark spot of a scene is no dead pixel; several snapshots that are dark at the same places are."""
    one_hot = torch.eye(4)[torch.randint(4, (64, 64), generator=RANDOM)].movedim(-1, 0).contiguous()
    y = simulate(0.5 + 0.5 * render(12, 64, 64, seed=3), one_hot, noise=gaussian(0.02), generator=RANDOM).measurement
    once, always = y.clone(), y.clone()
    once[0, 10:50:10, 20] = 0
    always[:, 10:50:10, 20] = 0
    for scene, expected in ((y, []), (once, []), (always, ["warning"]), (always[:1], [])):
        assert [level for level in levels(Scene(scene, one_hot), "dead pixels") if level != "ok"] == expected


def test_exposures_of_frames_that_few_pixels_see_are_not_told() -> None:
    one_hot = torch.eye(64)[torch.randint(64, (64, 64), generator=RANDOM)].movedim(-1, 0).contiguous()
    scene = simulate(render(64, 64, 64, seed=3), one_hot, generator=RANDOM)
    assert levels(replace(scene, truth=None), "exposure", deep=True) == ["note"]
