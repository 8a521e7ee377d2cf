"""Equilibrium models end to end: each map rests where its equation says, and certificates hold under attack."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor

from unsnap.algorithms import ADMMState, admm_step, gap_step, gd_step, pgd_step
from unsnap.errors import InputError
from unsnap.fixed_point import implicit, picard, unroll
from unsnap.masks import bernoulli, gray
from unsnap.methods import get
from unsnap.models.equilibrium import Equilibrium, Step
from unsnap.models.file import Recipe, load_model, save_model
from unsnap.models.stability import certify, jacobian_penalty, lipschitz, spectral_radius
from unsnap.networks import CNN, BidirectionalRNN, Certified, GradientStep
from unsnap.operators import Snapshot

DOUBLE = torch.float64
# torch.func.jvp loads its decompositions through torch.jit.script, which torch itself deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def certified(seed: int = 0, **settings: object) -> Certified:
    torch.manual_seed(seed)
    network = Certified(blocks=2, channels=6, hidden=6, **{"contraction": None, **settings})  # type: ignore[arg-type]
    for parameter in network.parameters():
        parameter.data = torch.randn(parameter.shape, generator=seeded(seed))
    return network.double().eval()


def problem(frames: int = 3, size: int = 8, count: int = 2) -> tuple[Tensor, Snapshot]:
    phi = Snapshot(gray(frames, size, size, generator=seeded(1)).to(DOUBLE))
    return phi.A(torch.rand(count, frames, size, size, generator=seeded(2), dtype=DOUBLE)), phi


@pytest.mark.parametrize("step", [GAP(), PGD(0.9), GD(0.5), ADMM(0.3)], ids=lambda s: s.name)
def test_each_map_rests_where_its_own_algorithm_stands_still(step: Step) -> None:
    (y, phi), network = problem(), certified()
    with torch.no_grad():
        solution = Equilibrium(step, network, 0.1, tol=1e-9, max_iter=5000)(y, phi)
        z, norm = solution.state, phi.squared_norm()
        again = {
            "gap": lambda: (gap_step(z[0], y, phi, network, 0.1),),
            "pgd": lambda: (pgd_step(z[0], y, phi, network, 0.1, 0.9 / norm),),
            "gd": lambda: (gd_step(z[0], y, phi, lambda x: norm * (x - network(x, 0.1)), 0.5 / norm),),
            "admm": lambda: admm_step(ADMMState(*z), y, phi, network, 0.1, 0.3 * norm),
        }[step.name]()
    assert bool(solution.converged.all())
    for now, then in zip(again, z, strict=True):
        assert float((now - then).norm()) <= 1e-7 * float(then.norm())


def test_the_recurrent_map_takes_any_number_of_frames() -> None:
    network = BidirectionalRNN(channels=4).double()
    for frames in (1, 2, 5):
        y, phi = problem(frames)
        with torch.no_grad():
            solution = Equilibrium(Recurrent(), network, tol=1e-6, max_iter=20)(y, phi)
            value = network(solution.x, y, phi)
        measured = (value - solution.x).flatten(1).norm(dim=1) / value.flatten(1).norm(dim=1)
        assert torch.allclose(measured, solution.best, rtol=1e-6)


@pytest.mark.parametrize("step", [GAP(), ADMM(0.5)], ids=lambda s: s.name)
def test_implicit_gradient_is_the_unrolled_gradient(step: Step) -> None:
    (y, phi), network = problem(2, 4, 1), certified(contraction=0.5)
    target = torch.rand(1, 2, 4, 4, generator=seeded(3), dtype=DOUBLE)

    def gradient(model: Equilibrium) -> Tensor:
        loss = (model(y, phi).x - target).square().sum()
        grads = torch.autograd.grad(loss, list(network.parameters()), allow_unused=True)
        return torch.cat([g.flatten() for g in grads if g is not None])

    exact = gradient(Equilibrium(step, network, tol=1e-12, max_iter=500, backward=implicit(tol=1e-12, max_iter=500)))
    unrolled = gradient(Equilibrium(step, network, backward=unroll(300)))
    assert float((exact - unrolled).norm()) <= 1e-6 * float(unrolled.norm())


def test_samples_are_alone_and_warm_starts_pay() -> None:
    (y, phi), model = problem(count=3), Equilibrium(GAP(), certified(), tol=1e-7, max_iter=3000)
    with torch.no_grad():
        together = model(y, phi)
        for n in range(3):
            assert float((model(y[n], phi).x - together.x[n]).abs().max()) < 1e-5
        warm = model(y, phi, state=together.state)
    assert int(warm.steps.max()) == 1


def test_a_schedule_of_sigmas_is_refused() -> None:
    with pytest.raises(ValueError, match="no equilibrium"):
        Equilibrium(GAP(), certified(), [0.2, 0.1])  # type: ignore[arg-type]


def test_estimates_equal_dense_linear_algebra() -> None:
    matrix = torch.randn(12, 12, generator=seeded(), dtype=DOUBLE)
    f = lambda x: (matrix @ x.flatten()).reshape(x.shape)  # noqa: E731
    x = torch.randn(1, 3, 4, generator=seeded(1), dtype=DOUBLE)
    assert lipschitz(f, x, iterations=300) == pytest.approx(float(torch.linalg.matrix_norm(matrix, 2)), rel=1e-3)
    radius = float(torch.linalg.eigvals(matrix).abs().max())
    assert spectral_radius(f, x, iterations=30) == pytest.approx(radius, rel=1e-6)
    probes = [float(jacobian_penalty(f, x, generator=seeded(k))) for k in range(2000)]
    assert sum(probes) / 2000 == pytest.approx(float(matrix.square().sum()) / 12, rel=0.05)


# Masks no camera has: a certificate must not care.
MASKS: dict[str, Callable[[int], Tensor]] = {
    "zero": lambda s: torch.zeros(2, 6, 6, dtype=DOUBLE),
    "one": lambda s: torch.ones(2, 6, 6, dtype=DOUBLE),
    "binary": lambda s: bernoulli(2, 6, 6, generator=seeded(s)).to(DOUBLE),
    "grey": lambda s: gray(2, 6, 6, generator=seeded(s)).to(DOUBLE),
    "negative": lambda s: gray(2, 6, 6, low=-1, high=1, generator=seeded(s)).to(DOUBLE),
    "0-255": lambda s: 255 * gray(2, 6, 6, generator=seeded(s)).to(DOUBLE),
}
CASES = 84  # per kind of masks and strength of weights: 6 × 2 × 84 = 1008 in all


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_certified_residuals_never_rise_and_always_vanish(kind: str, scale: float) -> None:
    """Random snapshots and starts, half of them far outside [0, 1] and pushed uphill to make the residual large."""
    network, contracting, seed = certified(), certified(contraction=0.95), len(kind)
    for parameter in [*network.parameters(), *contracting.parameters()]:
        parameter.data *= scale
    phi = Snapshot(torch.stack([MASKS[kind](seed * 100 + n) for n in range(CASES)]))
    y = phi.A(torch.rand(CASES, 2, 6, 6, generator=seeded(seed + 5), dtype=DOUBLE))
    y[::2] *= 3 * torch.randn(len(y[::2]), 1, 1, generator=seeded(seed + 6), dtype=DOUBLE)
    start = _uphill(network, phi, y, torch.randn(CASES, 2, 6, 6, generator=seeded(seed + 7), dtype=DOUBLE) * 2)
    with torch.no_grad():
        sizes, x = [], start
        for _ in range(60):
            new = gap_step(x, y, phi, network, 0.0)
            sizes.append((new - x).flatten(1).norm(dim=1))
            x = new
        model = Equilibrium(GAP(), contracting, solver=picard(), start=lambda y, phi: start, tol=1e-5, max_iter=338)
        rest = model(y, phi)
    rises = torch.stack(sizes).diff(dim=0) / sizes[0].clamp(min=1e-12)
    assert float(rises.max()) <= 1e-9
    assert bool(rest.converged.all()), rest.best.max()


def _uphill(network: Certified, phi: Snapshot, y: Tensor, x: Tensor) -> Tensor:
    for _ in range(5):
        point = x.detach().requires_grad_()
        residual = (gap_step(point, y, phi, network, 0.0) - point).square().sum()
        (slope,) = torch.autograd.grad(residual, point)
        x = x + slope / slope.abs().max().clamp(min=1e-12)
    return x.detach()


@pytest.mark.parametrize("scale", [0.1, 1.0, 100.0])
def test_measured_lipschitz_constants_stay_below_the_certified_bound(scale: float) -> None:
    y, phi = problem(count=1)
    for settings in ({}, {"contraction": 0.8}, {"clamp": False}):
        network = certified(3, **settings)
        for parameter in network.parameters():
            parameter.data *= scale
        bound = float(network.lipschitz_bound()["bound"])
        maps = (partial(network, sigma=0.0), partial(gap_step, y=y, phi=phi, denoise=network, sigma=0.0))
        for seed in range(3):
            x = torch.rand(1, 3, 8, 8, generator=seeded(seed), dtype=DOUBLE)
            assert all(lipschitz(f, x, iterations=30) <= bound + 1e-9 for f in maps)


def test_a_contraction_keeps_its_rate_and_its_distance() -> None:
    (y, phi), c = problem(), 0.7
    network = certified(contraction=c)
    with torch.no_grad():
        rest = Equilibrium(GAP(), network, tol=1e-13, max_iter=2000)(y, phi).x
        x = phi.A_dagger(y)
        for _ in range(30):
            new = gap_step(x, y, phi, network.given(y, phi), 0.0)
            residual, distance = (new - x).flatten(1).norm(dim=1), (x - rest).flatten(1).norm(dim=1)
            assert bool((distance <= residual / (1 - c) + 1e-9).all())
            assert bool(((new - rest).flatten(1).norm(dim=1) <= c * distance + 1e-9).all())
            x = new


def test_a_small_lipschitz_constant_of_d_minus_identity_is_not_enough() -> None:
    """The paper's assumption η < 1: D = 1.5 I has Lip(D − I) = 0.5, and D∘P runs away along the kernel of Φ."""
    y, phi = problem()
    x = torch.rand(2, 3, 8, 8, generator=seeded(9), dtype=DOUBLE)
    sizes = []
    for _ in range(40):
        x = gap_step(x, y, phi, lambda x, sigma: 1.5 * x, 0.0)
        sizes.append(float(x.norm()))
    assert sizes[-1] > 1e4 * sizes[0]


