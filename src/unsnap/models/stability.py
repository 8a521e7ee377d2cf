r"""Does the iteration converge? Measured constants, and certificates where the construction proves one.

Certificates: (21) D averaged, (22) its output clamped, (23) D a strict contraction, (24) 1-Lipschitz by construction,
(25) gradient step. Everything else is an estimate at a point, and is called so.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from unsnap.algorithms import GAP
from unsnap.algorithms.iteration import States
from unsnap.fixed_point import FixedPoint
from unsnap.models.equilibrium import Equilibrium
from unsnap.operators import CodedOperator

Map = Callable[[Tensor], Tensor]


def lipschitz(f: Map, x: Tensor, *, iterations: int = 30, generator: torch.Generator | None = None) -> float:
    r"""Local Lipschitz constant $\|J\|_2$ of f at x, by power iteration on $J^\top J$: a lower bound that tightens."""
    v = _unit(_randn(x, generator))
    sigma, jacobian = 0.0, _Jacobian(f, x)
    for _ in range(_positive(iterations)):
        forward = jacobian.times(v)
        sigma = float(torch.linalg.vector_norm(forward, dtype=torch.float64))
        if sigma == 0 or not math.isfinite(sigma):
            break
        v = _unit(jacobian.transposed_times(forward / sigma))
    return sigma


def spectral_radius(f: Map, x: Tensor, *, iterations: int = 30, generator: torch.Generator | None = None) -> float:
    """Largest |eigenvalue| of J at x, by Arnoldi: the rate of the plain iteration near x (above 1: it moves away).

    An estimate: exact once `iterations` reaches the number of values in x, or the degrees of freedom that J moves.
    """
    steps = min(_positive(iterations), x.numel())
    basis = torch.zeros(steps + 1, x.numel(), dtype=torch.float64, device=x.device)
    basis[0] = _unit(_randn(x, generator).double().flatten())
    hessenberg, jacobian = basis.new_zeros(steps + 1, steps), _Jacobian(f, x)
    for k in range(steps):
        w = jacobian.times(basis[k].reshape(x.shape).to(x)).double().flatten()
        if not bool(torch.isfinite(w).all()):
            return math.nan
        size = float(torch.linalg.vector_norm(w))
        for _ in range(2):  # once leaves rounding errors that would count as eigenvalues
            part = basis[: k + 1] @ w
            w = w - part @ basis[: k + 1]
            hessenberg[: k + 1, k] += part
        rest = torch.linalg.vector_norm(w)
        if float(rest) <= 4 * torch.finfo(x.dtype).eps * size:
            steps = k + 1
            break
        hessenberg[k + 1, k], basis[k + 1] = rest, w / rest
    return float(torch.linalg.eigvals(hessenberg[:steps, :steps]).abs().max())


@dataclass(frozen=True)
class Certificate:
    """What is proven about a model's plain iteration, and what was only measured at one point."""

    certified: bool
    kind: str
    """`contraction`, `averaged and clamped`, `averaged`, `gradient step` or `none`."""
    bound: float | None
    """Proven Lipschitz bound of the map (None: nothing is proven)."""
    statement: str
    evidence: dict[str, Any] = field(default_factory=dict)
    """What the network says of itself, layer by layer."""
    local_lipschitz: float | None = None
    spectral_radius: float | None = None

    def evaluations(self, tol: float) -> int | None:
        r"""Evaluations after which the plain iteration's relative residual is <= tol for any snapshot, mask and start.

        None: no number is proven. For a contraction by c with clamped output the residual of evaluation k + 1 is at
        most $c^k / ((1 - c)\bar r)$, see `networks/certified.py`.
        """
        floor = self.evidence.get("floor")
        if self.kind != "contraction" or self.bound is None or floor is None or not tol > 0:
            return None
        return 1 + max(1, math.ceil(math.log(tol * (1 - self.bound) * floor) / math.log(self.bound)))


_STATEMENTS = {
    "contraction": "contracts by {bound:.4g} or less: one fixed point for every snapshot and mask, reached at that "
    "rate from any start (23)",
    "averaged and clamped": "averaged and clamped: a fixed point exists for every snapshot and mask, and the plain "
    "iteration reaches one from any start with a residual that never increases, at no proven rate (21), (22)",
    "averaged": "averaged: the plain iteration reaches a fixed point from any start whenever there is one, with a "
    "residual that never increases, at no proven rate (21)",
    "gradient step": "projected gradient descent on the network's own energy, which falls at every step (25)",
    "none": "no certificate: nothing in this construction bounds the map's Lipschitz constant by 1",
}


