"""What every algorithm promises, whatever it computes."""

from __future__ import annotations

import pytest
import torch
from problems import ALL, MASKS, PHI, PRIOR, PROXIMAL, SIZE, TRUTH, Solver, Y
from torch import Tensor, nn

import laws
from laws import close, each, normal, uniform
from unsnap.operators import CodedOperator, Multishot, Snapshot

solve = each(ALL)
proximal = each(PROXIMAL)


def test_pure(solve: Solver) -> None:
    laws.pure(lambda y: solve(y).x, Y.clone())
    start = TRUTH.clone()
    masks = PHI.masks.clone()
    laws.pure(lambda x: solve(Y, x0=x).x, start)
    assert torch.equal(PHI.masks, masks)


def test_intensities_have_no_natural_unit(solve: Solver) -> None:
    laws.homogeneous(lambda y, sigma: solve(y, sigma=sigma, n=30, tol=1e-4).x, Y, 0.05, 1e-9)


@pytest.mark.parametrize("c", [1e-6, 255.0])
def test_masks_have_no_natural_unit(solve: Solver, c: float) -> None:
    scaled, plain = solve(c * Y, Snapshot(c * MASKS), n=30, tol=0), solve(Y, n=30, tol=0)
    close(scaled.x, plain.x, 1e-9)
    close(scaled.residual, plain.residual, 1e-6)


def test_negative_masks_are_as_good_as_positive_ones(solve: Solver) -> None:
    close(solve(-Y, Snapshot(-MASKS)).x, solve(Y).x)


@pytest.mark.parametrize("tol", [0.0, 3e-2])
def test_batch_independent(solve: Solver, tol: float) -> None:
    together = solve(Y, n=40, tol=tol)
    for n in range(3):
        alone = solve(Y[n], n=40, tol=tol)
        close(alone.x, together.x[n])
        close(alone.residual, together.residual[: alone.iterations, n], 1e-9)
        assert alone.converged == together.converged[n]
    two_axes = solve(Y.unsqueeze(0), n=40, tol=tol)
    close(two_axes.x[0], together.x)
    assert two_axes.converged.shape == (1, 3)


def test_samples_stop_at_different_times(solve: Solver) -> None:
    """... or the test above would not test what it should."""
    solution = solve(torch.stack([Y[0], Y[1] + 3 * uniform(*Y[1].shape), 0 * Y[2]]), n=60, tol=1e-2)
    lengths = (solution.residual > 1e-2).sum(0).tolist()
    assert len(set(lengths)) > 1
    assert bool(solution.converged.all())


def test_a_neighbour_that_diverges_does_no_harm(solve: Solver) -> None:
    y = Y.clone()
    y[1, 2, 3] = torch.nan
    solution, healthy = solve(y, n=20), solve(Y, n=20)
    assert solution.diverged.tolist() == [False, True, False]
    for n in (0, 2):
        close(solution.x[n], healthy.x[n])


@pytest.mark.parametrize(
    ("phi", "batch"),
    [
        (Snapshot(MASKS), ()),
        (Snapshot(uniform(1, 5, 4)), (2,)),
        (Snapshot(uniform(9, 1, 3)), (2,)),
        (Snapshot(uniform(4, *SIZE)), (4,)),
        (Snapshot(MASKS), (2, 3)),
        (Snapshot(MASKS), (0,)),
        (Multishot(normal(2, *SIZE)), (3,)),
        (Multishot(normal(3, 2, *SIZE)), (3,)),
    ],
    ids=["alone", "one frame", "one row", "own masks", "two axes", "nothing", "multishot", "own multishot"],
)
def test_any_shape(solve: Solver, phi: CodedOperator, batch: tuple[int, ...]) -> None:
    truth = uniform(*batch, *phi.masks.shape[-3:])
    solution = solve(phi.A(truth), phi)
    assert solution.x.shape == truth.shape
    assert solution.residual.shape[1:] == batch
    assert bool(torch.isfinite(solution.x).all())
    assert not bool(solution.diverged.any())


def test_starts_from_least_squares_unless_told(solve: Solver) -> None:
    close(solve(Y, x0=PHI.A_dagger(Y)).x, solve(Y).x, 1e-14)
    assert not torch.allclose(solve(Y, n=1, x0=TRUTH).x, solve(Y, n=1).x)


