"""Certificates under attack: hundreds of hostile cases (masks, snapshot, start), hostile weights, searched points.

And the paper's assumption, Lip(D − I) < 1, which proves nothing: explicit divergence, and its own network.
"""

from __future__ import annotations

from copy import deepcopy
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from laws import forward_mode, normal, seeded, uniform
from unsnap.algorithms import ADMM, GAP, GD, PGD, AcceleratedGAP, Iteration, Recurrent, gap_step
from unsnap.fixed_point import FixedPoint, anderson, broyden, picard, unroll
from unsnap.fixed_point.rates import describe
from unsnap.fixed_point.solver import Solver
from unsnap.models import Equilibrium, TotalVariation
from unsnap.models.stability import certify, lipschitz, spectral_radius
from unsnap.networks import CNN, BidirectionalRNN, Capture, Certified, GradientStep, build
from unsnap.networks.foreign import read_checkpoint
from unsnap.operators import Snapshot
from unsnap.simulate import render

SHAPE = (3, 6, 6)
SMALL: dict[str, Any] = {"blocks": 2, "channels": 4, "hidden": 6}
WEIGHTS = ("random", "huge", "sparse", "time", "trained")
PUBLISHED = Path(__file__).parents[2] / "../shared/data/weights"


class Cases(NamedTuple):
    masks: Tensor
    y: Tensor
    start: Tensor

    def to(self, dtype: torch.dtype) -> tuple[Tensor, Snapshot, Tensor]:
        return self.y.to(dtype), Snapshot(self.masks.to(dtype)), self.start.to(dtype)

    def rows(self, rows: slice) -> Cases:
        return Cases(*(part[rows] for part in self))


C = 0.95
"""The default contraction: the model that claims to arrive."""


@cache
def network(kind: str, **settings: Any) -> Certified:
    """Weights nobody would choose but an attacker."""
    torch.manual_seed(WEIGHTS.index(kind))
    net = Certified(**SMALL, temporal=kind == "time", **{"contraction": None, **settings}).double()
    with torch.no_grad():
        for block in [*net.space, *net.time]:
            block.bias.copy_(0.3 * torch.randn_like(block.bias))
            block.log_q.add_(3)  # as far from the identity as the bound allows
            if kind == "huge":
                block.weight.mul_(100)
            if kind == "sparse":
                block.weight.mul_(torch.rand_like(block.weight) > 0.8)
            if kind == "trained":
                block.log_q.add_(torch.randn_like(block.log_q))
    if kind == "trained":
        _train_against(net)
    return net.requires_grad_(False).eval()


def _train_against(net: Certified) -> None:
    """A few steps of training that make the residual after four iterations as large as it will go."""
    y, phi, x = random_cases(4, 99).to(torch.float64)
    optimiser = torch.optim.Adam(net.parameters(), lr=0.05)
    for _ in range(15):
        optimiser.zero_grad()
        (-_late_residual(net, y, phi, x).log().mean()).backward()
        optimiser.step()


def _late_residual(net: Certified, y: Tensor, phi: Snapshot, x: Tensor) -> Tensor:
    """‖f(x_3) − x_3‖ / ‖f(x_0) − x_0‖, per sample."""
    sizes = []
    for _ in range(4):
        new = gap_step(x, y, phi, net, 0.0)
        sizes.append(((new - x).flatten(1).square().sum(1) + 1e-18).sqrt())
        x = new
    return sizes[-1] / sizes[0]


def random_cases(count: int, seed: int) -> Cases:
    """`count` of each kind of masks: with true, black, negated and absurd snapshots, from black to far-off starts."""
    r = uniform(count, *SHAPE, seed=seed)
    binary = (r > 0.5).double()
    dead = binary * (uniform(count, 1, *SHAPE[1:], seed=seed + 1) > 0.3)
    masks = torch.cat([binary, dead, torch.zeros_like(r), torch.ones_like(r), r, 2 * r - 1, (255 * r).round()])
    total = len(masks)
    video = uniform(total, *SHAPE, seed=seed + 2)
    peak = masks.square().sum(1).amax((-2, -1), keepdim=True).sqrt().clamp(min=1)
    true, absurd = (masks * video).sum(1), 10 * peak * normal(total, *SHAPE[1:], seed=seed + 3)
    variants = torch.stack([true, 0 * true, -true, absurd, true + 0.1 * absurd])
    y = variants[torch.arange(total) % 5, torch.arange(total)]
    scale = torch.tensor([0.0, 1.0, 100.0]).double()[torch.arange(total) % 3].reshape(-1, 1, 1, 1)
    return Cases(masks, y, scale * normal(total, *SHAPE, seed=seed + 4))


