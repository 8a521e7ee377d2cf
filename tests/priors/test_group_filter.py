"""Groups of similar patches without singular values: against the singular values it does without, and plain loops."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from laws import close, normal, uniform
from unsnap import psnr, simulate
from unsnap.kernels import groups, patches
from unsnap.priors import WNNM, GroupFilter
from unsnap.priors.group_filter import InSequence, tracking

SMALL = GroupFilter(patch=5, group=12, stride=3, radius=5)


def plain_loop(x: Tensor, found: Tensor, sigma: Tensor, patch: int, stride: int) -> Tensor:
    """Every group by its singular values, one after the other."""
    frames, height, width = x.shape
    keys = groups.keys((frames, height, width), patch, stride)
    total, count = torch.zeros_like(x), torch.zeros_like(x)
    for key, group in zip(keys.tolist(), found.tolist(), strict=True):
        c = 8 * (2 * len(group)) ** 0.5 * float(sigma.flatten()[key + (width + 1) * (patch // 2)]) ** 2
        at = [
            (g // (height * width), slice(i := g // width % height, i + patch), slice(j := g % width, j + patch))
            for g in group
        ]
        rows = torch.stack([x[place].flatten() for place in at])
        mean = rows.mean(0)
        u, s, v = torch.linalg.svd(rows - mean, full_matrices=False)
        kept = s**2 / (s**2 + c)
        for place, row in zip(at, (u * (3 * kept**2 - 2 * kept**3) * s) @ v + mean, strict=True):
            total[place] += row.reshape(patch, patch)
            count[place] += 1
    return total / count


@pytest.mark.parametrize("group", [3, 12, 16, 40])  # fewer and more patches than pixels, and none a multiple of a block
@pytest.mark.parametrize("patch", [3, 5, 8])
def test_equals_the_plain_loop(patch: int, group: int) -> None:
    x = uniform(1, 21, 18) + 0.1 * normal(3, 21, 18)
    prior = GroupFilter(patch, group, 3, 6)
    sigma = 0.02 + 0.1 * uniform(3, 21, 18, seed=2)
    found = prior.match(x)
    expected = plain_loop(x, found, sigma, patch, 3)
    close(prior.shrink(x, found, sigma), expected, 1e-9)
    close(prior.shrink(x.float(), found, sigma), expected, 1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_strong_structure_in_little_noise_keeps_single_precision(dtype: torch.dtype) -> None:
    """The inverse is of nearly singular matrices: thresholds of 1e-9 of the energy are raised, not inverted."""
    x = uniform(3, 24, 24)
    out = SMALL(x.to(dtype), 1e-5)
    close(out, x, 1e-2)
    assert bool(torch.isfinite(out).all())


@pytest.mark.parametrize("radius", [0, 3, 50])
def test_groups_are_those_of_the_plain_search(radius: int) -> None:
    x = uniform(3, 23, 26)
    keys = groups.keys((3, 23, 26), 4, 3)
    places = np.repeat((keys % (23 * 26))[:, None], 3, 1)
    size = 3 * min(radius + 1, 6) ** 2
    plain = patches.match(x.numpy(), keys, 4, size, radius)
    found = groups.match(x.numpy(), keys, places, 4, size, radius, 3)
    assert all(set(a) == set(b) for a, b in zip(plain.tolist(), found.tolist(), strict=True))
    assert sorted(keys) == sorted(patches.references((3, 23, 26), 4, 3))


def test_a_group_stays_within_the_span_of_frames_around_its_reference() -> None:
    x = uniform(7, 20, 20)
    prior = GroupFilter(patch=4, group=200, stride=4, radius=20, span=3)
    first = [0, 0, 1, 2, 3, 4, 4]
    for key, group in zip(groups.keys((7, 20, 20), 4, 4), prior.match(x), strict=True):
        begin = first[key // 400]
        window = x[begin : begin + 3].numpy()
        own, place = np.array([key - 400 * begin], np.int32), np.array([[key % 400] * 3])
        near_by = groups.match(window, own, place, 4, 200, 20, 3) + 400 * begin
        assert set(group.tolist()) == set(near_by[0].tolist())


def test_places_are_where_groups_are_searched_and_what_is_nearest_there() -> None:
    """A stamp that moves by 6 pixels a frame leaves the window around its reference, not that around its place."""
    x, stamp = 0.1 * uniform(3, 20, 40), uniform(4, 4, seed=1)
    for t in range(3):
        x[t, 8:12, 8 + 6 * t : 12 + 6 * t] = stamp
    prior = GroupFilter(patch=4, group=3, stride=4, radius=5)
    row = int((groups.keys((3, 20, 40), 4, 4) == 8 * 40 + 8).nonzero()[0][0])
    true = [8 * 40 + 8 + 6 * t for t in range(3)]
    first = prior.search(x)
    assert first.places[row, 0] == true[0]
    assert not {1 * 800 + true[1], 2 * 800 + true[2]} & set(first.groups[row].tolist())
    first.places[row] = torch.tensor(true) - 2
    second = prior.search(x, first.places)
    assert set(second.groups[row].tolist()) == {800 * t + at for t, at in enumerate(true)}
    assert second.places[row].tolist() == true


def test_too_few_patches_repeat_the_key() -> None:
    x = uniform(1, 6, 6)
    found = GroupFilter(patch=5, group=9, stride=3, radius=5).match(x)
    assert [len(set(group)) for group in found.tolist()] == [4] * 4
    assert bool(torch.isfinite(GroupFilter(patch=5, group=9, stride=3)(x, 0.1)).all())


@pytest.mark.parametrize("shape", [(1, 9, 9), (2, 9, 23), (3, 31, 10), (5, 5, 5), (2, 3, 12, 11), (0, 4, 20, 20)])
def test_any_size_is_finite_and_sigma_zero_is_nothing(shape: tuple[int, ...]) -> None:
    x = uniform(*shape)
    for sigma in (1e-6, 0.1, 10.0):
        assert bool(torch.isfinite(SMALL(x, sigma)).all())
    assert torch.equal(SMALL(x, 0.0), x)
    torch.testing.assert_close(SMALL(torch.full(shape, 0.5), 0.1), torch.full(shape, 0.5))


def test_clean_parts_stay_and_not_a_number_does_not_spread_everywhere() -> None:
    x = uniform(2, 40, 40)
    levels = torch.zeros(1, 40, 40)
    levels[..., 30:] = 0.05
    close(SMALL(x, levels.expand(2, 40, 40))[..., :19], x[..., :19])
    x[0, 0, 0] = float("nan")
    assert bool(torch.isfinite(SMALL(x, 0.1)[1, 25:, 25:]).all())


def test_samples_are_independent_and_threads_change_no_bit() -> None:
    x = simulate.render(8, 64, 64, seed=0).reshape(2, 4, 64, 64) + 0.05 * normal(2, 4, 64, 64).float()
    threads, results = torch.get_num_threads(), []
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            results.append(GroupFilter()(x, torch.tensor([0.05, 0.1])))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(*results)
    assert torch.equal(results[0][1], GroupFilter()(x[1], 0.1))


def test_scale_and_offset_go_through() -> None:
    x = simulate.render(4, 20, 20, seed=0).double() + 0.05 * normal(4, 20, 20)
    close(SMALL(64 * x, 64 * 0.05), 64 * SMALL(x, 0.05))
    close(SMALL(x + 0.25, 0.05), SMALL(x, 0.05) + 0.25, 1e-9)


def test_it_denoises_like_the_weighted_nuclear_norm() -> None:
    clean = simulate.render(4, 48, 48, seed=0)
    noisy = clean + 0.1 * normal(4, 48, 48).float()
    numbers = (8, 24, 4, 7)
    ours, other = (float(psnr(kind(*numbers)(noisy, 0.25), clean).mean()) for kind in (GroupFilter, WNNM))
    assert ours > float(psnr(noisy, clean).mean()) + 4
    assert ours > other - 0.5


def test_groups_come_from_the_last_result_and_seldom() -> None:
    first, second = uniform(3, 16, 16), uniform(3, 16, 16, seed=1)
    denoise, start = tracking(SMALL, first, 2), SMALL.search(first)
    one = denoise(second, 0.05)
    assert torch.equal(one, SMALL.shrink(second, start.groups, 0.05))
    two = denoise(second, 0.04)
    assert torch.equal(two, SMALL.shrink(second, start.groups, 0.04))
    again = SMALL.search(two, start.places)
    assert torch.equal(denoise(second, 0.03), SMALL.shrink(second, again.groups, 0.03))
    four = denoise(second, 0.02)
    assert torch.equal(four, SMALL.shrink(second, again.groups, 0.02))
    assert torch.equal(denoise(second, 0.01), SMALL.shrink(second, SMALL.search(four, again.places).groups, 0.01))


def test_the_first_component_decides_on_the_groups_of_all() -> None:
    start, parts = uniform(2, 3, 1, 16, 16), uniform(2, 3, 1, 16, 16, seed=1)
    own = SMALL.match(start[:, 0])
    found = tracking(SMALL, start, 9, shared=True)(parts, 0.05)
    for n in range(2):
        for k in range(3):
            assert torch.equal(found[n, k], SMALL.shrink(parts[n, k], own[n], 0.05))


def test_just_compiled_or_from_the_disk_the_bits_are_the_same(tmp_path: Path) -> None:
    """In two processes that have compiled nothing; forks of one, as importing torch takes long.

    Of `_smooth`, whose kernels call one another to compute; what `_match` and `_covered` call compares and counts.
    """
    script = (
        "import os, numpy as np; from unsnap.kernels import groups\n"
        "rng = np.random.default_rng(0); x = rng.random((2, 32, 32), np.float32)\n"
        "found = (rng.integers(0, 2, (9, 32)) * 1024 + rng.integers(0, 20, (9, 32)) * 33).astype(np.int32)\n"
        "total, limits = np.zeros_like(x), np.full(9, 0.5, np.float32)\n"
        "for _ in range(2):\n"
        "    if not os.fork():\n"
        "        groups._smooth(x, found, 12, limits, total, np.zeros(0, np.float32), 0, 0, 0, 0, 9)\n"
        "        os.write(1, total.tobytes().hex().encode() + b'\\n'), os._exit(0)\n"
        "    os.wait()"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, check=True, capture_output=True, text=True)
    first, second = done.stdout.splitlines()
    assert len(first) == 2 * 4 * 2 * 32 * 32
    assert len(set(first)) > 1
    assert first == second


def test_a_result_keeps_no_more_memory_than_its_video() -> None:
    x = uniform(4, 64, 40)
    out = SMALL.shrink(x, SMALL.match(x), 0.1)
    assert out.untyped_storage().nbytes() == x.untyped_storage().nbytes()


@pytest.mark.parametrize("count", [1, 2, 3])
def test_neighbouring_videos_are_filtered_as_one(count: int) -> None:
    x = uniform(count, 2, 23, 20)
    levels = 0.02 + 0.1 * uniform(count, 1, 23, 20, seed=2)
    one, sequence = x.reshape(-1, 23, 20), InSequence(SMALL)
    first, joint = SMALL.search(one), sequence.search(x)
    assert torch.equal(joint.groups, first.groups)
    again = sequence.search(x, joint.places)
    assert torch.equal(again.groups, SMALL.search(one, first.places).groups)
    expected = SMALL.shrink(one, first.groups, levels.expand(x.shape).reshape(one.shape))
    assert torch.equal(sequence.shrink(x, joint.groups, levels).reshape(one.shape), expected)


def test_groups_reach_no_further_than_the_neighbours() -> None:
    """So that the cost is linear in the number of videos; the first and the last look at two on one side."""
    x = uniform(1, 2, 20, 20).repeat(6, 1, 1, 1)  # alike everywhere: only the rule keeps groups near
    found = InSequence(SMALL).search(x).groups.reshape(-1, 6, 2, SMALL.group) // (2 * 20 * 20)
    for k, (first, last) in enumerate([(0, 2), (0, 2), (1, 3), (2, 4), (3, 5), (3, 5)]):
        assert (int(found[:, k].min()), int(found[:, k].max())) == (first, last)


def test_groups_reach_the_neighbours_however_short_the_span() -> None:
    """Three equal videos of one frame: the nearest patches of each are the same places in the others."""
    x, prior = uniform(1, 1, 20, 20).repeat(3, 1, 1, 1), GroupFilter(patch=5, group=3, stride=3, radius=5, span=1)
    found = InSequence(prior).search(x).groups
    assert bool((found.sort(-1).values // 400 == torch.arange(3)).all())
    assert bool((found % 400 == found[:, :1] % 400).all())
