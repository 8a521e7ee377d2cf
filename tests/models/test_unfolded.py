"""An unfolded model is its stages, one after the other, and its gradient is theirs."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from laws import close, dense, normal, pure, uniform
from unsnap.algorithms import ADMM, GAP, GD, PGD, Iteration, Recurrent
from unsnap.algorithms.admm import ADMMState, admm_step
from unsnap.algorithms.gap import gap_step
from unsnap.algorithms.gd import gd_step
from unsnap.algorithms.pgd import pgd_step
from unsnap.errors import InputError
from unsnap.models import Adjoint, Batch, Unfolded
from unsnap.networks import Capture, Conditioned, WithFeatures
from unsnap.operators import CodedOperator, Multishot, Snapshot

States = tuple[Tensor, ...]
SIGMAS = [0.5, 0.25, 0.125]
KINDS = [GAP(), GD(0.7), PGD(0.9), ADMM(0.3), Recurrent()]
each = pytest.mark.parametrize("iteration", KINDS, ids=str)


class Denoiser(nn.Module):
    """Sees neighbours in space and time, and sigma."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        gain, shift = 0.3 + 0.4 * uniform(2, seed=seed)
        self.gain, self.shift = nn.Parameter(gain), nn.Parameter(0.1 * shift)

    def forward(self, x: Tensor, sigma: float | Tensor) -> Tensor:
        near = 0.5 * x + 0.25 * (x.roll(1, -1) + x.roll(1, -3))
        return self.gain * (near + 0.2 * x.sin()) + self.shift * (1 + sigma)


class Whole(nn.Module):
    """An end-to-end network (x, y, phi)."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.inner = Denoiser(seed)

    def forward(self, x: Tensor, y: Tensor, phi: CodedOperator) -> Tensor:
        return self.inner(phi.project(x, y), 0.2)


class Seeing(Conditioned):
    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.inner = Denoiser(seed)

    def condition(self, capture: Capture) -> Callable[[Tensor, float | Tensor], Tensor]:
        context = self.inner.gain * capture.start + 0.1 * capture.masks
        return lambda x, sigma: self.inner(x, sigma) + context


class Passing(WithFeatures):
    """Passes on what it was passed, with the video's cosine added."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.inner = Denoiser(seed)

    def forward(self, x: Tensor, sigma: float | Tensor, features: Tensor | None) -> tuple[Tensor, Tensor]:
        passed = torch.zeros_like(x) if features is None else features
        return self.inner(x, sigma) + 0.3 * passed, passed + x.cos()


def network(iteration: Iteration, seed: int = 0) -> nn.Module:
    return Whole(seed) if iteration.whole else Denoiser(seed)


def model(iteration: Iteration, own: bool = True, **settings: Any) -> Unfolded:
    networks = [network(iteration, seed) for seed in range(3)] if own else network(iteration)
    return Unfolded(iteration, networks, SIGMAS, **settings).double()


def stage(iteration: Iteration, state: States, y: Tensor, phi: CodedOperator, net: Any, sigma: Any) -> States:
    """One stage for one mask set, from the steps of `algorithms/`."""
    size = float(torch.linalg.matrix_norm(dense(phi, phi.video).detach(), 2)) ** 2
    match iteration:
        case GAP():
            return (gap_step(state[0], y, phi, net, sigma),)
        case PGD(alpha):
            return (pgd_step(state[0], y, phi, net, sigma, alpha / size),)
        case GD(alpha):
            return (gd_step(state[0], y, phi, lambda z: size * (z - net(z, sigma)), alpha / size),)
        case ADMM(rho):
            return admm_step(ADMMState(*state), y, phi, net, sigma, rho * size)
        case _:
            return (net(state[0], y, phi),)


def by_hand(
    m: Unfolded, y: Tensor, phi: CodedOperator, sigmas: Any = SIGMAS, start: Tensor | None = None
) -> list[Tensor]:
    """The videos of all stages, the start first."""
    x = phi.A_dagger(y) if start is None else start
    state = (x, torch.zeros_like(x)) if isinstance(m.iteration, ADMM) else (x,)
    videos = [x]
    for k, sigma in enumerate(sigmas):
        state = stage(m.iteration, state, y, phi, m.networks[k % len(m.networks)], sigma)
        videos.append(state[0])
    return videos


