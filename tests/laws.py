"""The laws that operators, denoisers and algorithms obey, written once; the tests apply them to every instance.

All are numerical, with relative errors; a law that is broken raises AssertionError.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from unsnap.operators import CodedOperator

Map = Callable[[Tensor], Tensor]

# torch itself warns when its forward-mode rules are loaded.
forward_mode = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")


def each(cases: Mapping[str, Any]) -> Any:
    """A fixture that is every one of the cases in turn, named as they are."""
    return pytest.fixture(params=[pytest.param(case, id=name) for name, case in cases.items()])(
        lambda request: request.param
    )


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def uniform(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.rand(shape, generator=seeded(seed), dtype=dtype)


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=seeded(seed), dtype=dtype)


def close(actual: Tensor, expected: Tensor, tol: float = 1e-12, *, scale: Tensor | None = None) -> None:
    """‖actual − expected‖ <= tol ‖scale‖ (scale: `expected` unless that may vanish); NaN never passes."""
    assert actual.shape == expected.shape, (actual.shape, expected.shape)
    if actual.numel() == 0:
        return
    size = float((expected if scale is None else scale).double().norm())
    error = float((actual.double() - expected.double()).norm())
    assert error <= tol * size, f"relative error {error / size if size else error:.2e} exceeds {tol:.0e}"


def plain(f: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
    """f on tensors that record gradients, which keeps the fused kernels out: the plain torch path."""
    with torch.enable_grad():
        return f(*(t.detach().clone().requires_grad_() for t in tensors)).detach()


# Operators: phi on a video x, another video z, and snapshots y, w of matching shapes.


def adjoint(phi: CodedOperator, x: Tensor, y: Tensor, tol: float) -> None:
    left, right = (phi.A(x) * y).sum(), (x * phi.A_adjoint(y)).sum()
    assert abs(left - right) <= tol * phi.A(x).norm() * y.norm()


def linear(phi: CodedOperator, x: Tensor, z: Tensor, tol: float) -> None:
    expected = 2 * phi.A(x) - 3 * phi.A(z)
    close(phi.A(2 * x - 3 * z), expected, tol, scale=phi.norm() * torch.stack([x, z]))


def gram(phi: CodedOperator, y: Tensor, tol: float) -> None:
    close(phi.gram(y), phi.A(phi.A_adjoint(y)), tol, scale=phi.norm() ** 2 * y)


def moore_penrose(phi: CodedOperator, x: Tensor, z: Tensor, y: Tensor, w: Tensor, tol: float) -> None:
    """The four conditions that make A_dagger *the* pseudo-inverse."""
    close(phi.A(phi.A_dagger(phi.A(x))), phi.A(x), tol)
    close(phi.A_dagger(phi.A(phi.A_dagger(y))), phi.A_dagger(y), tol)
    symmetric(lambda u: phi.A(phi.A_dagger(u)), y, w, tol)
    symmetric(lambda u: phi.A_dagger(phi.A(u)), x, z, tol)


def symmetric(f: Map, a: Tensor, b: Tensor, tol: float) -> None:
    assert abs((f(a) * b).sum() - (a * f(b)).sum()) <= tol * a.norm() * b.norm()


def projection(phi: CodedOperator, x: Tensor, z: Tensor, y: Tensor, tol: float) -> None:
    """Onto {Φx = y}, y in the range of Φ: feasible, idempotent, nonexpansive, and by the shortest way."""
    p = phi.project(x, y)
    close(phi.A(p), y, tol)
    close(phi.project(p, y), p, tol)
    assert (p - phi.project(z, y)).norm() <= (1 + tol) * (x - z).norm()
    inside = phi.project(z, y) - p
    assert abs(((x - p) * inside).sum()) <= tol * x.norm() * (x.norm() + z.norm())


def proximal(phi: CodedOperator, z: Tensor, y: Tensor, gamma: float, tol: float) -> None:
    """The gradient γΦᵀ(Φx − y) + (x − z) of the objective vanishes at x = prox_l2(z, y, γ)."""
    x = phi.prox_l2(z, y, gamma)
    pull = gamma * phi.A_adjoint(phi.A(x) - y)
    assert (pull + (x - z)).norm() <= tol * (1 + gamma * phi.norm() ** 2) * (z.norm() + y.norm())


def dense(phi: CodedOperator, shape: tuple[int, int, int]) -> Tensor:
    """Φ as a matrix, column by column."""
    size = shape[0] * shape[1] * shape[2]
    basis = torch.eye(size, dtype=phi.masks.dtype).reshape(size, *shape)
    return phi.A(basis).reshape(size, -1).T


# Maps in general: denoisers with a fixed sigma, algorithms with fixed masks.


def pure(f: Map, x: Tensor) -> None:
    """Same input, same output; the input is left as it was and shares no memory with the output."""
    before = x.clone()
    first = f(x)
    kept = first.clone()
    assert torch.equal(f(x), kept)
    first.add_(1)
    assert torch.equal(x, before)


def batch_independent(f: Map, x: Tensor, tol: float = 1e-12) -> None:
    """f of a batch is the batch of f's, for one leading axis and for two."""
    together = f(x)
    for n in range(len(x)):
        close(f(x[n]), together[n], tol)
        close(f(x[n : n + 1])[0], together[n], tol)
    close(f(x.unsqueeze(1)).squeeze(1), together, tol)


