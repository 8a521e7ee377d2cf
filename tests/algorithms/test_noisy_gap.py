"""GAP that knows the noise: its limits are GAPs, and its step is its equation."""

from __future__ import annotations

import sys

import pytest
import torch
from problems import PHI, PRIOR, SIZE, Y
from torch import Tensor

import laws
from laws import close, each, normal, uniform
from unsnap.algorithms import GAPState, accelerated_gap_step, gap, noisy_gap, noisy_gap_step
from unsnap.algorithms.noisy_gap import size
from unsnap.operators import CodedOperator, Multishot, Snapshot

OPERATORS = {"snapshot": PHI, "multishot": Multishot(normal(2, *SIZE))}
X = uniform(*SIZE, seed=5)


phi = each(OPERATORS)


def data(phi: CodedOperator) -> tuple[Tensor, Tensor]:
    y = phi.A(uniform(*SIZE, seed=6))
    return y, y + 0.1 * uniform(*y.shape, seed=7)


def test_without_noise_it_is_accelerated_gap(phi: CodedOperator) -> None:
    y, carried = data(phi)
    found = noisy_gap_step(GAPState(X, carried), y, phi, PRIOR, 0.07, torch.zeros_like(y))
    expected = accelerated_gap_step(GAPState(X, carried), y, phi, PRIOR, 0.07)
    close(found.x, expected.x, 1e-10)
    close(found.carried, expected.carried)
    schedule = [0.2, 0.1, 0.05]
    close(noisy_gap(y, phi, PRIOR, schedule, noise=torch.zeros_like(y)).x, gap(y, phi, PRIOR, schedule).x, 1e-10)


def test_nothing_but_noise_is_not_fitted(phi: CodedOperator) -> None:
    y, carried = data(phi)
    found = noisy_gap_step(GAPState(X, carried), y, phi, PRIOR, 0.07, torch.full_like(y, 1e9))
    close(found.x, PRIOR(X, 0.07), 1e-9)
    close(found.carried, 2 * y - phi.A(X), 1e-7)


def test_step_against_dense_algebra(phi: CodedOperator) -> None:
    y, carried = data(phi)
    noise = 0.02 + 0.1 * uniform(*y.shape, seed=8)
    M, masks = laws.dense(phi, SIZE), phi.masks
    contrast = (masks - masks.mean(-3, keepdim=True)).square().mean((-3, -2, -1))[..., None, None].sqrt()
    white = phi.A(torch.ones(SIZE, dtype=X.dtype))
    signal = contrast * (y.square().mean((-2, -1)) / white.square().mean((-2, -1)))[..., None, None].sqrt()
    new = y + (carried - y) / (1 + 3 * noise / signal) + y - phi.A(X)
    light = (masks**2).sum(-3)
    say = light / (light + 0.4 * noise**2 / 0.01**2)
    x = X.flatten() + torch.linalg.pinv(M) @ (say * (new - phi.A(X))).flatten()
    found = noisy_gap_step(GAPState(X, carried), y, phi, PRIOR, 0.01, noise)
    close(found.carried, new)
    close(found.x, PRIOR(x.reshape(SIZE), 0.01), 1e-9)


@pytest.mark.parametrize("scale", [255, 1e-6])
def test_the_scale_of_the_masks_cancels(phi: CodedOperator, scale: float) -> None:
    y, _ = data(phi)
    noise = 0.02 + 0.1 * uniform(*y.shape, seed=8)
    expected = noisy_gap(y, phi, PRIOR, [0.1, 0.05], noise=noise, tol=0).x
    scaled = type(phi)(scale * phi.masks)
    close(noisy_gap(scale * y, scaled, PRIOR, [0.1, 0.05], noise=scale * noise, tol=0).x, expected, 1e-9)