CAMERAS: dict[str, CodedOperator] = {
    "shared": Snapshot(uniform(3, 5, 4)),
    "own": Snapshot(uniform(2, 3, 5, 4) * torch.tensor([0.01, 255]).double().reshape(2, 1, 1, 1)),
    "shots": Multishot(uniform(2, 3, 5, 4)),
}


@each
@pytest.mark.parametrize("camera", CAMERAS)
@pytest.mark.parametrize("own", [True, False], ids=["own weights", "shared weights"])
@torch.no_grad()
def test_the_model_is_its_stages(iteration: Iteration, camera: str, own: bool) -> None:
    phi, m, seen = CAMERAS[camera], model(iteration, own), []
    y = phi.A(uniform(2, 3, 5, 4, seed=1))
    solution = m(y, phi, callback=lambda k, x, residual: seen.append((k, x, residual)))
    assert [k for k, _, _ in seen] == [1, 2, 3]
    for n in range(2):
        videos = by_hand(m, y[n], phi.select(n))
        close(solution.x[n], videos[-1])
        for k, x, residual in seen:
            close(x[n], videos[k])
            close(residual[n], (videos[k] - videos[k - 1]).norm() / videos[k].norm())
    assert torch.equal(solution.residual, torch.stack([r for _, _, r in seen]))
    assert bool(solution.converged.all())


@torch.no_grad()
def test_one_whole_stage_is_an_end_to_end_network() -> None:
    phi, net = CAMERAS["shared"], Whole()
    y = uniform(2, 5, 4)
    assert torch.equal(Unfolded(Recurrent(), net, [0.0])(y, phi).x, net(phi.A_dagger(y), y, phi))


@torch.no_grad()
def test_a_conditioned_network_is_told_the_capture_with_the_models_start() -> None:
    phi, net, y = CAMERAS["shared"], Seeing(), uniform(2, 5, 4)
    m, start = Unfolded(GAP(), net, SIGMAS, start=Adjoint()).double(), Adjoint()(y, phi)
    denoise, x = net.condition(Capture(y, phi, start)), start
    for sigma in SIGMAS:
        x = gap_step(x, y, phi, denoise, sigma)
    close(m(y, phi).x, x)
    close(m(y, phi, start=start).x, x)
    assert float((m(y, phi, start=0.9 * start).x - x).norm()) > 1e-3


@each
def test_gradients_are_those_of_the_stages(iteration: Iteration) -> None:
    """Learned sigmas included; with respect to weights also by finite differences."""
    m, phi = model(iteration, learn_sigmas=True), CAMERAS["shared"]
    y, target = phi.A(uniform(2, 3, 5, 4, seed=1)), uniform(2, 3, 5, 4, seed=2)
    parameters = [p for name, p in m.named_parameters() if not (iteration.whole and name == "sigmas")]

    def loss(x: Tensor) -> Tensor:
        return (x - target).square().sum()

    found = torch.autograd.grad(loss(m(y, phi).x), parameters)
    expected = torch.autograd.grad(loss(by_hand(m, y, phi, m.sigmas)[-1]), parameters)
    for a, b in zip(found, expected, strict=True):
        close(a, b)
        assert float(a.abs().min()) > 0
    directions = [normal(*p.shape, seed=k) for k, p in enumerate(parameters)]
    slope = sum(float((a * d).sum()) for a, d in zip(found, directions, strict=True))
    values = []
    with torch.no_grad():
        for h in (1e-6, -2e-6):
            for p, d in zip(parameters, directions, strict=True):
                p.add_(h * d)
            values.append(float(loss(m(y, phi).x)))
    assert slope == pytest.approx((values[0] - values[1]) / 2e-6, rel=1e-6)


@each
def test_shared_weights_are_equal_weights_and_add_up_their_gradients(iteration: Iteration) -> None:
    shared, phi = model(iteration, own=False), CAMERAS["shared"]
    own = Unfolded(iteration, [copy.deepcopy(shared.networks[0]) for _ in SIGMAS], SIGMAS).double()
    y = phi.A(uniform(2, 3, 5, 4, seed=1))
    for m in (shared, own):
        m(y, phi).x.square().sum().backward()
    close(own(y, phi).x.detach(), shared(y, phi).x.detach())
    for name, parameter in shared.networks[0].named_parameters():
        parts = torch.stack([net.get_parameter(name).grad for net in own.networks])
        close(parameter.grad, parts.sum(0))
        assert float(parts.abs().min()) > 0
    assert len(own.networks) == 3
    assert len(shared.networks) == 1


