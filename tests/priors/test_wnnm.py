"""Weighted nuclear norm: the proximal step, the matching, the averaging, and DeSCI on top of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from laws import close, normal, seeded, uniform
from unsnap import Snapshot, psnr, simulate
from unsnap.kernels import patches
from unsnap.masks import bernoulli, gray
from unsnap.methods import METHODS
from unsnap.priors.wnnm import WNNM, rematching

SMALL = WNNM(patch=4, group=12, stride=3, radius=5)


def constant_of(n: int, sigma: float) -> float:
    return 2 * (2 * n) ** 0.5 * sigma**2


def one_group(frames: int, patch: int, seed: int = 0) -> Tensor:
    """Where every frame is one patch, the frames are the only group: the denoiser is the proximal step."""
    return (
        0.5
        + 0.3 * normal(frames, patch, 2, seed=seed) @ normal(2, patch, seed=seed + 1)[None] / 2
        + 0.05 * normal(frames, patch, patch, seed=seed + 2)
    )


def proximal_step(x: Tensor, sigma: float) -> tuple[Tensor, Tensor]:
    """Deviations from the mean patch before and after, patches as columns."""
    after = WNNM(patch=x.shape[-1], group=len(x), stride=1, radius=0)(x, sigma)
    mean = x.mean(0)
    return (x - mean).flatten(1).T, (after - mean).flatten(1).T


# The proximal step


@pytest.mark.parametrize("sigma", [0.02, 0.05, 0.1])
def test_singular_values_are_those_of_a_brute_force_search(sigma: float) -> None:
    y, x = proximal_step(one_group(20, 5), sigma)
    before, after = torch.linalg.svdvals(y), torch.linalg.svdvals(x)
    c, grid = constant_of(20, sigma), np.linspace(0, float(before[0]), 20_001)
    # Re-weighting, each step minimised by trying all values: ½(s - s_y)² + w s, then w = C / s.
    for s_y, s_x in zip(before[:8].tolist(), after[:8].tolist(), strict=True):
        s = s_y
        for _ in range(60):
            s = float(grid[(0.5 * (grid - s_y) ** 2 + c / max(s, 1e-12) * grid).argmin()])
        assert abs(s - s_x) < 1e-3 * float(before[0]) or abs(s_y**2 / (4 * c) - 1) < 0.1
    assert 0 < int((after > 1e-9).sum()) < len(after)  # some vanish, some stay


def test_step_minimises_the_weighted_nuclear_norm() -> None:
    sigma = 0.05
    y, x = proximal_step(one_group(20, 5), sigma)
    s = torch.linalg.svdvals(x)
    weights = constant_of(20, sigma) / s.clamp(min=1e-9)  # larger for smaller singular values: non-descending

    def cost(v: Tensor) -> float:
        return float(0.5 * (v - y).square().sum() + (weights * torch.linalg.svdvals(v)).sum())

    best = cost(x)
    u, _, v = torch.linalg.svd(y, full_matrices=False)
    for k in range(300):
        direction = normal(*y.shape, seed=k) if k % 2 else (u * normal(len(s), seed=k)) @ v
        assert cost(x + 10.0 ** -(1 + k % 4) * direction) > best
    assert cost(y) > best
    assert cost(torch.zeros_like(y)) > best


def test_singular_vectors_stay() -> None:
    y, x = proximal_step(one_group(20, 5), 0.05)
    u, s, v = torch.linalg.svd(y, full_matrices=False)
    c = constant_of(20, 0.05)
    shrunk = torch.where(s.square() > 4 * c, (s + (s.square() - 4 * c).clamp(min=0).sqrt()) / 2, 0)
    close(x, (u * shrunk) @ v, 1e-10)


# Matching and averaging


def test_planted_copies_are_found() -> None:
    x = uniform(3, 20, 21)
    places = [(0, 2, 3), (0, 9, 12), (1, 4, 4), (2, 0, 0), (2, 16, 17)]
    stamp = uniform(4, 4, seed=1)
    for t, i, j in places:
        x[t, i : i + 4, j : j + 4] = stamp
    groups = patches.match(x.numpy(), np.array([9 * 21 + 12], np.int32), 4, 5, 20)
    assert sorted(groups[0].tolist()) == sorted((t * 20 + i) * 21 + j for t, i, j in places)


@pytest.mark.parametrize("radius", [0, 3, 50])
def test_matches_are_the_nearest_within_the_window(radius: int) -> None:
    x = uniform(2, 13, 11)
    groups = WNNM(patch=4, group=9, stride=2, radius=radius).match(x)
    windows = x.unfold(1, 4, 1).unfold(2, 4, 1).flatten(3)
    keys = patches.references((2, 13, 11), 4, 2)
    for key, group in zip(keys.tolist(), groups.tolist(), strict=True):
        t, i, j = key // 143, key // 11 % 13, key % 11
        near = windows[:, max(i - radius, 0) : i + radius + 1, max(j - radius, 0) : j + radius + 1]
        distances = (near - windows[t, i, j]).square().sum(-1).flatten().sort().values
        found = torch.stack([windows[g // 143, g // 11 % 13, g % 11] for g in group])
        assert len(set(group)) == len(group)
        assert key in group
        close((found - windows[t, i, j]).square().sum(-1).sort().values, distances[: len(group)], 1e-9)


def test_averaging_unchanged_patches_is_the_input() -> None:
    x = uniform(3, 17, 14)
    close(SMALL(x, 1e-9), x, 1e-7)
    assert torch.equal(SMALL(x, 0.0), x)


@pytest.mark.parametrize("sigma", [0.05, 0.02 + 0.1 * uniform(3, 18, 15, seed=2)], ids=["one level", "a map"])
def test_equals_the_plain_loop(sigma: float | Tensor) -> None:
    x = uniform(1, 18, 15) + 0.1 * normal(3, 18, 15)
    keys, levels = patches.references((3, 18, 15), 4, 3), torch.as_tensor(sigma, dtype=x.dtype).expand(x.shape)
    total, count = torch.zeros_like(x), torch.zeros_like(x)
    for key, group in zip(keys.tolist(), SMALL.match(x).tolist(), strict=True):
        c = constant_of(12, float(levels[key // 270, key // 15 % 18 + 2, key % 15 + 2]))  # in the middle of the patch
        at = [(g // 270, slice(g // 15 % 18, g // 15 % 18 + 4), slice(g % 15, g % 15 + 4)) for g in group]
        columns = torch.stack([x[place].flatten() for place in at], 1)
        mean = columns.mean(1, keepdim=True)
        u, s, v = torch.linalg.svd(columns - mean, full_matrices=False)
        kept = torch.where(s.square() > 4 * c, (s + (s.square() - 4 * c).clamp(min=0).sqrt()) / 2, 0)
        for place, column in zip(at, ((u * kept) @ v + mean).T, strict=True):
            total[place] += column.reshape(4, 4)
            count[place] += 1
    close(SMALL(x, sigma), total / count, 1e-10)
    close(SMALL(x.float(), sigma), total / count, 1e-4)


# Every video


@pytest.mark.parametrize("level", [0.0, 0.5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_constant_videos_stay(level: float, dtype: torch.dtype) -> None:
    x = torch.full((3, 14, 15), level, dtype=dtype)
    torch.testing.assert_close(SMALL(x, 0.1), x)


def test_a_map_of_one_level_is_that_level_and_clean_parts_stay() -> None:
    x = uniform(2, 3, 24, 30)
    assert torch.equal(SMALL(x, torch.full((2, 1, 24, 30), 0.05, dtype=x.dtype)), SMALL(x, 0.05))
    levels = torch.zeros(1, 24, 30)
    levels[..., 20:] = 0.05
    out = SMALL(x, levels.expand(2, 1, 24, 30))
    close(out[..., :9], x[..., :9])  # a group reaches 4 + 5 pixels
    assert float((out - x)[..., 20:].abs().max()) > 0.01


def test_it_denoises() -> None:
    clean = simulate.render(4, 48, 48, seed=0)
    noisy = clean + 0.1 * normal(4, 48, 48).float()
    assert psnr(WNNM()(noisy, 0.1), clean).mean() > psnr(noisy, clean).mean() + 4


@pytest.mark.parametrize("bad", [{"stride": 0}, {"stride": 7}, {"group": 0}, {"radius": -1}])
def test_bad_settings(bad: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="WNNM needs 1 <= stride <= patch"):
        WNNM(**bad)


def test_matches_are_reused_until_they_are_old() -> None:
    first, second = uniform(3, 16, 16), uniform(3, 16, 16, seed=1)
    denoise, prior = rematching(WNNM.published, 2), WNNM.published(0.05)
    assert torch.equal(denoise(first, 0.05), prior(first, 0.05))
    assert torch.equal(denoise(second, 0.04), prior.shrink(second, prior.match(first), 0.04))
    assert torch.equal(denoise(second, 0.04), prior(second, 0.04))
    assert torch.equal(denoise(second, 0.15), WNNM.published(0.15)(second, 0.15))  # larger patches: matched anew


# DeSCI


@pytest.mark.parametrize("code", [bernoulli, gray])
def test_desci_beats_its_start(code) -> None:
    truth = simulate.render(4, 24, 24, seed=1)
    phi = Snapshot(code(4, 24, 24, generator=seeded()))
    y, seen = phi.A(truth), []
    solution = METHODS["desci"](y, phi, iterations=10, callback=lambda k, x, change: seen.append(k))
    assert seen == list(range(1, 11))
    assert psnr(solution.x, truth).mean() > psnr(METHODS["gap-tv"](y, phi).x, truth).mean() + 2


def test_desci_of_a_batch_and_of_difficult_masks() -> None:
    """The laws of methods/test_methods.py, at few iterations: all of its own take minutes."""
    truth = simulate.render(4, 24, 20, seed=1)
    video, code = torch.stack([truth, 0.3 * truth.flip(-1)]), bernoulli(4, 24, 20, generator=seeded(0))
    dead = code.clone()
    dead[:, 7] = 0
    phi = Snapshot(code)
    together = METHODS["desci"](phi.A(video), phi, iterations=6)
    for n in range(2):
        close(METHODS["desci"](phi.A(video[n]), phi, iterations=6).x, together.x[n], 1e-5)
    for masks in (dead, 255 * code, -code):
        phi = Snapshot(masks)
        found = METHODS["desci"](phi.A(truth), phi, iterations=6)
        assert not bool(found.diverged)
        assert psnr(found.x, truth).mean() >= psnr(phi.A_dagger(phi.A(truth)), truth).mean()
        assert found.x.abs().max() < 3