def searched_cases(net: Certified, count: int, seed: int, steps: int = 15) -> Cases:
    """Masks, snapshots and starts moved by gradient ascent until the residual shrinks as little as they can make it."""
    parts = [normal(count, *shape, seed=seed + k) for k, shape in enumerate((SHAPE, SHAPE[1:], SHAPE))]
    masks, y, start = (part.requires_grad_() for part in parts)
    optimiser = torch.optim.Adam([masks, y, start], lr=0.1)
    for _ in range(steps):
        optimiser.zero_grad()
        (-_late_residual(net, y, Snapshot(masks), start).sum()).backward()
        optimiser.step()
    return Cases(masks.detach(), y.detach(), start.detach())


@cache
def attack(kind: str) -> Cases:
    """80 cases, the last 24 of them searched for: 12 against the averaged network and 12 against the contraction."""
    searched = [searched_cases(net, 12, seed=7) for net in (network(kind), network(kind, contraction=C))]
    return Cases(*(torch.cat(parts) for parts in zip(random_cases(8, seed=11), *searched, strict=True)))


def shown(net: Any, y: Tensor, phi: Snapshot) -> Any:
    return net.condition(Capture(y, phi, phi.A_dagger(y))) if isinstance(net, Certified) else net


def plain_iteration(net: Any, cases: Cases, dtype: torch.dtype, steps: int) -> tuple[Tensor, Tensor]:
    """(steps, cases): ‖f(x_k) − x_k‖; and (cases,) the size of the numbers it was computed from."""
    y, phi, x = cases.to(dtype)
    scale = torch.maximum(phi.project(x, y).flatten(1).norm(dim=1), phi.A_dagger(y).flatten(1).norm(dim=1))
    sizes, denoise = [], shown(net, y, phi)
    for _ in range(steps):
        new = gap_step(x, y, phi, denoise, 0.0)
        sizes.append((new - x).double().flatten(1).norm(dim=1))
        x = new
    return torch.stack(sizes), scale.double()


def rises(net: Any, cases: Cases, dtype: torch.dtype) -> float:
    """The largest increase of a residual from one step to the next, in units of the numbers involved."""
    with torch.no_grad():
        sizes, scale = plain_iteration(net, cases, dtype, 20)
    return float((sizes.diff(dim=0) / scale.clamp(min=1)).max())


PLAIN, GUARDED = picard(), anderson(safeguard=0.9)


def solved(net: Any, cases: Cases, solver: Solver, max_iter: int, dtype: torch.dtype = torch.float64) -> FixedPoint:
    y, phi, start = cases.to(dtype)
    with torch.no_grad():
        return Equilibrium(GAP(), net, solver=solver, tol=1e-5, max_iter=max_iter)(y, phi, state=start)


hostile = pytest.mark.parametrize("kind", WEIGHTS)


def test_hundreds_of_cases() -> None:
    assert sum(len(attack(kind).y) for kind in WEIGHTS) == 400
    assert all(certify(Equilibrium(GAP(), network(kind))).kind == "averaged and clamped" for kind in WEIGHTS)
    assert all(certify(Equilibrium(GAP(), network(kind, contraction=C))).kind == "contraction" for kind in WEIGHTS)
    assert Certified(**SMALL).settings["contraction"] == C


@hostile
@pytest.mark.parametrize("contraction", [None, C])
def test_the_residual_never_increases(kind: str, contraction: float | None) -> None:
    net, cases = network(kind, contraction=contraction), attack(kind)
    assert rises(net, cases, torch.float64) <= 1e-13
    assert rises(deepcopy(net).float(), cases, torch.float32) <= 1e-6


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [(kind, torch.float64) for kind in WEIGHTS] + [(kind, torch.float32) for kind in ("huge", "trained")],
    ids=str,
)
def test_the_plain_iteration_always_arrives_in_the_proven_number_of_steps(kind: str, dtype: torch.dtype) -> None:
    net = deepcopy(network(kind, contraction=C)).to(dtype)
    enough = certify(Equilibrium(GAP(), net, solver=PLAIN)).evaluations(1e-5)
    assert enough == 338
    solution = solved(net, attack(kind), picard(), enough, dtype)
    assert bool(solution.converged.all()), f"{(~solution.converged).sum()} at {solution.best.max():.1e}"
    k = torch.arange(1, len(solution.residual)).double()
    proven = C**k / ((1 - C) * net.lipschitz_bound()["floor"])
    # Samples that have arrived keep their last figure, so only the first row of the rest can be compared.
    assert bool((solution.residual[1:].amin(1) <= proven + 1e-5).all())


