"""Every map rests where its equation says, for any camera, and the gradient there is the gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from laws import close, normal, pure, uniform
from unsnap.algorithms import ADMMState, admm_step, gap_step, gd_step, pgd_step
from unsnap.fixed_point import FixedPoint, anderson, broyden, implicit, jfb, neumann, phantom, picard, unroll
from unsnap.models.equilibrium import STARTS, Equilibrium, Step
from unsnap.networks import BidirectionalRNN, Certified
from unsnap.operators import Snapshot

STEPS = [GAP(), GD(0.7), PGD(0.9), ADMM(0.3), Recurrent()]
DENOISING = STEPS[:4]
each = pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
denoising = pytest.mark.parametrize("step", DENOISING, ids=lambda step: step.name)


class Denoiser(nn.Module):
    """A contraction with weights that sees neighbours in space and time: any (..., T, H, W), and sigma."""

    def __init__(self, gain: float = 0.4) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.tensor(gain, dtype=torch.float64))
        self.shift = nn.Parameter(torch.tensor(0.1, dtype=torch.float64))
        self.frames_seen = 0

    def forward(self, x: Tensor, sigma: float | Tensor) -> Tensor:
        self.frames_seen += x.shape[:-2].numel()
        level = sigma.reshape(-1, 1, 1, 1) if isinstance(sigma, Tensor) and sigma.ndim else sigma
        near = 0.5 * x + 0.25 * (x.roll(1, -1) + x.roll(1, -3 % x.ndim))
        return self.gain.to(x) * (near + 0.2 * x.sin()) + self.shift.to(x) + 0.1 * level


class Recurrence(nn.Module):
    """A whole map (x, y, phi) that contracts."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Denoiser()

    def forward(self, x: Tensor, y: Tensor, phi: Snapshot) -> Tensor:
        return self.inner(phi.project(x, y), 0.0)


def model(step: Step, **settings: Any) -> Equilibrium:
    settings = {"tol": 1e-10, "max_iter": 500} | settings
    if step.name == "rnn":
        return Equilibrium(step, Recurrence(), **settings)
    return Equilibrium(step, Denoiser(), settings.pop("sigma", 0.3), **settings)


def by_hand(m: Equilibrium, state: tuple[Tensor, ...], y: Tensor, masks: Tensor) -> tuple[Tensor, ...]:
    """f(state) for one snapshot, from the steps of `algorithms/`."""
    phi, network, s, x = Snapshot(masks), m.network, m.step.strength, state[0]
    size = float(masks.square().sum(-3).max()) or 1.0
    if m.step.name == "gap":
        return (gap_step(x, y, phi, network, 0.3),)
    if m.step.name == "pgd":
        return (pgd_step(x, y, phi, network, 0.3, s / size),)
    if m.step.name == "gd":
        return (gd_step(x, y, phi, lambda z: size * (z - network(z, 0.3)), s / size),)
    if m.step.name == "admm":
        return admm_step(ADMMState(*state), y, phi, network, 0.3, s * size)
    return (network(x, y, phi),)


BINARY = (uniform(3, 5, 4) > 0.5).double()
DEAD = BINARY.clone()
DEAD[:, 2], DEAD[:, :, 1] = 0, 0
CAMERAS: dict[str, tuple[tuple[int, ...], Tensor]] = {
    "one snapshot": ((), BINARY),
    "batch": ((3,), BINARY),
    "two axes": ((2, 2), BINARY),
    "grey": ((2,), uniform(3, 5, 4, seed=1)),
    "0-255": ((2,), (255 * uniform(3, 5, 4, seed=2)).round()),
    "negative": ((2,), normal(3, 5, 4, seed=3)),
    "dead pixels": ((2,), DEAD),
    "nothing measured": ((2,), torch.zeros(3, 5, 4).double()),
    "masks per sample": ((3,), uniform(3, 3, 5, 4, seed=4) * torch.tensor([0.01, 1, 255]).reshape(3, 1, 1, 1)),
    "masks per sample, two axes": ((2, 3), uniform(3, 3, 5, 4, seed=4)),
    "masks of one sample": ((2,), uniform(1, 3, 5, 4, seed=5)),
    "one frame": ((2,), uniform(1, 5, 4, seed=6) + 0.1),
    "nine frames, one pixel": ((1,), uniform(9, 1, 1, seed=7)),
}