def test_single_precision_follows_double(solve: Solver) -> None:
    single = solve(Y.float(), Snapshot(MASKS.float()), tol=0)
    assert single.x.dtype == torch.float32
    close(single.x, solve(Y, tol=0).x, 1e-4)


def test_arguments_of_the_loop_are_passed_on(solve: Solver) -> None:
    seen: list[int] = []
    solution = solve(Y, n=25, tol=0.5, early=False, callback=lambda k, x, r: seen.append(k))
    assert seen == list(range(1, 26))
    assert solution.iterations == 25
    assert solve(Y, n=25, tol=0.9).iterations < 25
    with pytest.raises(ValueError, match="schedule must hold"):
        solve(Y, n=0)


def test_dead_pixels_do_not_disturb(solve: Solver) -> None:
    masks = MASKS.clone()
    masks[:, 1:3, 2:4] = 0
    y = Snapshot(masks).A(TRUTH)
    solution = solve(y, Snapshot(masks), n=200, tol=0)
    assert not bool(solution.diverged.any())
    assert solution.x.abs().max() < 3 * TRUTH.max()


def test_gradients_flow_through_the_solver(solve: Solver) -> None:
    y = Y[0].clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda v: solve(v, n=3, sigma=0.05, tol=0).x, y, fast_mode=True)


@pytest.mark.parametrize("asks", ["snapshot", "masks"])
def test_gradients_flow_from_a_start_that_is_given(solve: Solver, asks: str) -> None:
    y, masks = Y[0].clone(), MASKS.clone()
    (y if asks == "snapshot" else masks).requires_grad_()
    assert solve(y, Snapshot(masks), n=3, x0=TRUTH[0]).x.requires_grad


def test_one_snapshot_may_have_several_masks_and_starts(solve: Solver) -> None:
    """Each stops for itself."""
    several = Snapshot(torch.stack([MASKS, MASKS.flip(0)]))
    together = solve(Y[0], several, n=60, tol=1e-2)
    for n in range(2):
        close(solve(Y[0], Snapshot(several.masks[n]), n=60, tol=1e-2).x, together.x[n])
    starts = torch.stack([TRUTH[0], 100 * TRUTH[0]])
    together = solve(Y[0], n=60, tol=1e-2, x0=starts)
    for n in range(2):
        close(solve(Y[0], n=60, tol=1e-2, x0=starts[n]).x, together.x[n])


def test_weights_inside_the_denoiser_are_not_recorded_unless_asked(proximal: Solver) -> None:
    """A network as denoiser must not make every iteration be kept: memory would grow with their number."""
    weight = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    weighted = lambda x, s: shrink(x, weight * s)  # noqa: E731
    assert not proximal(Y, denoise=weighted).x.requires_grad
    asked = proximal(Y, denoise=weighted, n=3, record=True).x
    (slope,) = torch.autograd.grad(asked.sum(), weight)
    step = 1e-6
    high, low = (proximal(Y, denoise=lambda x, s, w=w: shrink(x, w * s), n=3).x.sum() for w in (0.5 + step, 0.5 - step))
    assert float(slope) == pytest.approx(float(high - low) / (2 * step), rel=1e-5)


# Denoisers of every make


class Module(nn.Module):
    """As deepinv's denoisers are called: model(x, sigma), with more arguments that have defaults."""

    def forward(self, x: Tensor, sigma: float | Tensor, gamma: float | None = None) -> Tensor:
        return shrink(x, sigma)


def shrink(x: Tensor, sigma: float | Tensor) -> Tensor:
    return x / (1 + sigma)


class Shrinker:
    def __call__(self, x: Tensor, strength: float) -> Tensor:
        return shrink(x, strength)


@pytest.mark.parametrize(
    "denoise", [lambda x, s: shrink(x, s), Module(), Shrinker()], ids=["lambda", "module", "object"]
)
def test_denoiser_may_be_anything_that_can_be_called(proximal: Solver, denoise: object) -> None:
    close(proximal(Y, denoise=denoise).x, proximal(Y, denoise=shrink).x, 1e-14)
    assert not torch.allclose(proximal(Y, denoise=denoise).x, proximal(Y, denoise=PRIOR).x)