@pytest.mark.parametrize("kind", ["time", "trained"])  # of any contraction; the tests above try all kinds of weights
@pytest.mark.parametrize(
    ("solver", "count"), [(PLAIN, 73), (picard(0.5), 152), (GUARDED, 152), (anderson(safeguard=0.5, damping=0.5), 302)]
)
def test_every_solver_arrives_in_the_number_of_steps_proven_for_it(kind: str, solver: Solver, count: int) -> None:
    """From starts anywhere; with damping the number depends on the first residual, and without one is for [0, 1]."""
    net, cases = network(kind, contraction=0.8), attack(kind).rows(slice(None, None, 3))
    certificate = certify(Equilibrium(GAP(), net, solver=solver))
    assert certificate.certified
    assert certificate.evaluations(1e-5) == count
    within = cases._replace(start=cases.start.clamp(0, 1))
    assert bool(solved(net, within, solver, count).converged.all())
    first = float(solved(net, cases, solver, 1).residual[0].max())
    enough = certificate.evaluations(1e-5, first)
    assert enough is not None
    solution = solved(net, cases, solver, count if solver.damping == 1 else enough)
    assert bool(solution.converged.all()), f"{(~solution.converged).sum()} at {solution.best.max():.1e}"


@pytest.mark.parametrize("solver", [anderson(), anderson(damping=0.5), broyden()], ids=describe)
@pytest.mark.parametrize("contraction", [None, C])
def test_a_solver_without_safeguard_is_not_certified(solver: Solver, contraction: float | None) -> None:
    certificate = certify(Equilibrium(GAP(), network("random", contraction=contraction), solver=solver))
    assert certificate.map_certified
    assert not certificate.certified
    assert certificate.evaluations(1e-2) is None
    assert f"nothing is proven about the solver used, {describe(solver)}" in certificate.statement
    assert "evaluations" not in certificate.statement


def test_unrolled_steps_are_plain_ones() -> None:
    """They do not ask the solver, and end after their number."""
    model = Equilibrium(GAP(), network("random", contraction=0.8), solver=broyden(), backward=unroll(20), tol=1e-5)
    certificate = certify(model)
    assert certificate.certified
    assert "within 73 evaluations (this model stops after 20)" in certificate.statement


def test_the_number_of_steps_is_the_formula_and_only_for_what_proves_it() -> None:
    certificate = certify(Equilibrium(GAP(), network("random", contraction=0.5), tol=1e-3, solver=PLAIN))
    for tol in (1e-1, 1e-3, 1e-9):
        steps = certificate.evaluations(tol)
        assert steps is not None
        assert 0.5 ** (steps - 1) * 32 <= tol < 0.5 ** (steps - 2) * 32
    assert certificate.evaluations(0.0) is None
    assert "relative residual 1e-03 within 16 evaluations in exact arithmetic" in certificate.statement
    for net in (network("random"), network("random", clamp=False, contraction=0.5), CNN(2, 4).double()):
        assert certify(Equilibrium(GAP(), net, solver=PLAIN)).evaluations(1e-3) is None
    assert "no proven rate" in certify(Equilibrium(GAP(), network("random"), solver=PLAIN)).statement


def test_the_attack_has_teeth() -> None:
    """The search slows the iteration down, and a network that expands a little is caught by the same measurement."""
    net, cases = network("random"), attack("random")
    with torch.no_grad():
        searched = _late_residual(net, *cases.rows(slice(56, 68)).to(torch.float64))
        chance = _late_residual(net, *searched_cases(net, 12, seed=7, steps=0).to(torch.float64))
    assert float(searched.median()) > 1.5 * float(chance.median())
    assert rises(lambda x, sigma: 0.5 + 1.1 * (net(x) - 0.5), cases, torch.float64) > 1e-4


