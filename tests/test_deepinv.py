"""Our operators as deepinv's physics, and its denoisers as ours: the laws through the real package where it imports.

All of them hold with deepinv 0.5.0. Everywhere they run against a stand-in too, with the signatures of deepinv 0.4 as
read in deepinv/physics/forward.py of github.com/deepinv/deepinv at commit 006c05d291bbefc3e45387b0fc238a465f457e32 and
on the page of LinearPhysics at deepinv.github.io (a later pyproject.toml says 0.4.1). Whatever deepinv does by
iteration is an error there.
"""

from __future__ import annotations

import copy
import sys
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import laws
from laws import close, normal, uniform
from unsnap.algorithms import GAP, gap
from unsnap.deepinv import from_deepinv, to_deepinv
from unsnap.errors import InputError
from unsnap.models import Equilibrium
from unsnap.operators import RGB, CodedOperator, Multishot, Snapshot

T, H, W, K, B = 4, 5, 6, 3, 2


class ZeroNoise(nn.Module):
    def forward(self, y: Tensor, **kwargs: Any) -> Tensor:
        return y


class Physics(nn.Module):
    def __init__(
        self,
        A: Callable = lambda x, **kwargs: x,
        noise_model=None,
        sensor_model: Callable = lambda x: x,
        solver: str = "gradient_descent",
        max_iter: int = 50,
        tol: float = 1e-4,
        **kwargs,
    ) -> None:
        super().__init__()
        self.noise_model = ZeroNoise() if noise_model is None else noise_model
        self.sensor_model, self.forw = sensor_model, A
        self.solver, self.max_iter, self.tol = solver, max_iter, tol
        assert not kwargs, "deepinv warns of arguments that it does not know"

    def forward(self, x, **kwargs):
        return self.sensor_model(self.noise_model(self.A(x, **kwargs), **kwargs))

    def A(self, x, **kwargs):
        return self.forw(x, **kwargs)


class LinearPhysics(Physics):
    def __init__(
        self,
        A=lambda x, **kwargs: x,
        A_adjoint=None,
        img_size=None,
        noise_model=None,
        sensor_model=lambda x: x,
        max_iter=50,
        tol=1e-4,
        solver="lsqr",
        implicit_backward_solver: bool = True,
        **kwargs,
    ) -> None:
        super().__init__(A, noise_model, sensor_model, solver, max_iter, tol, **kwargs)
        self.A_adj, self.img_size = A_adjoint, img_size

    def A_adjoint(self, y, **kwargs):
        return self.A_adj(y, **kwargs)

    def A_vjp(self, x, v):
        return self.A_adjoint(v)

    def A_A_adjoint(self, y, **kwargs):
        pytest.fail("two products where one is enough")

    def A_adjoint_A(self, x, **kwargs):
        return self.A_adjoint(self.A(x, **kwargs), **kwargs)

    def compute_norm(self, x0, max_iter=100, tol=1e-3, verbose=True, squared=True, **kwargs):
        if squared:
            warnings.warn("compute_sqnorm is meant", DeprecationWarning, stacklevel=2)
        found = self.compute_sqnorm(x0, max_iter=max_iter, tol=tol, verbose=verbose, **kwargs)
        return found if squared else found.sqrt()

    def compute_sqnorm(self, x0, *, max_iter=100, tol=1e-3, verbose=True, rng=None, **kwargs):
        pytest.fail("iterates")

    def prox_l2(self, z, y, gamma, solver="CG", max_iter=None, tol=None, verbose=False, **kwargs):
        pytest.fail("iterates")

    def A_dagger(self, y, solver="CG", max_iter=None, tol=None, verbose=False, **kwargs):
        pytest.fail("iterates")


def real() -> ModuleType | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import deepinv.physics
    except Exception:  # noqa: BLE001  # a broken torchvision raises what it likes
        return None
    return deepinv.physics


def stand_in(patch: pytest.MonkeyPatch) -> ModuleType:
    package, module = ModuleType("deepinv"), ModuleType("deepinv.physics")
    module.LinearPhysics, module.Physics, package.physics = LinearPhysics, Physics, module
    patch.setitem(sys.modules, "deepinv", package)
    patch.setitem(sys.modules, "deepinv.physics", module)
    return module