def test_sigmas_learn_only_where_they_are_to() -> None:
    for learn in (False, True):
        m = model(GAP(), learn_sigmas=learn)
        m(uniform(5, 4), CAMERAS["shared"]).x.sum().backward()
        assert (m.sigmas.grad is not None) == learn
        close(m.sigmas.detach(), torch.tensor(SIGMAS).double())


@pytest.mark.parametrize("own", [True, False])
@torch.no_grad()
def test_features_go_from_stage_to_stage(own: bool) -> None:
    """And not from call to call."""
    nets = [Passing(seed) for seed in range(3)] if own else [Passing()]
    m, phi, y = Unfolded(GAP(), nets, SIGMAS).double(), CAMERAS["shared"], uniform(2, 5, 4)
    x, passed = phi.A_dagger(y), torch.zeros(2, 3, 5, 4).double()
    for k, sigma in enumerate(SIGMAS):
        v = phi.project(x, y)
        x, passed = nets[k % len(nets)].inner(v, sigma) + 0.3 * passed, passed + v.cos()
    close(m(y, phi).x, x)
    pure(lambda y: m(y, phi).x, y)
    alone = Unfolded(GAP(), [net.inner for net in nets], SIGMAS).double()
    assert float((alone(y, phi).x - x).norm()) > 1e-2, "they decide something"


@each
@pytest.mark.parametrize("lead", [(), (3,), (2, 3), (1, 1)])
@torch.no_grad()
def test_every_field_has_the_leading_axes_of_y(iteration: Iteration, lead: tuple[int, ...]) -> None:
    phi, m, shapes = CAMERAS["shared"], model(iteration), []
    y = uniform(*lead, 5, 4)
    flat = m(y.reshape(-1, 5, 4), phi)
    solution = m(y, phi, callback=lambda k, x, residual: shapes.append((x.shape, residual.shape)))
    assert torch.equal(solution.x, flat.x.reshape(*lead, 3, 5, 4))
    assert torch.equal(solution.residual, flat.residual.reshape(3, *lead))
    assert torch.equal(solution.converged, flat.converged.reshape(lead))
    assert torch.equal(solution.diverged, flat.diverged.reshape(lead))
    assert set(shapes) == {((*lead, 3, 5, 4), lead)}


@torch.no_grad()
def test_a_sample_that_breaks_is_told_and_alone() -> None:
    phi, y = CAMERAS["shared"], uniform(3, 5, 4)
    m = Unfolded(GAP(), _Breaking(), SIGMAS).double()
    good = m(y, phi)
    y[1] += 1e9
    bad = m(y, phi)
    assert bad.diverged.tolist() == [False, True, False]
    assert bad.converged.tolist() == [True, False, True]
    assert torch.equal(bad.x[::2], good.x[::2])


@torch.no_grad()
def test_a_stage_that_hides_what_broke_before_it_is_no_cure() -> None:
    class Forgets(nn.Module):
        def forward(self, x: Tensor, sigma: float | Tensor) -> Tensor:
            return torch.zeros_like(x)

    y = uniform(3, 5, 4)
    y[1] += 1e9
    found = Unfolded(GAP(), [_Breaking().double(), Forgets(), Forgets()], [0.1] * 3)(y, CAMERAS["shared"])
    assert bool(found.x.isfinite().all())
    assert found.diverged.tolist() == [False, True, False]


class _Breaking(Denoiser):
    def forward(self, x: Tensor, sigma: float | Tensor) -> Tensor:
        return torch.where(x.abs().amax((-3, -2, -1), keepdim=True) > 1e6, torch.nan, super().forward(x, sigma))


@each
@torch.no_grad()
def test_the_scale_of_the_masks_cancels(iteration: Iteration) -> None:
    masks, m = uniform(3, 5, 4), model(iteration)
    y = uniform(2, 5, 4, seed=1)
    for c in (1e-4, 255.0):
        close(m(c * y, Snapshot(c * masks)).x, m(y, Snapshot(masks)).x, 1e-9)


