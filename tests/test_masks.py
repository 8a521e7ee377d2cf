"""Masks: the promised statistics, the moving plate, and reproducibility."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from unsnap import masks
from unsnap.errors import InputError


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


MAKERS: dict[str, Callable[[torch.Generator], Tensor]] = {
    "bernoulli": lambda g: masks.bernoulli(5, 40, 30, generator=g),
    "shifted": lambda g: masks.shifted(5, 40, 30, step=(2, -1), generator=g),
    "gray": lambda g: masks.gray(5, 40, 30, generator=g),
    "blurred": lambda g: masks.gray(5, 40, 30, blur=1.2, generator=g),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())
def test_seed_decides_the_masks(make: Callable[[torch.Generator], Tensor]) -> None:
    first = make(seeded(1))
    assert first.shape == (5, 40, 30)
    assert first.dtype == torch.float32
    assert torch.equal(first, make(seeded(1)))
    assert not torch.equal(first, make(seeded(2)))


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_bernoulli_opens_the_asked_share_of_pixels(p: float) -> None:
    made = masks.bernoulli(8, 128, 128, p=p, generator=seeded())
    assert set(made.unique().tolist()) == {0.0, 1.0}
    six_sigma = 6 * (p * (1 - p) / made.numel()) ** 0.5
    assert abs(float(made.mean()) - p) < six_sigma


def test_bernoulli_keeps_the_dtype_and_opens_everything_at_one() -> None:
    assert torch.equal(masks.bernoulli(2, 3, 4, p=1.0, dtype=torch.float64), torch.ones(2, 3, 4, dtype=torch.float64))


@pytest.mark.parametrize("blur", [0.0, 0.7])
@pytest.mark.parametrize("step", [(1, 0), (0, 1), (-2, 0), (3, -1), (-1, -2), (0, 0)])
def test_shifted_mask_moves_by_the_step(step: tuple[int, int], blur: float) -> None:
    made = masks.shifted(6, 32, 24, step=step, blur=blur, generator=seeded())
    assert bool(((made > 0) & (made < 1)).any()) == (blur > 0)
    down, right = step
    for now, then in pairwise(made):
        moved = torch.roll(now, (down, right), (0, 1))
        keep = torch.ones(32, 24, dtype=torch.bool)
        keep[: max(down, 0)] = keep[32 + min(down, 0) :] = False
        keep[:, : max(right, 0)] = keep[:, 24 + min(right, 0) :] = False
        assert torch.equal(then[keep], moved[keep])


@pytest.mark.parametrize("places", ["1,0,8", [1, 0, 8], [(0, 0), (1, 0, 2)], [(0, None)]])
def test_places_that_are_no_pairs_are_refused(places: object) -> None:
    with pytest.raises(InputError, match=r"must be pairs \(down, right\), one for each frame, as .* got"):
        masks.moving(torch.ones(8, 8), places, 8, 8)  # type: ignore[arg-type]


def test_shifted_mask_does_not_wrap_around() -> None:
    made = masks.shifted(2, 16, 4096, step=(1, 0), generator=seeded())
    agreement = (made[1, 0] == made[0, -1]).float().mean()
    assert 0.4 < float(agreement) < 0.6


def test_gray_is_uniform_between_its_limits() -> None:
    made = masks.gray(8, 64, 64, low=2.0, high=5.0, generator=seeded())
    assert made.min() >= 2
    assert made.max() <= 5
    torch.testing.assert_close(
        torch.quantile(made.flatten(), torch.tensor([0.25, 0.5, 0.75])),
        torch.tensor([2.75, 3.5, 4.25]), rtol=0, atol=0.1,
    )  # fmt: skip


def test_blur_softens_without_changing_density_and_equally_at_the_border() -> None:
    sharp = masks.gray(8, 128, 128, blur=0.05, generator=seeded())
    soft = masks.gray(8, 128, 128, blur=1.5, generator=seeded())
    assert float(((sharp - sharp.round()).abs()).max()) < 1e-6
    assert abs(float(soft.mean()) - 0.5) < 0.01
    # White noise of variance ¼ under a Gaussian of σ has variance ¼ / (4πσ²).
    expected = (0.25 / (4 * torch.pi * 1.5**2)) ** 0.5
    border = torch.cat([soft[:, 0].flatten(), soft[:, -1].flatten(), soft[:, :, 0].flatten(), soft[:, :, -1].flatten()])
    assert float(soft.std()) == pytest.approx(expected, rel=0.05)
    assert float(border.std()) == pytest.approx(expected, rel=0.15)


def test_a_plate_between_pixels_is_the_mean_of_where_it_was_and_will_be() -> None:
    """Every value by hand: row i of frame t is the plate at i − place, counted from the last to come in."""
    plate, places = torch.rand(14, 12, generator=seeded()), [(0.25, 1.0), (2.5, -0.75), (-1.75, 0.0)]
    made, first = masks.moving(plate, places, 8, 7), (3, 1)
    for frame, (down, right) in zip(made, places, strict=True):
        for i in range(8):
            for j in range(7):
                y, x = first[0] + i - down, first[1] + j - right
                top, left = math.floor(y), math.floor(x)
                near = plate[top : top + 2, left : left + 2]
                weights = torch.outer(torch.tensor([top + 1 - y, y - top]), torch.tensor([left + 1 - x, x - left]))
                expected = (weights[: len(near), : near.shape[1]] * near).sum()
                assert float(frame[i, j]) == pytest.approx(float(expected), abs=1e-6)


@pytest.mark.parametrize("step", [(1, 0), (-1, 0), (3, -2), (-2, -5), (0, 4)])
def test_the_step_of_a_shifted_mask_is_found(step: tuple[int, int]) -> None:
    made = masks.shifted(5, 40, 31, step=step, generator=seeded())
    assert masks.shift_per_frame(made) == step
    assert masks.shift_per_frame(masks.bernoulli(5, 40, 31, generator=seeded())) is None
    assert masks.shift_per_frame(made[:1]) is None


def test_statistics_by_hand() -> None:
    made = torch.tensor([[[0.0, 1.0, 3.0]], [[0.0, 0.5, 1.0]]])
    stats = masks.statistics(made)
    assert stats == masks.MaskStatistics(
        minimum=0.0, maximum=3.0, density=5.5 / 6, binary=False, dead=1,
        sum_min=0.0, sum_max=4.0, energy_min=0.0, energy_max=10.0, ratio_max=2.5,
    )  # fmt: skip


def test_the_ratio_that_decides_on_divergence_has_no_sign() -> None:
    assert masks.statistics(torch.tensor([[[-3.0, 1.0]], [[1.0, 0.5]]])).ratio_max == 5


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bool, torch.int64, torch.float64])
def test_statistics_of_any_real_dtype(dtype: torch.dtype) -> None:
    made = masks.bernoulli(8, 16, 16, generator=seeded())
    assert masks.statistics(made.to(dtype)) == masks.statistics(made)
    assert masks.statistics(made).binary
    assert masks.statistics(made).ratio_max == 1


def test_statistics_count_dead_pixels_of_every_snapshot() -> None:
    made = torch.ones(2, 3, 4, 4)
    made[0, :, 1, 1] = 0
    made[1, :, 2] = 0
    assert masks.statistics(made).dead == 5
    silent = masks.statistics(torch.zeros(3, 4, 4))
    assert (silent.dead, silent.ratio_max, silent.binary) == (16, 0.0, True)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: masks.bernoulli(0, 4, 4), "frames.*got 0"),
        (lambda: masks.bernoulli(1, -4, 4), "height.*got -4"),
        (lambda: masks.bernoulli(1, 4, 2.5), "width.*got 2.5"),
        (lambda: masks.bernoulli(1, 4, 4, p=0.0), "p must.*got 0.0"),
        (lambda: masks.shifted(1, 4, 4, p=float("nan")), "p must.*got nan"),
        (lambda: masks.bernoulli(1, 4, 4, dtype=torch.int32), "dtype.*int32"),
        (lambda: masks.shifted(1, 4, 4, step=(0.5, 0)), "step.*0.5"),
        (lambda: masks.gray(1, 4, 4, low=1.0, high=1.0), "low.*high"),
        (lambda: masks.gray(1, 4, 4, blur=-1.0), "blur.*-1"),
        (lambda: masks.shifted(1, 4, 4, blur=float("inf")), "blur.*inf"),
        (lambda: masks.statistics(torch.ones(4, 4)), r"\(4, 4\)"),
        (lambda: masks.statistics(torch.ones(0, 4, 4)), r"\(0, 4, 4\)"),
        (lambda: masks.statistics(torch.full((1, 2, 2), float("nan"))), "finite"),
        (lambda: masks.statistics(torch.ones(1, 2, 2, dtype=torch.complex64)), "real.*complex64"),
    ],
)
def test_bad_arguments_are_named(call: Callable[[], object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        call()