def certify(
    model: Equilibrium,
    y: Tensor | None = None,
    phi: CodedOperator | None = None,
    *,
    solution: FixedPoint | None = None,
    iterations: int = 30,
) -> Certificate:
    """What is proven about the model; with snapshots y (..., H, W) and phi also estimates at their equilibrium.

    solution: what `model(y, phi)` returned, if it has been solved already.
    """
    evidence = _evidence(model)
    kind = evidence.get("kind", "none")
    certified = kind != "none"
    bound = float(evidence["bound"]) if certified else None
    statement = _STATEMENTS[kind].format(bound=bound)
    enough = Certificate(certified, kind, bound, statement, evidence).evaluations(model.tol)
    if enough is not None:
        statement += f"; relative residual {model.tol:.0e} within {enough} evaluations"
    if y is None or phi is None:
        return Certificate(certified, kind, bound, statement, evidence)
    with torch.no_grad():
        found = (solution or model(y, phi)).state
    lead = y.ndim - len(phi.image)
    state = tuple(part.flatten(0, lead - 1) if lead else part[None] for part in found)
    f, z = _flat(model.bind(y, phi), state)
    generator = torch.Generator().manual_seed(0)
    local = lipschitz(f, z, iterations=iterations, generator=generator)
    radius = spectral_radius(f, z, iterations=iterations, generator=generator)
    local = max(local, radius)  # both are bounds on ‖J‖ from below; Arnoldi's may have come further
    if not certified:
        statement += f"; local estimate {local:.2f} at this point (spectral radius {radius:.2f})"
    return Certificate(certified, kind, bound, statement, evidence, local, radius)


def _evidence(model: Equilibrium) -> dict[str, Any]:
    """What the network proves of itself, if the step around it lets that stand: gap and pgd are nonexpansive."""
    bound = getattr(model.network, "lipschitz_bound", None)
    if bound is None or not model.iteration.nonexpansive:
        return {}
    evidence: dict[str, Any] = bound()
    descent_elsewhere = evidence["kind"] == "gradient step" and not isinstance(model.iteration, GAP)
    return {} if descent_elsewhere else evidence


def _flat(f: Callable[[States], States], state: States) -> tuple[Map, Tensor]:
    """f on one vector, and the state as that vector."""

    def flat(z: Tensor) -> Tensor:
        parts = torch.split(z, [part.numel() for part in state])
        values = f(tuple(p.reshape(part.shape) for p, part in zip(parts, state, strict=True)))
        return torch.cat([value.flatten() for value in values])

    return flat, torch.cat([part.flatten() for part in state])


class _Jacobian:
    """J of f at x from one recorded evaluation: products cost about one pass each, whatever f costs to record."""

    def __init__(self, f: Map, x: Tensor) -> None:
        with torch.enable_grad():
            self._point = x.detach().requires_grad_()
            self._value = f(self._point)
            self._cotangent = torch.zeros_like(self._value).requires_grad_()
            # Jᵀu is linear in u, so its derivative along u is J.
            self._pulled = self._grad(self._value, self._point, self._cotangent, create_graph=True)

    def times(self, v: Tensor) -> Tensor:
        return self._grad(self._pulled, self._cotangent, v)

    def transposed_times(self, u: Tensor) -> Tensor:
        return self._grad(self._value, self._point, u)

    @staticmethod
    def _grad(value: Tensor, point: Tensor, direction: Tensor, create_graph: bool = False) -> Tensor:
        if not value.requires_grad:
            return torch.zeros_like(point)
        product: Tensor = torch.autograd.grad(
            value, point, direction, retain_graph=True, create_graph=create_graph, materialize_grads=True
        )[0]
        return product


def _unit(v: Tensor) -> Tensor:
    size: Tensor = torch.linalg.vector_norm(v)
    return v / size.clamp(min=torch.finfo(v.dtype).tiny)


def _randn(x: Tensor, generator: torch.Generator | None) -> Tensor:
    device = x.device if generator is None else generator.device
    return torch.randn(x.shape, generator=generator, dtype=x.dtype, device=device).to(x.device)


def _positive(iterations: int) -> int:
    if iterations < 1:
        raise ValueError(f"iterations must be at least 1, got {iterations}")
    return iterations
