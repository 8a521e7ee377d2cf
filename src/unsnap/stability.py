r"""Does the iteration converge? Measured constants, and certificates where the construction proves one.

Certificates: (21) D averaged, (22) its output clamped, (23) D a strict contraction, (24) 1-Lipschitz by construction,
(25) gradient step. Everything else is an estimate at a point, and is called so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from unsnap.equilibrium import DEQ

Map = Callable[[Tensor], Tensor]


def lipschitz(f: Map, x: Tensor, *, iterations: int = 30, generator: torch.Generator | None = None) -> float:
    r"""Local Lipschitz constant $\|J\|_2$ of f at x, by power iteration on $J^\top J$: a lower bound that tightens."""
    v = _unit(_randn(x, generator))
    sigma = 0.0
    for _ in range(iterations):
        forward = _jvp(f, x, v)
        sigma = float(torch.linalg.vector_norm(forward))
        if sigma == 0:
            return 0.0
        v = _unit(_vjp(f, x, forward))
    return sigma


def spectral_radius(f: Map, x: Tensor, *, iterations: int = 30, generator: torch.Generator | None = None) -> float:
    """Largest |eigenvalue| of J at x, by Arnoldi: the rate of the plain iteration near x (above 1: it moves away)."""
    basis = [_unit(_randn(x, generator))]
    hessenberg = torch.zeros(iterations + 1, iterations, dtype=torch.float64)
    for k in range(iterations):
        w = _jvp(f, x, basis[k])
        for j, q in enumerate(basis):
            hessenberg[j, k] = float((q * w).sum())
            w = w - hessenberg[j, k].to(w) * q
        size = float(torch.linalg.vector_norm(w))
        hessenberg[k + 1, k] = size
        if size < 1e-7 * float(hessenberg.abs().max()):
            iterations = k + 1
            break
        basis.append(w / size)
    return float(torch.linalg.eigvals(hessenberg[:iterations, :iterations]).abs().max())


def jacobian_penalty(f: Map, x: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
    r"""Hutchinson's estimate of $\|J\|_F^2 / n$ at x (..., T, H, W), differentiable: add it to a training loss."""
    with torch.enable_grad():
        point = x.detach().requires_grad_()
        value = f(point)
        v = _randn(value, generator)
        product: Tensor = torch.autograd.grad(value, point, v, create_graph=True)[0]
    return product.square().mean()


@dataclass(frozen=True)
class Certificate:
    """What is proven about a model's iteration, and what was only measured."""

    certified: bool
    kind: str
    bound: float | None
    """Proven Lipschitz bound of the denoiser (None: nothing is proven)."""
    statement: str
    evidence: dict[str, Any] = field(default_factory=dict)
    local_lipschitz: float | None = None
    spectral_radius: float | None = None


def certify(model: DEQ, y: Tensor | None = None, phi: Any = None, *, iterations: int = 30) -> Certificate:
    """The certificate of a model; with a snapshot y and its operator also local estimates at the equilibrium."""
    kind, bound, statement, evidence = _proof(model)
    local = radius = None
    if y is not None:
        with torch.no_grad():
            solution = model(y, phi)
        f = model.step.bind(y, phi, model.network, model.sigma)
        flat = lambda x: f((x,))[0]  # noqa: E731
        if len(solution.state) == 1:
            local = lipschitz(flat, solution.state[0], iterations=iterations)
            radius = spectral_radius(flat, solution.state[0], iterations=iterations)
            if kind == "none":
                statement = (
                    f"no certificate; local estimate at this equilibrium: ‖J‖ = {local:.2f}, ρ(J) = {radius:.2f}"
                )
    return Certificate(kind != "none", kind, bound, statement, evidence, local, radius)


def _proof(model: DEQ) -> tuple[str, float | None, str, dict[str, Any]]:
    network = model.network
    evidence = network.lipschitz_bound() if hasattr(network, "lipschitz_bound") else None
    if evidence is None:
        return "none", None, "no certificate: nothing in this network's construction bounds its Lipschitz constant", {}
    return "unknown", None, "", evidence


def _jvp(f: Map, x: Tensor, v: Tensor) -> Tensor:
    product: Tensor = torch.func.jvp(f, (x,), (v,))[1]
    return product.detach()


def _vjp(f: Map, x: Tensor, u: Tensor) -> Tensor:
    with torch.enable_grad():
        point = x.detach().requires_grad_()
        product: Tensor = torch.autograd.grad(f(point), point, u)[0]
    return product


def _unit(v: Tensor) -> Tensor:
    return v / torch.linalg.vector_norm(v).clamp(min=torch.finfo(v.dtype).tiny)


def _randn(x: Tensor, generator: torch.Generator | None) -> Tensor:
    return torch.randn(x.shape, generator=generator, dtype=x.dtype, device=x.device)