@forward_mode
@pytest.mark.parametrize(
    ("kind", "settings"),
    [(kind, {}) for kind in WEIGHTS]
    + [
        (kind, more)
        for kind in ("huge", "trained")
        for more in ({"contraction": 0.8, "kappa": 1.0}, {"clamp": False, "kappa": 0.9})
    ],
    ids=str,
)
def test_no_point_can_be_found_where_the_map_exceeds_its_bound(kind: str, settings: dict[str, Any]) -> None:
    """Pairs moved apart by gradient ascent on ‖f(a) − f(b)‖ / ‖a − b‖; then power iteration where they end."""
    net = network(kind, **settings)
    y, phi, _ = random_cases(1, 5).to(torch.float64)
    bound = certify(Equilibrium(GAP(), net)).bound
    assert bound is not None
    for f in (partial(net, sigma=0.0), partial(gap_step, y=y, phi=phi, denoise=net, sigma=0.0)):
        a, b = uniform(len(y), *SHAPE).requires_grad_(), uniform(len(y), *SHAPE, seed=1).requires_grad_()
        optimiser = torch.optim.Adam([a, b], lr=0.05)
        for _ in range(15):
            optimiser.zero_grad()
            ratio = (f(a) - f(b)).flatten(1).norm(dim=1) / (a - b).flatten(1).norm(dim=1)
            assert float(ratio.detach().max()) <= bound + 1e-12
            (-ratio.sum()).backward()
            optimiser.step()
        for point in (a.detach(), b.detach()):
            measured = lipschitz(f, point, iterations=8, generator=seeded())
            assert 0.1 * bound < measured <= bound + 1e-12


@hostile
def test_a_contraction_keeps_its_rate_and_its_error_bound(kind: str) -> None:
    c = 0.8
    net = network(kind, contraction=c)
    y, phi, x = attack(kind).rows(slice(None, None, 5)).to(torch.float64)
    with torch.no_grad():
        rest, denoise = Equilibrium(GAP(), net, solver=picard(), tol=1e-15, max_iter=200)(y, phi).x, shown(net, y, phi)
        first, scale = (x - rest).flatten(1).norm(dim=1), phi.project(x, y).flatten(1).norm(dim=1) + 1
        for k in range(60):
            new = gap_step(x, y, phi, denoise, 0.0)
            distance, residual = (x - rest).flatten(1).norm(dim=1), (new - x).flatten(1).norm(dim=1)
            assert bool((distance <= c**k * first + 1e-12 * scale).all())
            assert bool((distance <= residual / (1 - c) + 1e-12 * scale).all())
            x = new
    assert certify(Equilibrium(GAP(), net)).bound == c


def far(x: Tensor, sigma: float | Tensor) -> Tensor:
    """Lip(D − I) = 0.9."""
    return 1.9 * x


@forward_mode
def test_a_small_distance_from_the_identity_proves_nothing() -> None:
    """The paper assumes Lip(D − I) <= ε < 1. D = (1 + ε)I satisfies it, and D∘P runs away along ker Φ."""
    phi = Snapshot((uniform(*SHAPE) > 0.5).float())
    y, x = phi.A(uniform(1, *SHAPE, seed=1).float()), uniform(1, *SHAPE, seed=2).float()
    assert lipschitz(lambda z: far(z, 0.0) - z, x) == pytest.approx(0.9)
    assert spectral_radius(partial(gap_step, y=y, phi=phi, denoise=far, sigma=0.0), x) == pytest.approx(1.9)
    sizes, _ = plain_iteration(far, Cases(phi.masks[None], y, x), torch.float64, 30)
    assert float((sizes[2:] / sizes[1:-1]).min()) > 1.8
    solution = Equilibrium(GAP(), far, solver=picard(), max_iter=2000)(y, phi, state=x)
    assert bool(solution.diverged)
    assert not bool(solution.converged)


@forward_mode
@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="the published weights are not here")
def test_the_papers_own_network_does_not_contract_at_its_equilibrium() -> None:
    """Anderson finds the equilibrium all the same; the plain iteration leaves it from however near."""
    read = read_checkpoint(PUBLISHED / "deqsci_cnn.ckpt")
    net = build(read.name, read.settings).eval().requires_grad_(False)
    net.load_state_dict(read.state_dicts[0])
    phi = Snapshot((torch.rand(4, 24, 24, generator=seeded()) > 0.5).float())
    y = phi.A(render(4, 24, 24, seed=0))[None]
    model = Equilibrium(GAP(), net, solver=anderson(memory=11), start=TotalVariation(), tol=5e-4, max_iter=200)
    with torch.no_grad():
        solution = model(y, phi)
        near = solution.x + 1e-4 * torch.randn(solution.x.shape, generator=seeded(1))
        plain = Equilibrium(GAP(), net, solver=picard(), tol=1e-4, max_iter=30)(y, phi, state=near)
    certificate = certify(model, y, phi, solution=solution, iterations=20)
    assert bool(solution.converged)
    assert certificate.kind == "none"
    assert certificate.spectral_radius is not None
    assert certificate.spectral_radius > 1.5
    assert certificate.local_lipschitz is not None
    assert certificate.local_lipschitz >= certificate.spectral_radius
    assert not bool(plain.converged)
    assert float(plain.residual[-1]) > 20 * float(plain.residual[0])


