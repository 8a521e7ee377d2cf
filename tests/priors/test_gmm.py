"""The Gaussian mixture: its posterior against dense formulas, its EM, and videos of every kind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal

from laws import close, normal, seeded, uniform
from unsnap import Multishot, Snapshot, psnr, simulate, zoo
from unsnap.errors import InputError
from unsnap.masks import bernoulli, gray
from unsnap.methods import METHODS, get
from unsnap.models import load, save
from unsnap.priors.gmm import GMM, Grid, Mixture, posterior, posterior_video


def mixture(components: int = 3, frames: int = 4, patch: int = 3, rank: int = 5) -> Mixture:
    shape = (components, frames, patch, patch)
    weights = uniform(components) + 0.2
    return Mixture(
        weights / weights.sum(),
        0.5 + 0.1 * normal(*shape),
        0.2 * normal(*shape, rank, seed=1),
        0.002 + 0.01 * uniform(components, seed=2),
    )


def covariance(m: Mixture, k: int) -> Tensor:
    factor = m.factors[k].flatten(0, 2)
    return factor @ factor.T + m.white[k] * torch.eye(len(factor), dtype=factor.dtype)


def dense(m: Mixture, y: Tensor, masks: Tensor, noise: float) -> tuple[Tensor, Tensor]:
    """One patch, y (p²,) and masks (T, p²), with the camera and every covariance written out."""
    phi = torch.cat([torch.diag(row) for row in masks], 1)
    logs, means = [], []
    for k in range(len(m.weights)):
        mean, sigma = m.means[k].flatten(), covariance(m, k)
        seen = phi @ sigma @ phi.T + noise**2 * torch.eye(len(y), dtype=y.dtype)
        logs.append(m.weights[k].log() + MultivariateNormal(phi @ mean, seen).log_prob(y))
        means.append(mean + sigma @ phi.T @ torch.linalg.inv(seen) @ (y - phi @ mean))
    shares = torch.stack(logs).softmax(0)
    return shares @ torch.stack(means), shares


# The posterior


@pytest.mark.parametrize("rank", [1, 5, 12])
@pytest.mark.parametrize("noise", [0.003, 0.1])
def test_posterior_is_the_dense_formula(rank: int, noise: float) -> None:
    m, y, masks = mixture(rank=rank), uniform(6, 9, seed=3), uniform(6, 4, 9, seed=4) - 0.2
    masks[:, :, 0] = 0  # a pixel that sees nothing
    found, shares = posterior(m, y, masks, noise)
    for p in range(6):
        mean, expected = dense(m, y[p], masks[p], noise)
        close(found[p].flatten(), mean, 1e-9)
        close(shares[p], expected, 1e-8)


def test_shares_sum_to_one() -> None:
    shares = posterior(mixture(), uniform(7, 9), uniform(7, 4, 9, seed=1), 0.01)[1]
    close(shares.sum(-1), torch.ones(7, dtype=torch.float64))
    assert bool((shares >= 0).all())


def test_a_video_is_the_average_of_its_patches() -> None:
    m, masks, y = mixture(), uniform(4, 8, 10) + 0.1, uniform(8, 10, seed=1)
    gain = masks.square().sum(0).mean().sqrt()
    total, count = torch.zeros(4, 8, 10, dtype=torch.float64), torch.zeros(8, 10)
    for i in (0, 2, 4, 5):
        for j in (0, 2, 4, 6, 7):
            at = (slice(i, i + 3), slice(j, j + 3))
            code = masks[(slice(None), *at)].flatten(1) / gain
            total[(slice(None), *at)] += dense(m, y[at].flatten() / gain, code, 0.05)[0].reshape(4, 3, 3)
            count[at] += 1
    close(posterior_video(m, y, masks, stride=2, noise=0.05), total / count, 1e-9)


def test_exact_masks_give_the_video_back() -> None:
    video = uniform(1, 9, 9)
    close(posterior_video(mixture(frames=1), video[0], torch.ones_like(video), stride=2, noise=1e-6), video, 1e-5)


# The mixture


def test_density_is_that_of_dense_gaussians() -> None:
    m, x = mixture(), 0.5 + 0.2 * normal(10, 4, 3, 3, seed=5)
    expected = [
        m.weights[k].log() + MultivariateNormal(m.means[k].flatten(), covariance(m, k)).log_prob(x.flatten(1))
        for k in range(3)
    ]
    close(m.log_joint(x), torch.stack(expected, 1), 1e-9)


def test_fewer_frames_are_the_marginal() -> None:
    m = mixture()
    for k in range(3):
        close(covariance(m.at(2), k), covariance(m, k)[:18, :18])
    close(m.at(2).means, m.means[:, :2])
    assert torch.equal(m.at(4).factors, m.factors)


def test_more_frames_go_on_as_the_chain_does() -> None:
    # s_t = a s_{t-1} + news, stationary: what 4 frames tell of it decides all the others.
    a, lag = 0.8, (torch.arange(9)[:, None] - torch.arange(9)).abs()
    whole = a ** lag.double()
    factor = torch.linalg.cholesky(whole[:4, :4]).reshape(1, 4, 1, 1, 4)
    m = Mixture(torch.ones(1), torch.zeros(1, 4, 1, 1), factor, torch.tensor([1e-9])).to(whole)
    close(covariance(m.at(9), 0), whole, 1e-6)


def test_far_frames_neither_fade_nor_explode() -> None:
    m = mixture()
    spread = m.at(60).factors.square().sum(-1)
    close(spread[:, -1], m.factors.square().sum(-1)[:, -1], 1e-9)


def test_maximising_keeps_what_has_no_patches_and_leans_on_what_it_knew() -> None:
    m, x = mixture(), uniform(40, 4, 3, 3)
    shares = torch.zeros(40, 3, dtype=torch.float64)
    shares[:, 0] = 1
    after = m.maximised(x, shares, floor=1e-6)
    assert torch.equal(after.means[1:], m.means[1:])
    close(after.means[0], x.mean(0))
    close(after.weights, torch.tensor([1.0, 0, 0]).double())
    few = torch.cat([shares[:, :2], torch.full((40, 1), 0.9 / 40).double()], 1)
    assert torch.equal(m.maximised(x, few, floor=1e-6).means[2], m.means[2]), "less than one patch teaches nothing"
    assert float(m.maximised(x[:1].expand(40, 4, 3, 3), shares, floor=0.3).white[0]) == pytest.approx(0.3)
    stubborn = m.maximised(x, shares, floor=1e-6, strength=1e12)
    close(stubborn.means, m.means, 1e-8)
    close(covariance(stubborn, 0), covariance(m, 0), 1e-6)


def test_what_it_knew_counts_as_so_many_patches() -> None:
    """With all directions but one free, the covariance is that of the patches and of those it stands for."""
    m, x, strength = mixture(frames=2, patch=2, rank=7), uniform(40, 2, 2, 2, seed=4), 25.0
    shares = uniform(40, 3, seed=5).softmax(1)
    after = m.maximised(x, shares, floor=0.0, strength=strength)
    for k in range(3):
        total = shares[:, k].sum() + strength
        mean = (shares[:, k] @ x.flatten(1) + strength * m.means[k].flatten()) / total
        rest, moved = x.flatten(1) - mean, m.means[k].flatten() - mean
        scatter = (shares[:, k, None] * rest).T @ rest + strength * (covariance(m, k) + torch.outer(moved, moved))
        close(after.means[k].flatten(), mean)
        close(covariance(after, k), scatter / total, 1e-9)


def test_updates_learn_from_the_video_beside_what_was_trained() -> None:
    m, masks, y = mixture(), uniform(4, 9, 10) + 0.1, uniform(9, 10, seed=1)
    now = m
    for n in range(4):
        video = posterior_video(now, y, masks, stride=2, noise=0.05)
        close(GMM(m, stride=2, noise=0.05, updates=n, strength=7.0)(y, Snapshot(masks), tol=0).x, video, 1e-9)
        patches = Grid(3, 2, 9, 10).cut(video)
        floor = float(m.white.min()) / 2
        now = m.maximised(patches, now.log_joint(patches).softmax(1), floor=floor, strength=7.0)


def test_patches_cut_and_averaged_are_the_video() -> None:
    video = uniform(2, 11, 13)
    grid = Grid(4, 3, 11, 13)
    close(grid.average(grid.cut(video).flatten(2)), video)


# Every video


@pytest.mark.parametrize("updates", [0, 1])
@pytest.mark.parametrize("shape", [(1, 9, 8), (3, 17, 11), (8, 16, 21), (11, 13, 10)])
def test_any_size(shape: tuple[int, int, int], updates: int) -> None:
    truth = uniform(*shape, dtype=torch.float32)
    phi = Snapshot(gray(*shape, generator=seeded()))
    solution = replace(zoo.load("gmm"), updates=updates)(phi.A(truth), phi, 1 + updates)
    assert solution.x.shape == truth.shape
    assert bool(torch.isfinite(solution.x).all())


@pytest.mark.parametrize("updates", [0, 1])
def test_a_batch_is_its_samples_with_masks_of_their_own_or_shared(updates: int) -> None:
    m = mixture()
    for masks in (uniform(4, 9, 10), uniform(2, 4, 9, 10)):
        y = uniform(2, 9, 10, seed=1)
        both = GMM(m, updates=updates)(y, Snapshot(masks), 3).x
        for n in range(2):
            one = GMM(m, updates=updates)(y[n], Snapshot(masks if masks.ndim == 3 else masks[n]), 3).x
            close(both[n], one, 1e-9)


def test_scale_of_the_masks_and_dead_pixels_do_no_harm() -> None:
    m, masks, truth = mixture(), uniform(4, 9, 10), uniform(4, 9, 10, seed=1)
    masks[:, 2] = 0
    small, large = (GMM(m)(Snapshot(c).A(truth), Snapshot(c), 1).x for c in (masks, 255 * masks))
    close(small, large, 1e-9)
    nothing = torch.zeros(4, 9, 10, dtype=torch.float64)
    assert bool(torch.isfinite(GMM(m)(Snapshot(nothing).A(truth), Snapshot(nothing), 1).x).all())


def test_several_shots_are_refused() -> None:
    phi = Multishot(torch.ones(2, 3, 9, 9))
    with pytest.raises(InputError, match="single snapshots"):
        GMM(mixture())(torch.ones(2, 9, 9), phi, 1)


# What is shipped


@pytest.mark.parametrize("code", [bernoulli, gray])
def test_both_beat_gap_tv(code) -> None:
    truth = simulate.render(8, 16, 16, seed=21)
    phi = Snapshot(code(8, 16, 16, generator=seeded(21)))
    tv, gmm, online = (
        float(psnr(METHODS[name](phi.A(truth), phi).x, truth).mean()) for name in ("gap-tv", "gmm", "gmm-online")
    )
    assert min(gmm, online) > tv + 6, (tv, gmm, online)


def test_what_was_found_is_likelier_after_learning_from_it() -> None:
    truth = simulate.render(8, 32, 32, seed=3).double()
    m = zoo.load("gmm").mixture.to(truth)
    patches = Grid(8, 3, 32, 32).cut(truth)
    joint = m.log_joint(patches)
    after = m.maximised(patches, joint.softmax(1), floor=1e-5, strength=30.0)
    assert after.log_joint(patches).logsumexp(1).mean() > joint.logsumexp(1).mean() + 10


def test_load_by_name() -> None:
    m = zoo.load("gmm")
    assert isinstance(m, GMM)
    close(m.mixture.weights.sum(), torch.tensor(1.0), 1e-5)
    y, phi = uniform(16, 16).float(), Snapshot(uniform(4, 16, 16).float())
    assert torch.equal(m(y, phi).x, METHODS["gmm"](y, phi).x)
    with pytest.raises(InputError, match="gmm is a Gaussian mixture, not an equilibrium"):
        zoo.equilibrium("gmm")


# Files


def test_a_file_is_a_method(tmp_path: Path) -> None:
    path = save(tmp_path / "m.safetensors", GMM(mixture(), stride=2, about={"seed": 0}))
    m = load(path)
    assert isinstance(m, GMM)
    assert (m.stride, m.about) == (2, {"seed": 0})
    close(m.mixture.factors, mixture().factors, 1e-3)
    y, phi = uniform(9, 10).float(), Snapshot(uniform(4, 9, 10).float())
    assert torch.equal(get(str(path))(y, phi).x, m(y, phi).x)


@pytest.mark.parametrize("flaw", ["missing", "shape", "nan", "white", "not a mixture"])
def test_damaged_files_are_one_sentence(tmp_path: Path, flaw: str) -> None:
    from safetensors.torch import save_file

    m = {key: value.clone() for key, value in vars(mixture()).items()}
    if flaw == "missing":
        del m["white"]
    elif flaw == "shape":
        m["factors"] = m["factors"][:2].contiguous()
    elif flaw == "nan":
        m["means"][0] = float("nan")
    elif flaw == "white":
        m["white"][0] = 0
    path = tmp_path / "m.safetensors"
    save_file(m, path, {} if flaw == "not a mixture" else {"unsnap_mixture": "1"})
    with pytest.raises(InputError, match=r"m.safetensors.*(train|import) it again"):
        load(path)


def test_one_snapshot_behind_several_masks() -> None:
    masks, m = uniform(3, 4, 10, 9), mixture()
    y = Snapshot(masks[0]).A(uniform(4, 10, 9, seed=1))
    several = GMM(m)(y, Snapshot(masks), 1).x
    assert several.shape == (3, 4, 10, 9)
    for n in range(3):
        close(several[n], GMM(m)(y, Snapshot(masks[n]), 1).x)