def homogeneous(f: Callable[[Tensor, float], Tensor], x: Tensor, sigma: float, tol: float) -> None:
    """f(cx, cσ) = c f(x, σ): no hidden absolute number."""
    for c in (1e-6, 1e6):
        close(f(c * x, c * sigma) / c, f(x, sigma), tol)


def right_gradients(net: nn.Module, f: Map, x: Tensor) -> None:
    """The gradient of f, which runs the network, agrees with finite differences, and reaches every weight."""
    x = x.requires_grad_()
    assert torch.autograd.gradcheck(f, (x,), atol=1e-6)
    f(x).square().sum().backward()
    assert all(p.grad is not None and bool((p.grad != 0).any()) for p in net.parameters())


def firmly_nonexpansive(f: Map, x: Tensor, z: Tensor, slack: float) -> None:
    """‖f(x) − f(z)‖² <= ⟨f(x) − f(z), x − z⟩, the mark of a proximal operator."""
    d = f(x) - f(z)
    assert d.square().sum() <= (d * (x - z)).sum() + slack * (x - z).square().sum()


def minimises(objective: Map, v: Tensor, slack: float, *, tries: int = 60) -> None:
    """No random perturbation of v, large or small, has a lower objective."""
    best = objective(v)
    for n in range(tries):
        h = normal(*v.shape, seed=n)
        for size in (1e-1, 1e-2, 1e-3):
            assert objective(v + size * h) >= best - slack * best.abs()


def camera(phi: CodedOperator, x: Tensor, y: Tensor, tol: float = 1e-10) -> None:
    """Everything that makes an operator a camera, on videos x (n, T, H, W) and any measurements y (n, *image)."""
    z, w = x.flip(0).square(), y.flip(0).square()
    adjoint(phi, x, y, tol)
    linear(phi, x, z, tol)
    gram(phi, y, tol)
    moore_penrose(phi, x, z, y, w, tol)
    projection(phi, x, z, phi.A(z), tol)
    proximal(phi, z, y, 0.7, tol)
    close(phi.scaled(3.0).A(x), 3 * phi.A(x), tol)
    assert abs(phi.scaled(3.0).norm() - 3 * phi.norm()) <= tol * phi.norm()
    close(phi.project(x, y), x + phi.A_dagger(y - phi.A(x)), tol)
    both, carried = phi.project_carried(x, y, w)
    close(carried, w + y - phi.A(x), tol)
    close(both, phi.project(x, carried), tol)
    assert phi.A(x).shape[-len(phi.image) :] == phi.image
    assert phi.A_adjoint(y).shape[-3:] == phi.video
