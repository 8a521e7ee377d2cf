"""Starts are values: what they say is what they do, for any camera, and what a file keeps of them is all of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import FrozenInstanceError, asdict, fields, is_dataclass, replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from laws import close, normal, seeded, uniform
from unsnap import methods, psnr
from unsnap.algorithms import GAP, gap, noisy_gap
from unsnap.algorithms.noise import noise_map
from unsnap.algorithms.schedules import geometric
from unsnap.errors import InputError
from unsnap.masks import bernoulli
from unsnap.models import STARTS, Adjoint, Annealed, Equilibrium, LeastSquares, LowRank, TotalVariation
from unsnap.models.file import described, revived
from unsnap.models.interpolation import sparse
from unsnap.models.starts import TRUST, _noise, _smooth_mean
from unsnap.models.still import still
from unsnap.operators import Bayer, CodedOperator, Dispersed, Multishot, Snapshot
from unsnap.operators.bayer import mosaic
from unsnap.operators.whole import Whole
from unsnap.priors import TV, WNNM, GroupFilter
from unsnap.priors.group_filter import tracking
from unsnap.priors.wnnm import rematching
from unsnap.simulate import render

Start = Callable[[Tensor, CodedOperator], Tensor]
each = pytest.mark.parametrize("name", STARTS)
# Other than the defaults in every number, so that one that is not used shows.
OTHER: dict[str, Any] = {
    "least_squares": LeastSquares(),
    "adjoint": Adjoint(),
    "total_variation": TotalVariation(0.05, 7, 0.5, True, 2, unseen="black"),
    "low_rank": LowRank(6, 9, 4, 3, 0.2, 0.04, 4, 2, 0.15, 9, 2.0, 0.5, 0.08, 12, unseen="black"),
    "annealed": Annealed(6, 9, 4, 3, 0.2, 0.04, 4, 2, 0.15, 9, 2.0, 0.5, 0.08, 12, 1.5, 1.4, 0.5, 1.9, unseen="black"),
}
CODES = uniform(6, 3, 24, 24)
NOISE = 0.1
"""So much that some pixels are as good as dark."""


@cache
def clip(*shape: int) -> Tensor:
    return render(*shape, seed=1).double()


def snapshots(phi: CodedOperator, *lead: int) -> Tensor:
    whole = clip(8, *phi.video[-2:])
    videos = torch.stack([whole[k % 6 : k % 6 + phi.video[0]] for k in range(torch.Size(lead).numel())])
    y = phi.A(videos.reshape(*lead, *phi.video))
    return y + NOISE * normal(*y.shape)


def test_every_start_is_registered_under_its_name() -> None:
    assert list(STARTS) == list(OTHER)
    assert all(type(OTHER[name]) is STARTS[name] for name in STARTS)


@each
def test_a_start_is_a_frozen_value_of_numbers(name: str) -> None:
    for start in (STARTS[name](), OTHER[name]):
        assert is_dataclass(start)
        assert json.loads(json.dumps(asdict(start))) == asdict(start)
        with pytest.raises(FrozenInstanceError):
            start.patch = 3
        facts = json.loads(json.dumps(described(start, STARTS)))
        assert facts["name"] == name
        assert revived(facts, STARTS) == start
    for field in fields(OTHER[name]):
        assert getattr(OTHER[name], field.name) != field.default


@torch.no_grad()
def test_least_squares_and_adjoint() -> None:
    for phi in (Snapshot(uniform(3, 5, 4)), Multishot(uniform(2, 3, 5, 4))):
        y = uniform(2, *phi.image, seed=1)
        assert torch.equal(LeastSquares()(y, phi), phi.A_dagger(y))
        most = float(phi.masks.max()) ** 2 * (2 if isinstance(phi, Multishot) else 1)
        close(Adjoint()(y, phi), phi.A_adjoint(y) / most)
        close(Adjoint()(255 * y, phi.with_masks(255 * phi.masks)), Adjoint()(y, phi))
    assert not Adjoint()(torch.zeros(5, 4), Snapshot(torch.zeros(3, 5, 4))).any()
    codes = (uniform(3, 5, 4) > 0.5).double()
    each = Snapshot(torch.stack([codes, 255 * codes]))  # units of each sample
    y = uniform(5, 4)
    found = Adjoint()(torch.stack([y, 255 * y]), each)
    assert torch.equal(found[0], Snapshot(codes).A_adjoint(y)), "the paper's, of 0/1 masks"
    close(found[1], found[0])


@torch.no_grad()
def test_total_variation_is_gap_with_it() -> None:
    phi = Snapshot(CODES[0])
    y = snapshots(phi, 2)
    x0 = phi.project(still(y, phi), y)
    plain = gap(y, phi, TV(temporal=0.2, isotropic=False, iterations=4), [0.1] * 40, x0=x0, early=False).x
    assert torch.equal(TotalVariation()(y, phi), plain)
    assert torch.equal(TotalVariation()(y, phi), methods.METHODS["gap-tv3d"](y, phi).x)
    tv, x0 = TV(temporal=0.5, isotropic=True, iterations=2), phi.A_dagger(y)
    other = gap(y, phi, tv, [0.05] * 7, x0=x0, early=False).x
    assert torch.equal(OTHER["total_variation"](y, phi), other)


@torch.no_grad()
@pytest.mark.parametrize("camera", ["coded", "sparse"])
def test_starts_of_old_files_begin_with_the_least_squares_video(camera: str) -> None:
    """What was not measured is black there, and a sparse shutter is a camera like any other."""
    shutter = torch.eye(16).double()[torch.randint(16, (24, 24), generator=seeded())].movedim(-1, 0)
    phi = Snapshot(shutter if camera == "sparse" else CODES[0])
    assert bool(sparse(phi).all()) == (camera == "sparse")
    y, tv = phi.A(clip(16, 24, 24)[: phi.video[0]]), TV(temporal=0.2, isotropic=False, iterations=4)
    plain = gap(y, phi, tv, [0.1] * 40, x0=phi.A_dagger(y), early=False).x
    assert torch.equal(TotalVariation(unseen="black")(y, phi), plain)
    assert not torch.equal(TotalVariation()(y, phi), plain)
    assert torch.equal(LowRank(unseen="black", smallest=25)(y, phi), plain)  # too small for it
    for kind in (LowRank, Annealed):
        told = kind(unseen="black")._first(y, phi, torch.zeros_like(y), None)
        assert torch.equal(told, gap(y, phi, tv, [0.2] * 100, x0=phi.A_dagger(y)).x)
        assert not torch.equal(kind(unseen="black", iterations=1)(y, phi), kind(iterations=1)(y, phi))


def low_rank_by_hand(start: LowRank, y: Tensor, phi: Snapshot) -> Tensor:
    """The recipe from its parts."""
    noise = noise_map(y, phi.masks)
    dark = phi.energy < (start.dark * noise) ** 2
    assert 0.01 < float(dark.double().mean()) < 0.99
    lit = Snapshot(torch.where(dark.unsqueeze(-3), 0, phi.masks))
    tv = TV(temporal=0.2, isotropic=False, iterations=4)
    x0 = lit.project(still(y, lit), y) if start.unseen == "filled" else lit.A_dagger(y)
    first = gap(y, lit, tv, [start.weight] * start.tv_iterations, x0=x0).x
    contrast = phi.masks.var(-3, correction=0).mean().sqrt()
    left = (start.share * noise / contrast).clamp(max=start.limit).unsqueeze(-3)
    assert 0.3 < float((left == start.limit).double().mean()) < 0.7
    assert float(left.min()) > start.last
    clean = rematching(lambda _: WNNM(start.patch, start.group, start.stride, start.radius), start.rematch)
    levels = geometric(start.first, start.last, start.iterations)
    return noisy_gap(
        y, phi, lambda x, s: clean(x, left.clamp(min=s)), levels, noise=noise, x0=first, early=False
    ).x  # fmt: skip


@torch.no_grad()
@pytest.mark.parametrize("start", [LowRank(), OTHER["low_rank"]], ids=["default", "other"])
def test_low_rank_is_its_recipe(start: LowRank) -> None:
    phi = Snapshot(CODES[0])
    smooth = torch.linspace(0, 1, 24).double().expand(2, 3, 24, 24)
    y = phi.A(smooth) + torch.tensor([0.03, 0.2]).double().reshape(2, 1, 1) * normal(2, 24, 24)
    close(start(y, phi), low_rank_by_hand(start, y, phi))


@torch.no_grad()
def test_annealed_is_its_recipe_and_the_method_of_the_same_numbers() -> None:
    phi, start = Snapshot(CODES[0]), OTHER["annealed"]
    y = snapshots(phi, 2)
    noise = noise_map(y, phi.masks)
    dark = phi.energy < (start.dark * noise) ** 2
    lit = Snapshot(torch.where(dark.unsqueeze(-3), 0, phi.masks))
    prior, x0 = TV(temporal=0.2, isotropic=False, iterations=4), lit.A_dagger(y)
    first = gap(y, lit, prior, [start.weight] * start.tv_iterations, x0=x0).x
    prior = GroupFilter(start.patch, start.group, start.stride, start.radius)
    clean = tracking(prior, first, start.rematch)
    explained = phi.A(clean(phi.project(first, y), start.first))
    again = torch.minimum(noise, start.missed * noise_map(y, phi.masks, explained))
    assert bool((again < noise).any())
    contrast = phi.masks.var(-3, correction=0).mean().sqrt()
    left = (start.share * again / contrast).clamp(max=start.limit).unsqueeze(-3)
    levels = geometric(start.first, start.last, start.iterations)
    expected = noisy_gap(
        y, phi, lambda x, s: clean(x, left.clamp(min=s)), levels, noise=again, power=start.forgets, hold=start.hold,
        x0=first, early=False,
    ).x  # fmt: skip
    close(start(y, phi), expected)
    assert torch.equal(Annealed()(y, phi), methods.METHODS["gap-wnnm"](y, phi).x)


@torch.no_grad()
def test_annealed_has_converged_if_noise_explains_the_misfit() -> None:
    truth, phi = render(6, 48, 48, seed=1), Snapshot(bernoulli(6, 48, 48, generator=seeded()))
    y = phi.A(truth) + torch.tensor([0.0, 0.05]).reshape(2, 1, 1) * normal(2, 48, 48).float()
    start, known = Annealed(), torch.tensor([0.0, 0.05]).reshape(2, 1, 1).expand(y.shape)
    for noise in (None, known):
        assert start.solve(y, phi, noise=noise, tol=3e-3).converged.tolist() == [True, True]
    hasty = start.solve(y, phi, 1, noise=known, tol=1.0)  # a tolerance that every change meets
    assert hasty.converged.tolist() == [False, False]
    assert replace(start, explained=1e9).solve(y, phi, 1, noise=known, tol=1.0).converged.tolist() == [True, True]


@torch.no_grad()
def test_a_better_video_to_begin_with_leads_to_a_better_one() -> None:
    truth, phi = render(6, 48, 48, seed=1), Snapshot(bernoulli(6, 48, 48, generator=seeded()))
    y, recipe = phi.A(truth), Annealed(iterations=12)
    usual, better = (float(psnr(recipe.solve(y, phi, begin=begin).x, truth).mean()) for begin in (None, truth))
    assert better > usual + 1


@torch.no_grad()
def test_groups_are_first_found_in_a_smooth_mean_of_network_and_total_variation() -> None:
    network, variation = uniform(2, 3, 20, 20), uniform(2, 3, 20, 20, seed=1)
    found = _smooth_mean(network, variation)
    close(found, TRUST * _smooth_mean(network, network) + (1 - TRUST) * _smooth_mean(variation, variation))
    close(_smooth_mean(torch.ones(2, 9, 9), torch.ones(2, 9, 9)), torch.ones(2, 9, 9))  # no darker at the border
    point = torch.zeros(1, 31, 31, dtype=torch.float64)
    point[0, 15, 15] = 1
    spread, at = _smooth_mean(point, point)[0].sum(0), torch.arange(31) - 15
    close((spread * at.square()).sum(), torch.tensor(4.0).double())


@torch.no_grad()
def test_a_sparse_shutter_does_without_it_and_a_neighbour_does_not() -> None:
    order = torch.randint(16, (24, 24), generator=seeded())
    shutter = torch.nn.functional.one_hot(order, 16).movedim(-1, 0).double()
    phi = Snapshot(torch.stack([shutter, bernoulli(16, 24, 24, generator=seeded()).double()]))
    recipe = replace(OTHER["annealed"], unseen="filled")
    y, begin = phi.A(clip(16, 24, 24)), uniform(2, 16, 24, 24)
    usual, begun = (recipe.solve(y, phi, begin=given).x for given in (None, begin))
    close(begun[0], usual[0], 1e-9)
    close(begun[1], recipe.solve(y[1], Snapshot(phi.masks[1]), begin=begin[1]).x, 1e-9)
    assert not torch.equal(begun[1], usual[1])


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), 1e6])
@torch.no_grad()
def test_a_video_that_went_astray_is_not_begun_with(wrong: float) -> None:
    phi, recipe = Snapshot(CODES[0]), OTHER["annealed"]
    y, begin = snapshots(phi, 2), uniform(2, 3, 24, 24)
    begin[0, 1, 5, 5] = wrong
    usual, begun = (recipe.solve(y, phi, begin=given).x for given in (None, begin))
    close(begun[0], usual[0], 1e-9)
    assert not torch.equal(begun[1], usual[1])
    for other, said in ((begin[0], r"\(3, 24, 24\) of torch.float64"), (begin.float(), r".* of torch.float32")):
        with pytest.raises(InputError, match=rf"begin: videos must be \(2, 3, 24, 24\) of torch.float64, got {said}"):
            recipe.solve(y, phi, begin=other)


@torch.no_grad()
def test_a_networks_video_with_any_leading_axes() -> None:
    phi, recipe = Snapshot(CODES[0]), OTHER["annealed"]
    y, begin = snapshots(phi, 4), uniform(4, 3, 24, 24)
    found = recipe.solve(y.reshape(2, 2, 24, 24), phi, begin=begin.reshape(2, 2, 3, 24, 24)).x
    assert torch.equal(found.reshape(4, 3, 24, 24), recipe.solve(y, phi, begin=begin).x)


@torch.no_grad()
@pytest.mark.parametrize("name", ["low_rank", "annealed"])
def test_units_of_the_camera_change_nothing_and_runs_repeat(name: str) -> None:
    masks = CODES[0].clone()
    masks[:, 5:7, 5:9] = 0  # dead pixels
    start, phi = OTHER[name], Snapshot(masks)
    y = snapshots(phi, 1)
    found = start(y, phi)
    assert bool(torch.isfinite(found).all())
    assert torch.equal(start(y, phi), found)
    close(start(64 * y, Snapshot(64 * masks)), found, 1e-9)


@torch.no_grad()
def test_images_too_small_for_patches_are_left_to_total_variation() -> None:
    for size in ((8, 8), (15, 40)):
        phi = Snapshot(bernoulli(3, *size, generator=seeded()))
        y = phi.A(render(3, 40, 40)[:, : size[0], : size[1]])
        assert torch.equal(LowRank()(y, phi), TotalVariation()(y, phi))
        served = replace(LowRank(patch=4, stride=2), smallest=min(size))
        assert not torch.equal(served(y, phi), TotalVariation()(y, phi))


@each
@torch.no_grad()
def test_one_shot_of_several_is_a_snapshot(name: str) -> None:
    start, phi = OTHER[name], Snapshot(CODES[0])
    y = snapshots(phi, 2)
    close(start(y.unsqueeze(1), Multishot(phi.masks[None])), start(y, phi), 1e-9)


@each
@torch.no_grad()
def test_several_shots_tell_more(name: str) -> None:
    start, codes, truth = STARTS[name](), CODES[:2], clip(3, 24, 24)
    one, two = (camera(masks) for camera, masks in ((Snapshot, codes[0]), (Multishot, codes)))
    errors = [float((start(phi.A(truth), phi) - truth).norm()) for phi in (one, two)]
    # 24 pixels hold few groups of patches: there the low-rank starts gain 6 %.
    least = {"total_variation": 0.5, "low_rank": 0.97, "annealed": 0.97}
    assert errors[1] < least.get(name, 0.9) * errors[0]


@each
def test_no_start_records_gradients(name: str) -> None:
    masks = CODES[0].clone().requires_grad_()
    y = snapshots(Snapshot(CODES[0]), 1).requires_grad_()
    start = STARTS[name]()
    assert not start(y, Snapshot(masks)).requires_grad
    assert not Equilibrium(GAP(), lambda x, sigma: x, start=start).started(y, Snapshot(masks)).requires_grad


CAMERAS: dict[str, CodedOperator] = {
    "shared": Snapshot(CODES[0]),
    "own": Snapshot(CODES[:3]),
    "shots": Multishot(CODES[:2]),
    "own shots": Multishot(torch.stack([CODES[:3], CODES[3:]], 1)),
}


@each
@pytest.mark.parametrize("camera", CAMERAS)
@torch.no_grad()
def test_leading_axes_are_kept(name: str, camera: str) -> None:
    """Also where noise hides pixels of some snapshots and not of others."""
    start, phi = OTHER[name], CAMERAS[camera]
    y = snapshots(phi, 2, 3)
    dark = phi.energy < (2 * noise_map(y, phi.masks)) ** 2
    assert not torch.equal(dark[0], dark[1])
    found = start(y, phi)
    assert found.shape == (2, 3, *phi.video)
    for n in range(2):
        close(found[n], start(y[n], phi))
    close(start(y[0, 0], phi.select(0)), found[0, 0])


@pytest.mark.parametrize("name", ["total_variation", "low_rank", "annealed"])
@torch.no_grad()
def test_a_sparse_shutter_and_a_code_in_one_batch_are_as_alone(name: str) -> None:
    order = torch.randint(16, (24, 24), generator=seeded())
    shutter = torch.nn.functional.one_hot(order, 16).movedim(-1, 0).double()
    phi = Snapshot(torch.stack([shutter, bernoulli(16, 24, 24, generator=seeded()).double(), shutter.flip(0)]))
    assert sparse(phi).flatten().tolist() == [True, False, True]
    y = phi.A(clip(16, 24, 24))
    found = OTHER[name](y, phi)
    for n in range(3):
        close(found[n], OTHER[name](y[n], Snapshot(phi.masks[n])), 1e-9)


@pytest.mark.parametrize("name", ["low_rank", "annealed"])
@torch.no_grad()
def test_cubes_behind_a_disperser_are_as_alone(name: str) -> None:
    phi = Dispersed(torch.stack([CODES[:4, 0], CODES[2:, 1]]), (0, 1))
    y = snapshots(phi, 2)
    found = OTHER[name](y, phi)
    for n in range(2):
        close(found[n], OTHER[name](y[n], Dispersed(phi.masks[n], (0, 1))), 1e-9)


def test_noise_of_the_frames_is_the_mean_square_of_what_their_pixels_are_seen_by() -> None:
    start, shots = LowRank(share=0.6, limit=1.0), Multishot(CODES[:2] * torch.tensor([1.0, 3.0]).reshape(2, 1, 1, 1))
    noise, video = 0.01 + 0.1 * uniform(2, 24, 24, seed=3), torch.zeros(3, 24, 24, dtype=torch.float64)
    each = [0.6 * noise[k] / shots.masks[k].var(0, correction=0).mean().sqrt() for k in range(2)]
    close(start._in_video(noise, shots, video)[0], ((each[0] ** 2 + each[1] ** 2) / 2).sqrt())
    disperser = Dispersed(CODES[0], (1, 0))
    noise = 0.01 + 0.1 * uniform(*disperser.image, seed=4)
    bands = [(0.6 * noise / disperser.contrast())[k : k + 24].square() for k in range(3)]
    close(start._in_video(noise, disperser, video)[0], (sum(bands) / 3).sqrt())


@torch.no_grad()
def test_a_part_iterates_as_often_as_the_whole_did() -> None:
    """Total variation of an even scene is done long before; a tile of it must go on all the same."""
    phi = Snapshot(CODES[0])
    y = phi.A(torch.full((1, 3, 24, 24), 0.5, dtype=torch.float64))
    alone, tile = Whole(), Whole({"tv_iterations": [60]})
    for whole in (alone, tile):
        LowRank()._first(y, phi.part_of(whole), torch.zeros_like(y), None)
    assert alone.found["tv_iterations"][0] < 60
    assert tile.found["tv_iterations"] == [60]


def test_the_noise_of_a_mosaic_is_told_by_the_pixels_that_see_green() -> None:
    generator = torch.Generator().manual_seed(0)
    masks = bernoulli(4, 96, 96, generator=generator)
    phi = Bayer(mosaic(masks, "rggb"))
    flat = torch.tensor([0.9, 0.5, 0.1]).repeat_interleave(4)[:, None, None].expand(12, 96, 96)
    y = phi.A(flat) + 0.05 * torch.randn(96, 96, generator=generator)
    found = _noise(y, phi, phi.codes)
    assert float((found - 0.05).abs().max()) < 0.015, "what red and blue pixels saw is no noise"


def test_low_rank_groups_are_better_than_total_variation_for_a_mosaic() -> None:
    truth = render(8, 48, 48, seed=21, colour=True).flatten(0, 1)
    phi = Bayer(mosaic(bernoulli(8, 48, 48, generator=torch.Generator().manual_seed(21)), "grbg"))
    y = phi.A(truth)
    low_rank, smooth = (float(psnr(start(y, phi), truth).mean()) for start in (Annealed(), TotalVariation()))
    assert low_rank > smooth + 0.5, (low_rank, smooth)