@each
@pytest.mark.parametrize("camera", CAMERAS)
@torch.no_grad()
def test_the_equilibrium_satisfies_its_equation(step: Step, camera: str) -> None:
    lead, masks = CAMERAS[camera]
    phi, m = Snapshot(masks), model(step)
    y = phi.A(uniform(*lead, *masks.shape[-3:], seed=9))
    solution = m(y, phi)
    assert solution.x.shape == (*lead, *masks.shape[-3:])
    assert bool(solution.converged.all())
    sets = masks.expand(*lead, *masks.shape[-3:]).reshape(-1, *masks.shape[-3:])
    for n, snapshot in enumerate(y.reshape(-1, *y.shape[-2:])):
        state = tuple(part[n] for part in solution.state)
        for value, part in zip(by_hand(m, state, snapshot, sets[n]), state, strict=True):
            close(value, part, 1e-8, scale=solution.x.flatten())
    close(solution.state[0].reshape(solution.x.shape), solution.x)


@each
def test_samples_are_alone(step: Step) -> None:
    """Whatever the neighbours: other masks, brighter ones, slower ones."""
    masks = uniform(3, 3, 5, 4) * torch.tensor([0.01, 1, 255]).reshape(3, 1, 1, 1)
    y = Snapshot(masks).A(uniform(3, 3, 5, 4, seed=1)) * torch.tensor([1, 30, 0.1]).reshape(3, 1, 1)
    m = model(step, tol=1e-6)
    with torch.no_grad():
        together = m(y, Snapshot(masks))
        for n in range(3):
            alone = m(y[n], Snapshot(masks[n]))
            close(alone.x, together.x[n], 1e-10)
            assert int(alone.steps) == int(together.steps[n])


@each
def test_the_scale_of_the_masks_cancels(step: Step) -> None:
    masks, m = uniform(3, 5, 4), model(step)
    y = Snapshot(masks).A(uniform(2, 3, 5, 4, seed=1))
    with torch.no_grad():
        plain = m(y, Snapshot(masks)).x
        for c in (1e-4, 255.0):
            close(m(c * y, Snapshot(c * masks)).x, plain, 1e-8)


@each
@pytest.mark.parametrize("solver", [picard(), anderson(), anderson(safeguard=0.9), broyden()], ids=str)
def test_solvers_agree(step: Step, solver: Any) -> None:
    phi = Snapshot(uniform(3, 5, 4))
    y = phi.A(uniform(2, 3, 5, 4, seed=1))
    with torch.no_grad():
        close(model(step, solver=solver)(y, phi).x, model(step)(y, phi).x, 1e-7)


def gradients(m: Equilibrium, y: Tensor, phi: Snapshot, target: Tensor) -> Tensor:
    loss = (m(y, phi).x - target).square().sum()
    grads = torch.autograd.grad(loss, list(m.network.parameters()))
    return torch.cat([g.flatten() for g in grads])


@each
def test_the_implicit_gradient_is_that_of_all_iterations(step: Step) -> None:
    phi, target = Snapshot(uniform(2, 4, 4) + 0.1), uniform(2, 2, 4, 4, seed=2)
    y = phi.A(uniform(2, 2, 4, 4, seed=1))
    exact = model(step, tol=1e-13, backward=implicit(tol=1e-13, max_iter=500))
    close(gradients(exact, y, phi, target), gradients(model(step, backward=unroll(400)), y, phi, target), 1e-7)


@pytest.mark.parametrize("step", [GAP(), ADMM(0.5)], ids=lambda step: step.name)
def test_the_same_with_a_real_network(step: Step) -> None:
    torch.manual_seed(0)
    net = Certified(blocks=1, channels=4, hidden=4, contraction=0.6).double()
    phi, target = Snapshot(uniform(2, 4, 4) + 0.1), uniform(1, 2, 4, 4, seed=2)
    y = phi.A(uniform(1, 2, 4, 4, seed=1))

    def gradient(m: Equilibrium) -> Tensor:
        loss = (m(y, phi).x - target).square().sum()
        return torch.cat([g.flatten() for g in torch.autograd.grad(loss, [net.space[0].weight, net.space[0].bias])])

    exact = Equilibrium(step, net, tol=1e-13, max_iter=500, backward=implicit(tol=1e-13, max_iter=500))
    close(gradient(exact), gradient(Equilibrium(step, net, backward=unroll(300))), 1e-7)


