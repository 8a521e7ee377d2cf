"""Adaptation without truth: what was hidden stays hidden, it helps where it can, and says so where it cannot."""

from __future__ import annotations

import copy
import math
from dataclasses import asdict, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from unsnap.algorithms import GAP
from unsnap.errors import InputError
from unsnap.masks import bernoulli, gray
from unsnap.models import Equilibrium
from unsnap.operators.bayer import mosaic
from unsnap.scene import Scene
from unsnap.simulate import gaussian, render, simulate
from unsnap.training.adapt import adapt
from unsnap.training.held_out import HeldOut, hold_out
from unsnap.training.verdict import Facts, chance, counts


class Smoother(nn.Module):
    """Twenty-seven numbers to learn: a kernel over the neighbours in space and time, times a strength that stays."""

    def __init__(self, gain: float) -> None:
        super().__init__()
        self.kernel = nn.Parameter(gain * torch.full((1, 1, 3, 3, 3), 1 / 27))

    def forward(self, x: Tensor, sigma: float | Tensor = 0.0) -> Tensor:
        padded = nn.functional.pad(x[:, None], (1, 1, 1, 1, 1, 1), mode="replicate")
        return 0.6 * x + 0.4 * nn.functional.conv3d(padded, self.kernel)[:, 0]


def model(gain: float) -> Equilibrium:
    return Equilibrium(GAP(), Smoother(gain), tol=1e-3, max_iter=60)


@pytest.fixture(scope="module")
def scene() -> Scene:
    generator = torch.Generator().manual_seed(0)
    masks = gray(4, 48, 48, generator=generator)
    return simulate(render(4, 48, 48, seed=3), masks, noise=gaussian(0.02), generator=generator)


@pytest.fixture(scope="module")
def adapted(scene: Scene) -> tuple[Equilibrium, Facts]:
    return adapt(model(0.8), scene, steps=75, rate=1e-3)


def test_a_mistuned_model_is_mended(adapted: tuple[Equilibrium, Facts]) -> None:
    _, facts = adapted
    assert facts.helped
    assert facts.held_out_after < 0.95 * facts.held_out_before
    assert facts.chance <= 0.01
    assert min(facts.gains) > 0
    assert facts.gain == pytest.approx(20 * math.log10(facts.held_out_before / facts.held_out_after))
    assert facts.psnr_before is not None
    assert facts.psnr_after is not None
    assert facts.psnr_after > facts.psnr_before + 0.3


def test_the_original_is_not_touched(scene: Scene) -> None:
    given = model(0.8)
    before = copy.deepcopy(given.state_dict())
    result, facts = adapt(given, scene, steps=2, rate=1e-3)
    assert facts.steps == 2
    torch.testing.assert_close(given.state_dict(), before, rtol=0, atol=0)
    assert result.backward is given.backward


def test_where_nothing_is_gained_the_original_weights_come_back(scene: Scene) -> None:
    given = model(1.0)
    result, facts = adapt(given, scene, steps=25, rate=1e-3)
    assert facts.history[1][1] > facts.history[0][1]
    assert (facts.helped, facts.best_step, facts.gain, facts.chance) == (False, 0, 0.0, 1.0)
    assert facts.held_out_after == facts.held_out_before
    assert facts.psnr_after == facts.psnr_before
    assert torch.equal(result.network.kernel, given.network.kernel)


def test_weights_that_break_are_given_up(scene: Scene) -> None:
    given = model(0.9)
    result, facts = adapt(given, scene, steps=100, rate=math.inf)
    assert facts.stopped == "20 steps in a row had no finite gradient"
    assert facts.skipped == 20
    assert not facts.helped
    assert torch.equal(result.network.kernel, given.network.kernel)
    assert math.isfinite(facts.held_out_after)