@pytest.mark.parametrize(
    ("step", "network", "kind"),
    [
        (GAP(), lambda: certified(), "averaged and clamped"),
        (GAP(), lambda: certified(clamp=False), "averaged"),
        (GAP(), lambda: certified(contraction=0.9), "contraction"),
        (GAP(), lambda: GradientStep(channels=4, kernel=3).double(), "gradient step"),
        (GAP(), lambda: CNN(layers=2, channels=4).double(), "none"),
        (GD(), lambda: certified(), "none"),
        (PGD(1.5), lambda: certified(), "none"),
    ],
)
def test_certificates_say_what_is_proven(step: Step, network: Callable[[], torch.nn.Module], kind: str) -> None:
    certificate = certify(Equilibrium(step, network()))
    assert (certificate.kind, certificate.certified) == (kind, kind != "none")
    assert (certificate.bound is None) == (kind == "none")
    assert certificate.statement


def test_model_files_round_trip_and_serve_as_methods(tmp_path: Path) -> None:
    network = certified().float()
    settings = network.settings
    recipe = Recipe("certified", settings, tol=1e-3, solver={"name": "anderson", "safeguard": 0.9})
    path = save_model(tmp_path / "model.safetensors", recipe, network.state_dict())
    loaded, again = load_model(path)
    assert again == recipe
    phi = Snapshot(bernoulli(3, 8, 8, generator=seeded()))
    y = phi.A(torch.rand(2, 3, 8, 8, generator=seeded(1)))
    with torch.no_grad():
        assert torch.equal(loaded(y, phi).x, get(str(path))(y, phi).x)


@pytest.mark.parametrize("content", [b"", b"nonsense", b"\x08\0\0\0\0\0\0\0{}      "])
def test_bad_model_files_are_one_sentence(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.safetensors"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"bad\.safetensors"):
        load_model(path)
    with pytest.raises(InputError, match="is not a file"):
        load_model(tmp_path / "missing.safetensors")