def test_gradients_reach_the_snapshot_the_masks_and_sigma() -> None:
    """As finite differences say."""
    m = model(PGD(0.8), sigma=nn.Parameter(torch.tensor(0.3, dtype=torch.float64)), tol=1e-13,
              backward=implicit(tol=1e-13, max_iter=500))  # fmt: skip
    assert any(p is m.sigma for p in m.parameters())
    masks, y = (uniform(2, 3, 3) + 0.1).requires_grad_(), uniform(1, 3, 3, seed=1).requires_grad_()
    weights = uniform(1, 2, 3, 3, seed=2)

    def value(masks: Tensor, y: Tensor, sigma: Tensor) -> Tensor:
        m.sigma = nn.Parameter(sigma) if not sigma.requires_grad else m.sigma
        return (weights * m(y, Snapshot(masks)).x).sum()

    inputs = (masks, y, m.sigma)
    slopes = torch.autograd.grad(value(*inputs), inputs)
    for k, slope in enumerate(slopes):
        ahead, back = ([t.detach().clone() for t in inputs] for _ in range(2))
        step = normal(*inputs[k].shape, seed=5)
        ahead[k] += 1e-5 * step
        back[k] -= 1e-5 * step
        with torch.no_grad():
            expected = float(value(*ahead) - value(*back)) / 2e-5
        assert float((slope * step).sum()) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    "backward", [implicit(), neumann(5), jfb(), phantom(3, 0.5), unroll(10)], ids=lambda b: type(b).__name__
)
@each
def test_a_training_step_lowers_the_loss(step: Step, backward: Any) -> None:
    phi, target = Snapshot(uniform(2, 4, 4) + 0.1), uniform(2, 2, 4, 4, seed=2)
    y, m = phi.A(target), model(step, backward=backward)
    optimiser = torch.optim.SGD(m.parameters(), lr=1e-3)
    losses = []
    for _ in range(3):
        optimiser.zero_grad()
        loss = (m(y, phi).x - target).square().mean()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[2] < losses[1] < losses[0]


@each
def test_a_warm_start_costs_fewer_evaluations(step: Step) -> None:
    phi, m = Snapshot(uniform(3, 5, 4)), model(step, tol=1e-8)
    y = phi.A(uniform(2, 2, 3, 5, 4, seed=1))
    with torch.no_grad():
        cold = m(y, phi)
        assert m(y, phi, state=cold.state).evaluations == 1
        moved = y * (1 + 1e-4)
        near = m(moved, phi, state=cold.state)
        assert near.evaluations < m(moved, phi).evaluations
        video = m(y, phi, state=cold.x)
        close(video.x, cold.x, 1e-6)
        assert video.evaluations == 1 or step.name == "admm"  # a video says nothing of the dual


@each
def test_the_state_has_a_part_for_every_variable(step: Step) -> None:
    phi, m = Snapshot(uniform(3, 5, 4)), model(step)
    y = phi.A(uniform(2, 3, 5, 4))
    with torch.no_grad():
        solution = m(y, phi)
    count = 2 if step.name == "admm" else 1
    assert [part.shape for part in solution.state] == [(2, 3, 5, 4)] * count
    if step.name == "admm":  # at rest x = v: the dual is what the denoiser takes away
        v, w = solution.state
        close(m.network(v + w, 0.3).detach(), v, 1e-8)
        assert float(w.norm()) > 1e-3
    with pytest.raises(ValueError, match=f"state of {step.name} must be a video"):
        m(y, phi, state=(*solution.state, y))
    with pytest.raises(ValueError, match="must be a video"):
        m(y, phi, state=solution.x[:, :2])


def test_finished_samples_leave() -> None:
    """The network sees as many frames as the steps of the samples add up to, and not one more."""
    masks = uniform(4, 3, 5, 4)
    y = Snapshot(masks).A(uniform(4, 3, 5, 4, seed=1))
    m = model(GAP(), sigma=torch.tensor([0.0, 0.1, 0.2, 0.3]), solver=picard(), tol=1e-6)
    with torch.no_grad():
        start = m(y, Snapshot(masks)).x
        start[0] += 1
        m.network.frames_seen = 0
        solution = m(y, Snapshot(masks), state=start)
    assert solution.steps.tolist() == [int(solution.steps[0]), 1, 1, 1]
    assert int(solution.steps[0]) > 5
    assert m.network.frames_seen == 3 * int(solution.steps.sum())


def test_sigma_per_snapshot() -> None:
    phi = Snapshot(uniform(3, 5, 4))
    y, levels = phi.A(uniform(2, 3, 3, 5, 4)), uniform(2, 3, seed=1)
    with torch.no_grad():
        together = model(ADMM(), sigma=levels)(y, phi).x
        for i in range(2):
            for j in range(3):
                close(model(ADMM(), sigma=float(levels[i, j]))(y[i, j], phi).x, together[i, j], 1e-8)


@pytest.mark.parametrize("sigma", [[0.2, 0.1], (0.1,), range(3), lambda k: 0.9**k, iter([1.0]), "0.1", None])
def test_a_schedule_is_refused_with_the_reason(sigma: Any) -> None:
    with pytest.raises(ValueError, match=r"sigma must be one number.*schedule has no equilibrium.*plug-and-play"):
        Equilibrium(GAP(), Denoiser(), sigma)


def test_a_schedule_in_a_tensor_is_refused_too() -> None:
    phi = Snapshot(uniform(3, 5, 4))
    m = model(GAP(), sigma=torch.linspace(0.2, 0.1, 7))
    with pytest.raises(ValueError, match=r"one per snapshot \(2,\), got \(7,\).*no equilibrium"):
        m(phi.A(uniform(2, 3, 5, 4)), phi)