def gradient_step(convex: bool = True) -> GradientStep:
    torch.manual_seed(0)
    return GradientStep(channels=4, kernel=3, convex=convex).double().requires_grad_(False)


TABLE: dict[str, tuple[Iteration, Any, str, float | None]] = {
    "clamped": (GAP(), lambda: network("random"), "averaged and clamped", 1.0),
    "open": (GAP(), lambda: network("random", clamp=False), "averaged", 1.0),
    "contraction": (GAP(), lambda: network("random", contraction=0.8), "contraction", 0.8),
    "open contraction": (GAP(), lambda: network("random", clamp=False, contraction=0.5), "contraction", 0.5),
    "short steps": (PGD(1.0), lambda: network("random"), "averaged and clamped", 1.0),
    "long steps": (PGD(1.1), lambda: network("random"), "none", None),
    "gd": (GD(), lambda: network("random", contraction=0.8), "none", None),
    "splitting": (AcceleratedGAP(), lambda: network("random", clamp=False), "splitting", 1.0),
    "splitting, clamped": (AcceleratedGAP(), lambda: network("random"), "none", None),
    "splitting, too far": (AcceleratedGAP(), lambda: network("random", clamp=False, kappa=0.51), "none", None),
    "admm": (ADMM(), lambda: network("random", contraction=0.8), "none", None),
    "rnn": (Recurrent(), lambda: network("random"), "none", None),
    "recurrent": (Recurrent(), lambda: BidirectionalRNN(2).double(), "none", None),
    "descent": (GAP(), gradient_step, "convex gradient step", 1.0),
    "descent, not convex": (GAP(), lambda: gradient_step(False), "gradient step", 1 + 0.9 / 8),
    "descent elsewhere": (PGD(), gradient_step, "none", None),
    "cnn": (GAP(), lambda: CNN(2, 4).double(), "none", None),
    "any function": (GAP(), lambda: far, "none", None),
}


@pytest.mark.parametrize("solver", [PLAIN, GUARDED, anderson()], ids=describe)
@pytest.mark.parametrize(("step", "made", "kind", "bound"), TABLE.values(), ids=TABLE)
def test_the_certificate_names_what_is_proven(
    step: Iteration, made: Any, kind: str, bound: float | None, solver: Solver
) -> None:
    certificate = certify(Equilibrium(step, made(), solver=solver))
    assert (certificate.kind, certificate.bound) == (kind, bound)
    assert certificate.map_certified == (kind not in ("none", "gradient step"))
    keeps = solver == PLAIN if kind == "splitting" else solver != anderson()
    assert certificate.certified == (certificate.map_certified and keeps)
    assert certificate.descends == kind.endswith("gradient step")
    assert certificate.local_lipschitz is None
    assert certificate.rounding is None
    assert certificate.statement.startswith("no certificate") == (kind == "none")
    proven = certificate.certified or kind == "none" or (kind == "gradient step" and solver == PLAIN)
    assert ("nothing is proven about the solver" in certificate.statement) == (not proven)
    if kind.startswith("averaged"):
        assert len(certificate.evidence["layers"]) == SMALL["blocks"]


@pytest.mark.parametrize("kind", WEIGHTS)
@pytest.mark.parametrize("activation", ["relu", "clip"])
def test_splitting_never_parts_two_runs(kind: str, activation: str) -> None:
    """In what the denoiser is given, whatever the masks, the snapshot and the weights."""
    y, phi, x = attack(kind).to(torch.float64)
    net = network(kind, clamp=False, activation=activation)
    runs = []
    for start in (x, phi.A_dagger(y)):
        seen: list[Tensor] = []

        def denoise(z: Tensor, sigma: float | Tensor, seen: list[Tensor] = seen) -> Tensor:
            seen.append(z)
            return net(z, sigma)

        state = AcceleratedGAP().start(start)
        for _ in range(15):
            state = AcceleratedGAP().step(state, y, phi, denoise, 0.0)
        runs.append(torch.stack(seen).flatten(2))
    apart = (runs[0] - runs[1]).norm(dim=-1)
    assert bool((apart[1:] <= apart[:-1] + 1e-12 * runs[0].norm(dim=-1)[:-1]).all())
    assert float(apart[-1].sum()) < float(apart[0].sum())