@each
@pytest.mark.parametrize("known", [False, True])
def test_the_loss_is_that_of_the_last_stage(iteration: Iteration, known: bool) -> None:
    """From the model's start, or from what the batch knows it to be; the state stays there."""
    m, phi, truth = model(iteration), CAMERAS["shared"], uniform(3, 3, 5, 4, seed=1)
    y = phi.A(truth)
    start = uniform(3, 3, 5, 4, seed=2) if known else phi.A_dagger(y)
    loss = m.loss(Batch(truth, y, phi, start if known else None))
    errors = (by_hand(m, y, phi, start=start)[-1] - truth).square().mean((-3, -2, -1))
    expected = ((errors + 1e-6).log() / 2).mean()
    close(loss.value.detach(), expected.detach())
    parameters = list(m.networks.parameters())
    for a, b in zip(*(torch.autograd.grad(v, parameters) for v in (loss.value, expected)), strict=True):
        close(a, b)
    close(loss.state[0], start)
    assert len(loss.state) == (2 if isinstance(iteration, ADMM) else 1)
    assert not any(part.requires_grad for part in loss.state)


@pytest.mark.parametrize("what", ["y", "masks"])
def test_gradients_that_leave_the_start_out_are_warned_of(what: str) -> None:
    """What is left is the derivative with the start held where it is."""
    m, inputs, k = model(GAP()), [uniform(1, 5, 4), uniform(3, 5, 4, seed=1) + 0.1], ["y", "masks"].index(what)
    start = Snapshot(inputs[1]).A_dagger(inputs[0])
    tracked = [t.clone().requires_grad_(n == k) for n, t in enumerate(inputs)]
    with pytest.warns(RuntimeWarning, match="leaves out the way through the start"):
        value = m(tracked[0], Snapshot(tracked[1])).x.sin().sum()
    (slope,) = torch.autograd.grad(value, tracked[k])
    step = normal(*inputs[k].shape, seed=3)
    with torch.no_grad():
        moved = ([*inputs[:k], inputs[k] + h * step, *inputs[k + 1 :]] for h in (1e-6, -1e-6))
        values = [float(m(y, Snapshot(masks), start=start).x.sin().sum()) for y, masks in moved]
    assert float((slope * step).sum()) == pytest.approx((values[0] - values[1]) / 2e-6, rel=1e-5)


@pytest.mark.parametrize(
    ("networks", "sigmas"),
    [(2, SIGMAS), (0, SIGMAS), (1, []), (4, SIGMAS), (1, 0.1), (1, torch.zeros(2, 2))],
)
def test_stages_that_do_not_fit_are_named(networks: int, sigmas: Any) -> None:
    with pytest.raises(ValueError, match="needs one sigma per stage and one network or one per stage, got sigmas of"):
        Unfolded(GAP(), [Denoiser() for _ in range(networks)], sigmas)


def test_functions_are_no_networks_of_stages() -> None:
    for networks in (lambda x, sigma: x, [lambda x, sigma: x]):
        with pytest.raises(InputError, match="must be modules"):
            Unfolded(GAP(), networks, [0.1])  # type: ignore[arg-type]


def test_a_start_of_another_size_is_named() -> None:
    phi = Snapshot(uniform(3, 6, 5))
    with pytest.raises(InputError, match=r"the start must hold videos \(2, 3, 6, 5\), got shape \(3, 6, 5\)"):
        Unfolded(GAP(), Denoiser(), [0.1])(uniform(2, 6, 5), phi, start=uniform(3, 6, 5))


def test_the_gradient_from_a_start_that_is_given() -> None:
    """The way to learn masks: no warning, and the derivative that finite differences show."""
    masks, y = uniform(3, 6, 5).requires_grad_(), uniform(2, 6, 5)
    model = Unfolded(GAP(), Denoiser(), SIGMAS)

    def last(masks: Tensor) -> Tensor:
        phi = Snapshot(masks)
        return model(y, phi, start=phi.A_dagger(y)).x

    assert torch.autograd.gradcheck(last, (masks,), fast_mode=True)