def test_a_brighter_scene_bears_more_noise(phi: CodedOperator) -> None:
    y, carried = data(phi)
    noise = 0.02 + 0.1 * uniform(*y.shape, seed=8)
    once = noisy_gap_step(GAPState(X, carried), y, phi, PRIOR, 0.07, noise)
    twice = noisy_gap_step(GAPState(2 * X, 2 * carried), 2 * y, phi, PRIOR, 0.14, 2 * noise)
    close(twice.carried, 2 * once.carried)


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_masks_that_tell_nothing_apart(noise: float) -> None:
    phi = Snapshot(torch.ones(SIZE, dtype=X.dtype))
    y = phi.A(X)
    carried = noisy_gap_step(GAPState(X, 3 * y), y, phi, PRIOR, 0.07, torch.full_like(y, noise)).carried
    close(carried, y if noise else 3 * y)  # all is forgotten, or nothing
    black = noisy_gap_step(GAPState(0 * X, 0 * y), 0 * y, phi, PRIOR, 0.07, torch.full_like(y, noise))
    assert bool((black.x == 0).all())


def test_each_sample_has_its_noise() -> None:
    noise = torch.stack([torch.full_like(Y[0], level) for level in (0.0, 0.03, 0.2)])
    together = noisy_gap(Y, PHI, PRIOR, [0.1, 0.05], noise=noise, tol=0).x
    for k in range(3):
        close(together[k], noisy_gap(Y[k], PHI, PRIOR, [0.1, 0.05], noise=noise[k], tol=0).x)


def test_dead_and_weak_pixels_have_no_say() -> None:
    masks = PHI.masks.clone()
    masks[:, 0, 0], masks[:, 1, 1] = 0, 1e-4
    phi = Snapshot(masks)
    y = phi.A(X)
    y[0, 0], y[1, 1] = 5.0, 1.0  # no light in the first, and the second claims a light of 10,000
    x = noisy_gap_step(GAPState(X, y), y, phi, lambda x, sigma: x, 0.05, torch.full_like(y, 0.05)).x
    assert bool(torch.isfinite(x).all())
    assert float((x - X)[:, 0, 0].abs().max()) == 0
    assert float((x - X)[:, 1, 1].abs().max()) < 1e-2


@pytest.mark.parametrize("hold", [0.0, 2.0, 1e9])
def test_the_snapshot_counts_on_while_the_misfit_is_above_the_noise(phi: CodedOperator, hold: float) -> None:
    y, _ = data(phi)
    noise, schedule = torch.full_like(y, 0.05), [0.2, 0.1, 0.05, 0.02]
    state, trusted, followed = GAPState(phi.A_dagger(y), y), schedule[0], []
    for sigma in schedule:
        followed.append(float((y - phi.A(state.x)).square().mean().sqrt()) <= hold * 0.05)
        trusted = sigma if followed[-1] else trusted
        state = noisy_gap_step(state, y, phi, PRIOR, sigma, noise, trusted=torch.tensor(trusted, dtype=y.dtype))
    assert all(followed) == (hold == 1e9)
    close(noisy_gap(y, phi, PRIOR, schedule, noise=noise, hold=hold, tol=0).x, state.x)


def test_some_rows_at_a_time_change_no_bit(phi: CodedOperator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of single precision too, whose sums would tell: a picture is cut into rows to save memory."""
    y, carried = data(phi)
    noise = 0.02 + 0.1 * uniform(*y.shape, seed=8)

    def results() -> list[Tensor]:
        found = []
        for dtype in (torch.float64, torch.float32):
            camera, state = phi.with_masks(phi.masks.to(dtype)), GAPState(X.to(dtype), carried.to(dtype))
            found += noisy_gap_step(state, y.to(dtype), camera, PRIOR, 0.07, noise.to(dtype), power=2.0)
            found.append(size(y.to(dtype), camera))
        return found

    whole = results()
    monkeypatch.setattr(sys.modules["unsnap.algorithms.noisy_gap"], "AT_ONCE", 7)
    assert all(torch.equal(a, b) for a, b in zip(results(), whole, strict=True))


def test_no_noise_and_no_sigma_is_still_a_snapshot() -> None:
    """Nothing over nothing is no reason to leave the snapshot out, nor for a gradient that is no number."""
    masks = PHI.masks.clone()
    masks[:, 0, 0] = 0
    masks.requires_grad_()
    phi = Snapshot(masks)
    y = phi.A(X).detach()
    found = noisy_gap(y, phi, lambda x, sigma: x, [0.0] * 5, noise=torch.zeros_like(y), x0=torch.zeros_like(X))
    close(phi.A(found.x).detach(), y, 1e-9)
    found.x.sum().backward()
    assert masks.grad is not None
    assert bool(torch.isfinite(masks.grad).all())
