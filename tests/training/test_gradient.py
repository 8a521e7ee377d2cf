"""The gradient that a training step applies is the derivative of the loss of its stage; norms follow the weights."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from runs import tiny
from torch import Tensor, nn

from laws import close
from unsnap.algorithms.iteration import States
from unsnap.fixed_point import jfb, neumann, phantom
from unsnap.models import Batch, Equilibrium, Learning
from unsnap.models.equilibrium import EquilibriumMap
from unsnap.networks import CNN, NETWORKS
from unsnap.operators import Snapshot
from unsnap.training import Trainer
from unsnap.training.pool import Entry

UNROLL = 2


class Smooth(nn.Module):
    """0.6 tanh of a convolution that is nearly the identity: a contraction whose Jacobian matters; nine weights."""

    def __init__(self) -> None:
        super().__init__()
        self.settings: dict[str, Any] = {}
        self.kernel = nn.Parameter(0.1 * torch.randn(1, 1, 3, 3))
        with torch.no_grad():
            self.kernel[0, 0, 1, 1] = 1.2

    def forward(self, x: Tensor, sigma: float | Tensor = 0.0) -> Tensor:
        frames = x.reshape(-1, 1, *x.shape[-2:])
        return 0.6 * nn.functional.conv2d(frames, self.kernel, padding=1).tanh().reshape(x.shape)


@pytest.fixture
def begin(tmp_path: Path, clips: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Trainer, Entry]]:
    """A run in float64 whose gradients are not clipped, with one batch of two videos in its pool."""
    monkeypatch.setitem(NETWORKS, "smooth", Smooth)

    def made(**changes: Any) -> tuple[Trainer, Entry]:
        stages = {"gaussian": 0.0, "blend": 0.0, "implicit": 0.5, "unroll": UNROLL, "clip": 1e9, "pool": 1}
        size = {"batch": 2, "crop": 6, "frames": (3,), "network": "smooth", "settings": {}}
        run = Trainer(tiny(clips, **{**stages, **size, **changes}), tmp_path)
        run.model.double()
        run.mean.double()
        drawn = run._renew()
        batch = Batch(drawn.truth.double(), drawn.y.double(), Snapshot(drawn.phi.masks.double()))
        entry = Entry(batch.started(run.model), 0, 1000)
        run.pool.entries = [entry]
        return run, entry

    return made


def log_rmse(x: Tensor, truth: Tensor) -> Tensor:
    """By hand: the mean over the videos of log √(mse + 10⁻⁶)."""
    return torch.stack([(((a - b) ** 2).mean() + 1e-6).sqrt().log() for a, b in zip(x, truth, strict=True)]).mean()


def at_rest(model: Equilibrium, batch: Batch) -> Tensor:
    solution = model(batch.y, batch.phi, start=batch.start, state=batch.state, tol=1e-10, max_iter=200)
    assert bool(solution.converged.all())
    return solution.x.detach()


def unrolled(model: Equilibrium, batch: Batch) -> Tensor:
    f, state = model.bind(batch.y, batch.phi, batch.start), batch.state
    assert state is not None
    for _ in range(UNROLL):
        state = f(state)
    return state[0].detach()


@torch.no_grad()
def differences(run: Trainer, batch: Batch, solve: Callable[[Any, Batch], Tensor], step: float = 1e-5) -> Tensor:
    """The derivative of the loss with respect to every weight, by central differences."""
    model = copy.deepcopy(run.model)

    def moved(weight: Tensor, k: int, by: float) -> Tensor:
        kept = float(weight.view(-1)[k])
        weight.view(-1)[k] = kept + by
        value = log_rmse(solve(model, batch), batch.truth)
        weight.view(-1)[k] = kept
        return value

    learned = [(weight, k) for weight in model.parameters() if weight.requires_grad for k in range(weight.numel())]
    return torch.stack([(moved(*place, step) - moved(*place, -step)) / (2 * step) for place in learned])


def applied(run: Trainer, progress: float) -> Tensor:
    """What one step hands to the optimiser."""
    run.one_step(progress)
    assert run.skipped == 0
    return torch.cat([p.grad.flatten() for p in run.parameters if p.grad is not None])


def test_the_last_stage_applies_the_implicit_gradient(begin: Callable[..., tuple[Trainer, Entry]]) -> None:
    run, entry = begin()
    batch = entry.batch = replace(entry.batch, state=(at_rest(run.model, entry.batch),))
    expected = differences(run, batch, at_rest)
    value = run.model.loss(batch, Learning(jfb(), tol=1e-3, max_iter=15)).value
    (cheap,) = torch.autograd.grad(value, run.parameters)
    assert float((cheap.flatten() - expected).norm() / expected.norm()) > 0.2, "here the Jacobian matters"
    close(applied(run, 1.0), expected, 0.02)  # the adjoint equation is solved to 1 %


@pytest.mark.parametrize(("name", "mode"), [("jfb", jfb()), ("phantom", phantom(UNROLL)), ("neumann", neumann(UNROLL))])
def test_the_last_stage_applies_the_gradient_that_was_chosen(
    begin: Callable[..., tuple[Trainer, Entry]], name: str, mode: Any
) -> None:
    run, entry = begin(gradient=name)
    batch = entry.batch = replace(entry.batch, state=(at_rest(run.model, entry.batch),))
    (expected,) = torch.autograd.grad(
        run.model.loss(batch, Learning(mode, tol=1e-4, max_iter=15)).value, run.parameters
    )
    exact = differences(run, batch, at_rest)
    assert float((expected.flatten() - exact).norm() / exact.norm()) > 0.02, "not the exact one"
    close(applied(run, 1.0), expected.flatten(), 1e-6)


def test_from_afar_the_last_stage_reaches_the_equilibrium(begin: Callable[..., tuple[Trainer, Entry]]) -> None:
    run, entry = begin()
    expected, rest = differences(run, entry.batch, at_rest), at_rest(run.model, entry.batch)
    assert entry.batch.state is not None
    assert float((entry.batch.state[0] - rest).norm() / rest.norm()) > 0.1
    close(applied(run, 1.0), expected, 0.03)
    close(entry.batch.state[0], rest, 5e-3)  # solved to 1e-3 at the end of the run


def test_a_solve_makes_states_as_old_as_it_takes_evaluations(
    begin: Callable[..., tuple[Trainer, Entry]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that nothing is learned from the same few samples again and again once they are at rest."""
    run, entry = begin()
    honest, calls = EquilibriumMap.__call__, []

    def counted(self: EquilibriumMap, state: States) -> States:
        calls.append(torch.is_grad_enabled())
        return honest(self, state)

    monkeypatch.setattr(EquilibriumMap, "__call__", counted)
    run.one_step(1.0)
    assert entry.age == calls.count(False) > UNROLL  # the solve records nothing, what is differentiated does
    before = entry.age
    run.one_step(1.0)
    assert 0 < entry.age - before < before, "the second solve goes on where the first has ended"