def test_only_a_model_that_forgets_nothing_and_comes_to_rest_helps(
    scene: Scene, adapted: tuple[Equilibrium, Facts], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, facts = adapted
    assert (facts.forgetful, facts.unsettled) == (False, False)
    assert facts.recoding_after < facts.recoding_before
    monkeypatch.setattr("unsnap.training.adapt.counts", lambda *gains: True)
    assert adapt(model(0.8), scene, steps=1, rate=1e-3)[1].helped
    monkeypatch.setattr("unsnap.training.adapt._FORGOTTEN", 0.0)
    worse = adapt(model(0.8), scene, steps=1, rate=1e-3)[1]
    assert (worse.forgetful, worse.helped) == (True, False)


def test_time_and_patience(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[dict] = []
    _, facts = adapt(model(0.8), scene, minutes=1e-9, report=told.append)
    assert (facts.steps, facts.stopped) == (1, "the time was over")
    assert [sorted(t) for t in told] == [["loss", "progress", "step"], ["before", "held_out", "step"]]
    assert told[0]["progress"] >= 1
    monkeypatch.setattr("unsnap.training.adapt._EVERY", 2)
    _, facts = adapt(model(1.0), scene, steps=50, rate=1e-12)
    assert (facts.steps, facts.stopped) == (10, "the held-out error fell no more")


@pytest.mark.parametrize("rate", [1e-3, 1e-12])  # one gains to the end, the other never
def test_minutes_asked_are_minutes_taken(scene: Scene, rate: float, monkeypatch: pytest.MonkeyPatch) -> None:
    passed = [0.0]

    class Slow(Equilibrium):
        def forward(self, *args: Any, **options: Any) -> Any:
            passed[0] += 1.0
            return super().forward(*args, **{**options, "max_iter": 2})

    monkeypatch.setattr("unsnap.training.adapt.time.monotonic", lambda: passed[0])
    monkeypatch.setattr("unsnap.training.adapt._EVERY", 2)
    _, facts = adapt(Slow(GAP(), Smoother(0.8), tol=0.0, max_iter=2), scene, minutes=1, rate=rate)
    assert facts.stopped == "the time was over"
    assert (facts.best_step > 0) == (rate == 1e-3)
    unused = 0 if facts.best_step else 7  # a verdict on the original weights takes no time
    assert 56 <= facts.seconds + unused <= 60


def test_same_seed_same_weights(scene: Scene) -> None:
    runs = [adapt(model(0.8), scene, steps=3, rate=1e-3, seed=seed) for seed in (1, 1, 2)]
    facts = [{**asdict(f), "seconds": 0} for _, f in runs]
    assert facts[0] == facts[1] != facts[2]
    assert torch.equal(runs[0][0].network.kernel, runs[1][0].network.kernel)
    assert not torch.equal(runs[0][0].network.kernel, runs[2][0].network.kernel)


def test_the_judging_pixels_decide_nothing_but_the_verdict(scene: Scene) -> None:
    held = hold_out(scene, torch.Generator().manual_seed(0))
    other = replace(scene, measurement=scene.measurement + 0.3 * (held.judge > 0))
    (first, facts), (second, changed) = (adapt(model(0.8), s, steps=3, rate=1e-3, seed=0) for s in (scene, other))
    assert torch.equal(first.network.kernel, second.network.kernel)
    assert facts.history == changed.history
    assert facts.held_out_before != changed.held_out_before


def test_hidden_measurements_are_not_shown(scene: Scene) -> None:
    held = hold_out(scene, torch.Generator().manual_seed(0))
    crops, asked = held.crops(3, 20, 0.25, torch.Generator().manual_seed(1))
    assert asked.shape == (3, 20, 20)
    assert 0.15 < float(asked.mean()) < 0.3
    y, phi = crops.visible
    assert not bool((y * asked).any())
    assert not bool((phi.masks * asked[:, None]).any())
    assert not bool((asked * crops.used).any())
    # the pixels put aside for good are neither shown nor learned from
    outside = replace(held, y=held.y + 100 * (1 - held.used))
    again, same = outside.crops(3, 20, 0.25, torch.Generator().manual_seed(1))
    assert torch.equal(asked, same)
    assert torch.equal(again.visible[0], y)
    x = torch.rand(phi.masks.shape, generator=torch.Generator().manual_seed(2))
    assert torch.equal(again.misfit(x) * asked, crops.misfit(x) * asked)
    assert not torch.equal(again.misfit(x), crops.misfit(x))


def test_sets_are_disjoint_and_measured() -> None:
    masks = torch.ones(2, 60, 60)
    masks[:, :30] = 0
    held = hold_out(Scene(torch.ones(2, 60, 60), masks), torch.Generator().manual_seed(0))
    assert not bool((held.stop * held.judge).any())
    assert not bool(held.stop[:, :30].any() + held.judge[:, :30].any())
    for chosen, share in ((held.stop, 0.05), *((held.judge == k, 0.025) for k in (1, 2, 3, 4))):
        assert 0.7 * share < float(chosen[:, 30:].float().mean()) < 1.4 * share
    y, phi = held.split(2)
    assert torch.equal(y == 0, (held.judge == 2) | (held.y == 0))
    assert not bool((phi.masks * (held.judge == 2)[:, None]).any())


def example(count: int, height: int, width: int) -> HeldOut:
    generator = torch.Generator().manual_seed(0)
    y = 1 + torch.rand(count, height, width, generator=generator)
    return hold_out(Scene(y, torch.ones(2, height, width)), generator)


@pytest.mark.parametrize(
    ("size", "shape"),
    [((1, 256, 256), (4, 128, 128)), ((9, 300, 400), (4, 128, 128)), ((1, 40, 50), (1, 40, 50)),
     ((100, 32, 32), (64, 32, 32)), ((2, 128, 1000), (4, 128, 128))],
)  # fmt: skip
def test_views_are_bounded_and_spread(size: tuple[int, int, int], shape: tuple[int, int, int]) -> None:
    held = example(*size)
    views = held.views()
    assert views.y.shape == views.stop.shape == shape
    assert views.masks.shape == (shape[0], 2, *shape[1:])
    assert torch.equal(views.y[0], held.y[0, : shape[1], : shape[2]])
    assert torch.equal(views.judge[-1], held.judge[-1, -shape[1] :, -shape[2] :])
    assert len({float(y.sum()) for y in views.y}) == shape[0]


def test_errors_are_of_the_video_that_did_not_see_the_pixel() -> None:
    held = example(1, 96, 96)
    exact = (held.y / 2)[:, None].expand(1, 2, 96, 96)
    assert held.relative(exact) == pytest.approx(0, abs=1e-6)
    assert held.relative(0.9 * exact) == pytest.approx(0.1, rel=1e-4)
    errors = held.squared_errors([exact, exact, 0.9 * exact, exact])
    expected = (held.judge == 3) * (0.1 * held.y).square().double()
    torch.testing.assert_close(errors.sum(0), expected, rtol=1e-4, atol=1e-10)


def test_the_test_keeps_its_level() -> None:
    """Of gains by chance, alike in neighbours and with rare large ones, few are called sure; a true one is."""
    generator = torch.Generator().manual_seed(0)
    found = []
    for _ in range(200):
        wild = torch.randn(3, 16, 16, generator=generator) * torch.rand(3, 16, 16, generator=generator).pow(-0.4)
        found.append(chance(wild.repeat_interleave(4, -1).repeat_interleave(4, -2)))
    p = torch.tensor(found)
    assert float((p <= 0.01).float().mean()) <= 0.03
    assert 0.03 <= float((p <= 0.1).float().mean()) <= 0.17
    noise = torch.randn(1, 96, 96, generator=generator)
    assert chance(0.1 + noise) <= 0.01
    assert chance(-0.1 + noise) >= 0.99
    assert chance(torch.zeros(1, 96, 96)) == 1


def test_sure_and_worth_it() -> None:
    assert counts(0.2, [0.1, 0.3], 0.01)
    assert not counts(0.2, [0.1, 0.3], 0.02)
    assert not counts(0.2, [-0.1, 0.5], 0.001)
    assert not counts(0.03, [0.03, 0.03], 0.001), "3.29 % to 3.28 %, however sure"


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"measurement": torch.ones(1, 20, 30), "masks": torch.ones(4, 20, 30)}, ["1000 measured pixels", "600"]),
        ({"measurement": torch.ones(1, 8, 300), "masks": torch.ones(4, 8, 300)}, ["sides of 16", "8×300"]),
        ({"measurement": torch.full((1, 48, 48), math.nan)}, ["finite", "NaN"]),
        ({"measurement": torch.zeros(1, 48, 48)}, ["black"]),
    ],
)
def test_captures_that_cannot_serve(scene: Scene, changed: dict[str, Tensor], words: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        adapt(model(0.8), replace(scene, truth=None, **changed))
    assert all(word in str(caught.value) for word in words), caught.value


def test_models_that_cannot_serve(scene: Scene) -> None:
    with pytest.raises(InputError, match="function has no weights to adapt"):
        adapt(Equilibrium(GAP(), lambda x, sigma: x), scene)
    frozen = model(0.8)
    frozen.network.requires_grad_(False)
    with pytest.raises(InputError, match="Smoother has no weights to adapt"):
        adapt(frozen, scene)
    with pytest.raises(InputError, match="cannot reconstruct this"):
        adapt(model(math.nan), scene)


def test_a_mosaic_is_refused_as_it_is_reconstructed_plane_by_plane() -> None:
    masks = bernoulli(2, 64, 64, generator=torch.Generator().manual_seed(0))
    scene = Scene(torch.ones(1, 64, 64), mosaic(masks, "rggb"), camera="bayer")
    with pytest.raises(InputError, match="adapted to single snapshots, not to a bayer"):
        hold_out(scene, torch.Generator())