@pytest.fixture(params=["stand-in", "deepinv"] if find_spec("deepinv") else ["stand-in"])
def deepinv(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = stand_in(monkeypatch) if request.param == "stand-in" else real()
    if module is None:
        pytest.skip("deepinv does not import here")
    return module


OPERATORS = {
    "snapshot": lambda: Snapshot(normal(T, H, W)),
    "one each": lambda: Snapshot(normal(B, T, H, W)),
    "shots": lambda: Multishot(normal(K, T, H, W)),
    "shots each": lambda: Multishot(normal(B, K, T, H, W)),
}


@pytest.fixture(params=OPERATORS)
def phi(request: pytest.FixtureRequest) -> CodedOperator:
    return OPERATORS[request.param]()


@pytest.fixture
def x() -> Tensor:
    return normal(B, T, H, W, seed=1)


@pytest.fixture
def y(phi: CodedOperator) -> Tensor:
    return normal(B, 1 if isinstance(phi, Snapshot) else K, H, W, seed=2)


def measured(phi: CodedOperator, y: Tensor) -> Tensor:
    """Our layout of a snapshot."""
    return y[:, 0] if isinstance(phi, Snapshot) else y


def test_it_is_a_physics_and_measures_what_the_operator_does(
    deepinv: ModuleType, phi: CodedOperator, x: Tensor
) -> None:
    physics = to_deepinv(phi)
    assert isinstance(physics, deepinv.LinearPhysics)
    found = physics(x)
    assert found.shape == (B, 1 if isinstance(phi, Snapshot) else K, H, W)
    assert torch.equal(measured(phi, found), phi.A(x))
    assert torch.equal(physics.A(x, sigma=0.1), found)


def test_closed_forms_are_ours(deepinv: ModuleType, phi: CodedOperator, x: Tensor, y: Tensor) -> None:
    physics, ours = to_deepinv(phi), measured(phi, y)
    assert torch.equal(physics.A_adjoint(y), phi.A_adjoint(ours))
    assert torch.equal(physics.A_vjp(x, y), phi.A_adjoint(ours))
    assert torch.equal(physics.A_dagger(y, "lsqr", max_iter=3, tol=0.1), phi.A_dagger(ours))
    assert torch.equal(measured(phi, physics.A_A_adjoint(y)), phi.gram(ours))
    assert torch.equal(physics.prox_l2(x, y, 0.7, solver="CG", max_iter=1), phi.prox_l2(x, ours, 0.7))


def test_laws_of_a_linear_physics(deepinv: ModuleType, phi: CodedOperator, x: Tensor, y: Tensor) -> None:
    physics = to_deepinv(phi)
    left, right = (physics.A(x) * y).sum(), (x * physics.A_adjoint(y)).sum()
    close(left, right, 1e-12, scale=physics.A(x).norm() * y.norm())
    close(physics.A_A_adjoint(y), physics.A(physics.A_adjoint(y)))
    close(physics.A_adjoint_A(x), physics.A_adjoint(physics.A(x)))
    z = normal(B, T, H, W, seed=3)
    laws.symmetric(lambda u: physics.A_dagger(physics.A(u)), x, z, 1e-12)
    close(physics.A(physics.A_dagger(physics.A(x))), physics.A(x), 1e-10)


@pytest.mark.parametrize("gamma", [0.3, 40.0, torch.tensor(2.0), torch.tensor([0.3, 40.0])], ids=str)
@pytest.mark.parametrize("shape", [(-1,), (-1, 1, 1, 1)])
def test_prox_is_optimal(deepinv: ModuleType, phi: CodedOperator, x: Tensor, y: Tensor, gamma, shape) -> None:
    """γΦᵀ(Φx − y) + x − z = 0, with one γ or one for each sample."""
    physics = to_deepinv(phi)
    gamma = gamma.double().reshape(shape) if isinstance(gamma, Tensor) else gamma
    weight = gamma.reshape(-1, 1, 1, 1) if isinstance(gamma, Tensor) else gamma
    for z in (x, None, 0.5):
        found = physics.prox_l2(z, y, gamma)
        z = z if isinstance(z, Tensor) else torch.full_like(x, z or 0.0)
        pull = weight * physics.A_adjoint(physics.A(found) - y)
        close(pull, z - found, 1e-11)


def test_a_camera_in_colour_takes_one_gamma_for_each_sample(deepinv: ModuleType) -> None:
    phi = RGB(normal(3, 2, H, W))
    physics, x, gamma = to_deepinv(phi), normal(B, 6, H, W, seed=1), torch.tensor([0.3, 40.0], dtype=torch.float64)
    y = physics.A(normal(B, 6, H, W, seed=2))
    found = physics.prox_l2(x, y, gamma)
    close(gamma.reshape(-1, 1, 1, 1) * physics.A_adjoint(physics.A(found) - y), x - found, 1e-11)


def test_a_learned_step_size_receives_its_gradient(
    deepinv: ModuleType, phi: CodedOperator, x: Tensor, y: Tensor
) -> None:
    gamma = torch.tensor([0.3, 4.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda gamma: to_deepinv(phi).prox_l2(x, y, gamma), gamma)


def test_norms_are_exact(deepinv: ModuleType, phi: CodedOperator, x: Tensor) -> None:
    physics = to_deepinv(phi)
    exact = max(torch.linalg.matrix_norm(laws.dense(one, (T, H, W)), 2) for one in each(phi))
    close(physics.compute_sqnorm(x, verbose=False), exact**2)
    close(physics.compute_norm(x, squared=False, verbose=False), exact)


def each(phi: CodedOperator) -> list[CodedOperator]:
    """The operator of every sample."""
    single = phi.masks.ndim == (3 if isinstance(phi, Snapshot) else 4)
    return [phi] if single else [type(phi)(masks) for masks in phi.masks]


def test_noise_model_and_device_are_those_of_a_physics(deepinv: ModuleType, x: Tensor) -> None:
    class Shift(nn.Module):
        def forward(self, y: Tensor, level: float = 1.0, **kwargs: Any) -> Tensor:
            return y + level

    physics = to_deepinv(OPERATORS["snapshot"](), noise_model=Shift())
    close(physics(x, level=3.0), physics.A(x) + 3)
    assert "operator.masks" in dict(physics.named_buffers())
    assert physics.to(torch.float32).A(x.float()).dtype == torch.float32
    twin = copy.deepcopy(physics)
    assert torch.equal(twin.A(x.float()), physics.A(x.float()))


@pytest.mark.parametrize(
    ("use", "words"),
    [
        (lambda p: p.A(normal(T, H, W)), r"video must be \(B, T, H, W\), got shape \(4, 5, 6\); add a batch axis"),
        (lambda p: p.A_adjoint(normal(B, H, W)), r"snapshot must be \(B, 1, H, W\), got shape \(2, 5, 6\)"),
        (lambda p: p.A_dagger(normal(B, 2, H, W)), r"snapshot must be \(B, 1, H, W\), got shape \(2, 2, 5, 6\)"),
        (lambda p: p.A(normal(B, T + 1, H, W)), r"video must end in \(4, 5, 6\)"),
    ],
)
def test_other_layouts_are_refused(deepinv: ModuleType, use, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        use(to_deepinv(OPERATORS["snapshot"]()))


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("deepinv", "deepinv.physics"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match=r"deepinv cannot be imported \(.+\); install it with `pip install deepinv`"):
        to_deepinv(OPERATORS["snapshot"]())


# Denoisers.


class Numbers(nn.Module):
    """As deepinv's networks of old: sigma is a number that fills a channel."""

    def forward(self, x: Tensor, sigma: float) -> Tensor:
        assert x.ndim == 4
        assert x.shape[1] == 1
        level = torch.empty(x.size(0), 1, x.size(2), x.size(3), dtype=x.dtype).fill_(sigma)
        return x - level * x.mean((-2, -1), keepdim=True)


class Levels(nn.Module):
    """As deepinv's networks of today: sigma is a tensor (B,) for B images."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(1, dtype=torch.float64))

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        assert sigma.shape == x.shape[:1]
        assert sigma.dtype == x.dtype
        return x - self.gain * sigma.reshape(-1, 1, 1, 1) * x.mean((-2, -1), keepdim=True)


def expected(x: Tensor, sigma: Tensor | float) -> Tensor:
    return x - sigma * x.mean((-2, -1), keepdim=True)


def test_a_number_reaches_the_denoiser_as_it_is() -> None:
    denoise, x = from_deepinv(Numbers()), uniform(2, 3, T, H, W)
    close(denoise(x, 0.25), expected(x, 0.25))
    close(denoise(x[0, 0], 0.5), expected(x[0, 0], 0.5))


def test_a_tensor_reaches_the_denoiser_as_one_level_per_image() -> None:
    denoise, x = from_deepinv(Levels()), uniform(2, 3, T, H, W)
    levels = torch.tensor([[0.1, 0.2, 0.3], [0.0, 0.5, 1.0]], requires_grad=True)
    close(denoise(x, levels).detach(), expected(x, levels.detach()[..., None, None, None]), 1e-7)
    for one in (torch.tensor(0.25), torch.tensor([0.25])):
        close(denoise(x, one).detach(), expected(x, 0.25))
    (slope,) = torch.autograd.grad(denoise(x, levels).sum(), levels)
    close(slope.double(), -x.mean((-2, -1)).sum(-1) * H * W, 1e-6)


def test_it_serves_where_a_denoiser_does() -> None:
    phi = Snapshot(uniform(T, H, W))
    solution = gap(phi.A(uniform(B, T, H, W)), phi, from_deepinv(Numbers()), [0.3, 0.2, 0.1])
    assert solution.x.isfinite().all()
    model = Equilibrium(GAP(), from_deepinv(Levels()), sigma=nn.Parameter(torch.tensor(0.3, dtype=torch.float64)))
    model(phi.A(uniform(B, T, H, W)), phi).x.square().sum().backward()
    gradients = {name: p.grad for name, p in model.named_parameters()}
    assert gradients.keys() == {"sigma", "network.denoiser.gain"}
    assert all(g is not None and g.abs().max() > 0 for g in gradients.values())


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda d: d(uniform(T, H, W)), "sigma is missing; call denoiser"),
        (lambda d: d(uniform(H, W), 0.1), r"video must be \(..., T, H, W\), got shape \(5, 6\)"),
        (lambda d: d(uniform(2, T, H, W), uniform(3)), r"one per video \(2,\), got shape \(3,\)"),
        (lambda d: from_deepinv(lambda z, sigma: z.squeeze(1))(uniform(T, H, W), 0.1), r"return \(4, 1, 5, 6\), got"),
    ],
)
def test_what_a_denoiser_cannot_use_is_named(call, words: str) -> None:
    with pytest.raises(InputError, match=words):
        call(from_deepinv(Numbers()))