@pytest.mark.parametrize("sigma", [1, np.float32(0.5), np.float64(0.5), torch.tensor(0.5), torch.tensor([0.5])])
def test_any_single_number_is_a_sigma(sigma: Any) -> None:
    phi = Snapshot(uniform(3, 5, 4))
    y = phi.A(uniform(2, 3, 5, 4))
    with torch.no_grad():
        close(model(GAP(), sigma=sigma)(y, phi).x, model(GAP(), sigma=float(sigma))(y, phi).x, 1e-8)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m, y, phi: m(y, phi, tol=-1.0), "tol must be"),
        (lambda m, y, phi: m(y, phi, max_iter=0), "max_iter must be"),
        (lambda m, y, phi: m(y[:, 1:], phi), r"snapshot must end in \(5, 4\)"),
        (lambda m, y, phi: m(y, Snapshot(uniform(3, 3, 5, 4))), "one set for all snapshots or one for each"),
        (lambda m, y, phi: Step("sgd"), "step must be one of gap"),
        (lambda m, y, phi: ADMM(0.0), "strength must be a number > 0"),
        (lambda m, y, phi: Equilibrium(GAP(), lambda x, s: x[..., 1:])(y, phi), "f must return what it is given"),
        (lambda m, y, phi: Equilibrium(GAP(), lambda x, s: x.float())(y, phi), "f must return what it is given"),
        (lambda m, y, phi: Equilibrium(GAP(), lambda x, s: x * torch.nan)(y, phi), "NaN or infinite values at z0"),
    ],
)
def test_mistakes_are_named(call: Callable[..., Any], message: str) -> None:
    phi = Snapshot(uniform(3, 5, 4))
    with pytest.raises(ValueError, match=message):
        call(model(GAP()), phi.A(uniform(2, 3, 5, 4)), phi)


def test_the_callback_sees_every_evaluation() -> None:
    phi, seen = Snapshot(uniform(3, 5, 4)), []
    y = phi.A(uniform(2, 1, 3, 5, 4))
    with torch.no_grad():
        solution = model(ADMM())(y, phi, callback=lambda k, x, r: seen.append((k, x, r)))
    assert [k for k, _, _ in seen] == list(range(1, solution.evaluations + 1))
    assert {tuple(x.shape) for _, x, _ in seen} == {(2, 1, 3, 5, 4)}
    close(torch.stack([r for _, _, r in seen]), solution.residual)
    close(seen[-1][1], solution.x)


def test_any_function_is_a_network_and_inference_records_nothing() -> None:
    phi = Snapshot(uniform(3, 5, 4))
    y = phi.A(uniform(2, 3, 5, 4))
    solution = Equilibrium(GAP(), lambda x, sigma: 0.5 * x + 0.1)(y, phi)
    assert not solution.x.requires_grad
    with torch.no_grad():
        assert model(GAP())(y, phi).x.grad_fn is None
    m = model(GAP())
    assert m(y, phi).x.requires_grad
    m.network.frames_seen = 0
    with torch.no_grad():
        quiet: FixedPoint = m(y, phi)
    assert m.network.frames_seen <= 6 * quiet.evaluations  # nothing was evaluated once more for a gradient
    assert quiet.backward.evaluations == 0


@denoising
def test_a_model_is_a_pure_function(step: Step) -> None:
    phi, m = Snapshot(uniform(3, 5, 4)), model(step)
    with torch.no_grad():
        pure(lambda y: m(y, phi).x, phi.A(uniform(2, 3, 5, 4)))


@pytest.mark.parametrize("name", STARTS)
def test_the_start_does_not_decide_a_contraction(name: str) -> None:
    phi = Snapshot(uniform(3, 8, 8))
    y = phi.A(uniform(2, 3, 8, 8, seed=1))
    with torch.no_grad():
        start = STARTS[name](y, phi)
        solution = model(GAP(), start=STARTS[name])(y, phi)
        close(solution.x, model(GAP())(y, phi).x, 1e-8)
    assert start.shape == solution.x.shape


@pytest.mark.parametrize("frames", [1, 2, 5])
def test_the_bidirectional_recurrence_rests_for_any_number_of_frames(frames: int) -> None:
    torch.manual_seed(0)
    net, phi = BidirectionalRNN(4).double(), Snapshot(uniform(frames, 6, 5) + 0.1)
    with torch.no_grad():
        net.leave.weight.mul_(0.1)
        y = phi.A(uniform(2, frames, 6, 5, seed=1))
        solution = Equilibrium(Recurrent(), net, tol=1e-7, max_iter=300)(y, phi)
        value = net(solution.x, y, phi)
        measured = (value - solution.x).flatten(1).norm(dim=1) / value.flatten(1).norm(dim=1)
    close(measured, solution.best, 1e-3)