def test_splitting_rests_at_one_video_that_fits_the_snapshot() -> None:
    net, phi = network("random", clamp=False), Snapshot((uniform(*SHAPE) > 0.5).double())
    y = phi.A(uniform(*SHAPE, seed=1))
    model = Equilibrium(AcceleratedGAP(), net, solver=PLAIN, tol=1e-11, max_iter=20_000)
    starts = torch.stack([scale * normal(*SHAPE, seed=2) for scale in (0.0, 1.0, 10.0)])
    ends = model(y.expand(3, -1, -1), phi, state=starts)
    assert bool(ends.converged.all())
    assert float((ends.x - ends.x[0]).abs().max()) < 1e-7
    assert float((phi.A(ends.x) - y).abs().max()) < 1e-8


@pytest.mark.parametrize("convex", [True, False])
def test_what_a_gradient_step_proves(convex: bool) -> None:
    """The energy falls in either case; D is averaged, and the residual never rises, only if the energy is convex."""
    net, (y, phi, x) = gradient_step(convex), random_cases(4, 3).to(torch.float64)
    y, x = 0 * y, 1e-3 * normal(*x.shape)
    with torch.no_grad():
        net.bias.fill_(3**0.5)  # where the log potential bends back most
        a, b = 1e-3 * normal(200, 3, 6, 6), 1e-3 * normal(200, 3, 6, 6, seed=1)
        moved, apart = net(a) - net(b), a - b
        alpha = 0.45  # τL/2
        kept = moved.square().sum((1, 2, 3)) + (1 - alpha) / alpha * (moved - apart).square().sum((1, 2, 3))
        assert bool((kept <= apart.square().sum((1, 2, 3)) * (1 + 1e-12)).all()) == convex
        energies, sizes = [], []
        for _ in range(100):
            new = net(phi.project(x, y))
            energies.append(net.value(phi.project(x, y)))
            sizes.append((new - x).flatten(1).norm(dim=1))
            x = new
    assert bool((torch.stack(energies).diff(dim=0) <= 1e-12 * energies[0]).all())
    assert bool((torch.stack(sizes).diff(dim=0) > 1e-9 * sizes[0]).any()) != convex


def test_broken_weights_lose_their_certificate() -> None:
    net = deepcopy(network("random"))
    net.space[0].weight[0] = torch.nan
    assert not certify(Equilibrium(GAP(), net, solver=PLAIN)).map_certified


@forward_mode
@pytest.mark.parametrize("step", [GAP(), ADMM()], ids=str)
def test_estimates_are_those_at_the_equilibrium(step: Iteration) -> None:
    phi, slope = Snapshot(uniform(2, 3, 3) + 0.1), normal(3, 3, seed=3) / 3

    def denoise(x: Tensor, sigma: float | Tensor) -> Tensor:
        return 0.9 * x.sin() + 0.05 * x @ slope

    y = phi.A(uniform(2, 1, 2, 3, 3))  # two leading axes
    model = Equilibrium(step, denoise, tol=1e-10, max_iter=3000)
    solution = model(y, phi)
    certificate = certify(model, y, phi, solution=solution, iterations=80)
    dense = dense_jacobian(model, y, phi, solution)
    assert bool(solution.converged.all())
    assert certificate.local_lipschitz == pytest.approx(float(torch.linalg.matrix_norm(dense, 2)), rel=1e-2)
    assert certificate.spectral_radius == pytest.approx(float(torch.linalg.eigvals(dense).abs().max()), rel=1e-6)
    assert certificate == certify(model, y, phi, iterations=80)
    assert certificate.statement.startswith("no certificate")
    assert f"local estimate {certificate.local_lipschitz:.2f} at this point" in certificate.statement


def dense_jacobian(model: Equilibrium, y: Tensor, phi: Snapshot, solution: FixedPoint) -> Tensor:
    f, sizes = model.bind(y, phi), [part.numel() for part in solution.state]
    state = tuple(part.flatten(0, -4) for part in solution.state)
    blocks = torch.autograd.functional.jacobian(lambda *state: tuple(f(state)), state)
    rows = [[b.reshape(m, n) for b, n in zip(row, sizes, strict=True)] for row, m in zip(blocks, sizes, strict=True)]
    return torch.cat([torch.cat(row, 1) for row in rows])