def test_the_stage_before_differentiates_through_the_iterations(begin: Callable[..., tuple[Trainer, Entry]]) -> None:
    run, entry = begin()
    expected, reached = differences(run, entry.batch, unrolled), unrolled(run.model, entry.batch)
    close(applied(run, 0.49), expected, 1e-6)
    assert entry.batch.state is not None
    close(entry.batch.state[0], reached)
    assert (entry.age, len(run.pool.entries)) == (UNROLL, 1)


def test_the_penalty_has_a_gradient_of_its_own(begin: Callable[..., tuple[Trainer, Entry]]) -> None:
    """‖Jᵀe‖² / n with the direction e that the run draws; the equilibrium itself is taken as given."""
    run, entry = begin(penalty=3.0)
    batch, rest = entry.batch, at_rest(run.model, entry.batch)
    entry.batch = replace(batch, state=(rest,))
    twin = torch.Generator()
    twin.set_state(run.generator.get_state())
    torch.rand((), generator=twin)  # what kind of step
    torch.randint(1, (), generator=twin)  # which of the pool
    probe = torch.randn(batch.truth.shape, generator=twin).double()
    weight = run.model.network.kernel.detach().clone().requires_grad_()

    def f(x: Tensor) -> Tensor:
        frames = batch.phi.project(x, batch.y).reshape(-1, 1, *x.shape[-2:])
        return 0.6 * nn.functional.conv2d(frames, weight, padding=1).tanh().reshape(x.shape)

    jacobian = torch.autograd.functional.jacobian(f, rest, create_graph=True)
    (pulled,) = torch.autograd.grad(3 * torch.tensordot(probe, jacobian, probe.ndim).square().mean(), weight)
    plain = differences(run, batch, at_rest)
    assert float(pulled.norm()) > 0.2 * float(plain.norm())
    close(applied(run, 1.0), plain + pulled.flatten(), 0.02)


def test_the_solve_becomes_stricter_towards_the_end(begin: Callable[..., tuple[Trainer, Entry]]) -> None:
    run, entry = begin()
    shape = entry.batch.truth.shape
    assert [run._learning(p, shape).tol for p in (0.5, 0.75, 1.0)] == pytest.approx([1e-3, 10**-3.5, 1e-4])


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("progress", [0.2, 1.0])
def test_an_unfolded_model_learns_through_all_its_stages(
    begin: Callable[..., tuple[Trainer, Entry]], shared: bool, progress: float
) -> None:
    run, entry = begin(kind="unfolded", stages=3, shared=shared)
    batch = entry.batch
    expected = differences(run, batch, lambda model, b: model(b.y, b.phi).x)
    assert expected.numel() == (9 if shared else 27)
    assert bool((expected.reshape(-1, 9).norm(dim=1) > 1e-3).all())
    close(applied(run, progress), expected, 1e-6)
    assert batch.start is not None
    assert entry.batch.state is not None
    assert torch.equal(entry.batch.state[0], batch.start), "every step begins at the start"


@pytest.mark.parametrize("kind", ["equilibrium", "unfolded"])
def test_estimated_norms_follow_the_weights(
    tmp_path: Path, clips: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Refined once per step and network; where they are not, they fall behind."""
    honest, calls = CNN.refine, []

    def counted(self: CNN, iterations: int = 1) -> list[float]:
        calls.append(iterations)
        return honest(self, iterations)

    spectral = {"network": "cnn", "settings": {"layers": 2, "channels": 4, "spectral": True, "size": 4}}
    stages = {"kind": kind, "stages": 2, "gaussian": 0.0, "blend": 0.0, "warmup": 1, "crop": 12, "frames": (3,)}
    run = Trainer(tiny(clips, **spectral, **stages), tmp_path)
    networks = [part for part in run.model.modules() if isinstance(part, CNN)]
    assert len(networks) == (2 if kind == "unfolded" else 1)
    for network in networks:
        network.refine(300)
    stale = copy.deepcopy(networks[-1])
    monkeypatch.setattr(CNN, "refine", counted)
    for k in range(40):
        run.one_step(0.2)
        assert calls == [1] * len(networks) * (k + 1)
    monkeypatch.undo()
    for network in networks:
        assert network.refine(0) == pytest.approx(copy.deepcopy(network).refine(500), rel=0.02)
    stale.convs.load_state_dict(networks[-1].convs.state_dict())
    ratios = [a / b for a, b in zip(stale.refine(0), networks[-1].refine(500), strict=True)]
    assert min(ratios) < 0.9
