r"""Does the iteration converge? Measured constants, and certificates where the construction proves one.

Certificates, numbered as in docs/cookbook/convergence.md: (21) D averaged, (22) its output clamped, (23) D a strict
contraction, (24) 1-Lipschitz by construction, (25) gradient step. They are about the map; whether they carry over to a
solver is the solver's affair (26). Everything else is an estimate at a point, and is called so.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from unsnap.algorithms import GAP
from unsnap.algorithms.iteration import States
from unsnap.errors import InputError
from unsnap.fixed_point import FixedPoint, anderson, picard, rates
from unsnap.fixed_point.backward import Unroll
from unsnap.fixed_point.picard import Picard
from unsnap.fixed_point.solver import Solver
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
    """What is proven about a model, and what was only measured at one point."""

    certified: bool
    """Convergence is proven for the map and the model's solver together, in exact arithmetic."""
    kind: str
    """One of the keys of `_MAPS`: `contraction`, `averaged`, `splitting`, …, or `none`."""
    bound: float | None
    """Proven Lipschitz bound of the map (None: nothing is proven)."""
    statement: str
    evidence: dict[str, Any] = field(default_factory=dict)
    """What the network says of itself, layer by layer."""
    local_lipschitz: float | None = None
    spectral_radius: float | None = None
    map_certified: bool = False
    """Convergence of the plain iteration is proven, whatever solver the model has."""
    descends: bool = False
    """The plain iteration lowers the network's own energy at every step; by itself no proof that it settles."""
    solver: Solver = field(default_factory=picard)
    rounding: float | None = None
    """What rounding may leave of the relative residual with the snapshots at hand (`rounding_floor`)."""

    def evaluations(self, tol: float, first: float | None = None) -> int | None:
        r"""Evaluations after which the solver's relative residual is <= tol for any snapshot and mask.

        None: no number is proven, or `rounding` leaves more than tol. From any start; with damping < 1 from any start
        in [0, 1], or `first`: the relative residual of the first evaluation. The values of a contraction by c with
        clamped output lie between $(1 - c)r$ and $(1 - c)r + c$ (`networks/certified.py`): in units of $\sqrt n$ none
        is shorter than $(1 - c)\bar r$ or longer than 1, and no two are further apart than c. The rest is in
        `fixed_point/rates.py`.
        """
        floor, c = self.evidence.get("floor"), self.bound
        if self.kind != "contraction" or c is None or floor is None:
            return None
        damped = getattr(self.solver, "damping", 1.0) < 1
        start = (1.0 if damped else math.inf) if first is None else first
        f = rates.Contraction(c, shortest=(1 - c) * floor, spread=c)
        return rates.evaluations(self.solver, f, tol - (self.rounding or 0.0), start)

    def range(self, tol: float, dtype: torch.dtype = torch.float32) -> float | None:
        r"""How long $\Phi^+y$ may be, in lengths of the result, so that rounding takes no more than half of tol.

        From `rounding_floor`. In this range `within(tol)` evaluations are enough, whatever the scale of masks and
        snapshot, which is taken out exactly; beyond it the tolerance may be out of reach. None: nothing is proven, or
        the tolerance is too small for this arithmetic.
        """
        if self.kind != "contraction" or self.bound is None:
            return None
        longest = tol / 2 * (1 - self.bound) / torch.finfo(dtype).eps - 2
        return longest if longest > 0 else None

    def within(self, tol: float) -> int | None:
        """Evaluations that are enough in computed arithmetic for every snapshot in the `range`."""
        return replace(self, rounding=tol / 2).evaluations(tol)


_MAPS = {
    "contraction": "contracts by {bound:.4g} or less: one fixed point for every snapshot and mask (23)",
    "averaged and clamped": "averaged and clamped: a fixed point exists for every snapshot and mask (21), (22)",
    "averaged": "averaged (21)",
    "splitting": "Douglas–Rachford splitting with a firmly nonexpansive denoiser: one fixed point for every snapshot "
    "and mask, whose video fits the snapshot (32)",
    "convex gradient step": "descends a convex energy that has a minimum for every snapshot and mask: averaged, and a "
    "fixed point exists (21), (25)",
    "gradient step": "descends the network's own energy at every plain step (25), so that the residual of the plain "
    "iteration goes to zero; that it settles at one fixed point is not proven",
    "none": "no certificate: nothing in this construction bounds the map's Lipschitz constant by 1",
}
_CONVERGENT = ("contraction", "averaged and clamped", "averaged", "splitting", "convex gradient step")


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
    if not isinstance(model, Equilibrium):
        raise InputError(f"only an equilibrium has something to certify, and this is a model {type(model).__name__}")
    evidence, solver = _evidence(model), _solver(model)[0]
    kind = evidence.get("kind", "none")
    proven = kind in _CONVERGENT
    certificate = Certificate(
        certified=proven and _keeps(kind, solver),
        kind=kind,
        bound=None if kind == "none" else float(evidence["bound"]),
        statement="",
        evidence=evidence,
        map_certified=proven,
        descends=kind.endswith("gradient step"),
        solver=solver,
    )
    if y is None or phi is None:
        return replace(certificate, statement=_statement(certificate, model))
    with torch.no_grad():
        solution = solution or model(y, phi)
    lead = y.ndim - len(phi.image)
    state = tuple(part.flatten(0, lead - 1) if lead else part[None] for part in solution.state)
    f, z = _flat(model.bind(y, phi), state)
    generator = torch.Generator().manual_seed(0)
    local = lipschitz(f, z, iterations=iterations, generator=generator)
    radius = spectral_radius(f, z, iterations=iterations, generator=generator)
    certificate = replace(
        certificate,
        local_lipschitz=max(local, radius),  # both are bounds on ‖J‖ from below; Arnoldi's may have come further
        spectral_radius=radius,
        rounding=_rounding(certificate, solution.x, y, phi),
    )
    return replace(certificate, statement=_statement(certificate, model, solution.x.dtype))


def _keeps(kind: str, solver: Solver) -> bool:
    """Does the solver keep the guarantee? A safeguard looks at states, and splitting cannot expand in another norm."""
    return isinstance(solver, Picard) if kind == "splitting" else rates.keeps_guarantees(solver)


def rounding_floor(x: Tensor, y: Tensor, phi: CodedOperator, contraction: float, spread: float = math.inf) -> float:
    r"""What rounding may leave of the relative residual near x: $\varepsilon(\|\Phi^+y\| + 2\|x\|)/((1 - c)\|x\|)$.

    Let the computed map be $\hat f = f + e$ with $\|e\| \le E$. A plain step then has
    $\|\hat f(\hat z) - \hat z\| \le c\|\hat g\| + 2E$, so residuals fall to $2E/(1 - c)$ and need not fall further;
    damping cancels. E has two sources. The data step adds $\Phi^+y$, $\Phi^+\Phi z$ and z, which are rounded to
    $u = \varepsilon/2$ of their size; $|\Phi|^+|\Phi|$ is a projector like $\Phi^+\Phi$, so the sizes add up to
    $\|\Phi^+y\| + 2\|z\|$ at most, however the masks' signs mix. Every layer of D rounds its values to about u of the
    same size, and no later layer enlarges that. Rounding errors are as good as random, so we take E = u times that
    size: a model, not a proof; measured errors were 0.2 to 0.7 times this, and less with outliers in y, which count in
    full here though a clamp hides most of theirs. The largest over the snapshots.

    spread: no two values of f are further apart than this times $\sqrt n$, nor is any residual of theirs larger.
    """
    y, phi = phi.normalised(y)
    size = x.double().flatten(-3).norm(dim=-1)
    data = phi.A_dagger(y).double().flatten(-3).norm(dim=-1)
    floor = torch.finfo(x.dtype).eps * (data / size + 2) / (1 - contraction)
    return float(torch.minimum(floor, spread * math.sqrt(x.shape[-3:].numel()) / size).max())


def _rounding(certificate: Certificate, x: Tensor, y: Tensor, phi: CodedOperator) -> float | None:
    if certificate.kind != "contraction" or certificate.bound is None:
        return None
    spread = certificate.bound if certificate.evidence.get("clamp") else math.inf
    return rounding_floor(x, y, phi, certificate.bound, spread)


def _solver(model: Equilibrium) -> tuple[Solver, int]:
    """What the model iterates with, and how often at most."""
    if isinstance(model.backward, Unroll):
        return picard(), model.backward.steps
    return model.solver, model.max_iter


def _statement(certificate: Certificate, model: Equilibrium, dtype: torch.dtype | None = None) -> str:
    """One sentence: the map, the solver, the number, and what rounding does to it."""
    said = _MAPS[certificate.kind].format(bound=certificate.bound)
    if certificate.local_lipschitz is not None and not certificate.map_certified:
        local, radius = certificate.local_lipschitz, certificate.spectral_radius
        said += f"; local estimate {local:.2f} at this point (spectral radius {radius:.2f})"
    if certificate.kind == "none" or (certificate.kind == "gradient step" and isinstance(certificate.solver, Picard)):
        return said
    solver = rates.describe(certificate.solver)
    if not certificate.certified:
        guarded = certificate.map_certified and _keeps(certificate.kind, anderson(safeguard=0.9))
        remedy = "picard() or anderson(safeguard=0.9)" if guarded else "picard()"
        return f"{said}; but nothing is proven about the solver used, {solver}: choose {remedy}"
    return f"{said}; {_reached(certificate, solver)}{_counted(certificate, model, dtype)}"


def _reached(certificate: Certificate, solver: str) -> str:
    if certificate.kind == "contraction":
        return f"{solver} reaches it from any start"
    if certificate.kind == "splitting":
        return f"{solver} reaches it from any start, at no proven rate"
    whenever = " whenever there is one" if certificate.kind == "averaged" else ""
    if isinstance(certificate.solver, Picard):
        return (
            f"{solver} reaches a fixed point from any start{whenever}, with a residual that never increases, "
            "at no proven rate"
        )
    there = " whenever there is a fixed point" if whenever else ""
    return f"with {solver} the residual goes to zero from any start{there}, at no proven rate (26)"


def _counted(certificate: Certificate, model: Equilibrium, dtype: torch.dtype | None) -> str:
    """The number of evaluations; with snapshots, in the arithmetic at hand."""
    exact = replace(certificate, rounding=None).evaluations(model.tol)
    enough, rounding = certificate.evaluations(model.tol), certificate.rounding
    leaves = "" if rounding is None else f"rounding in {str(dtype).removeprefix('torch.')} may leave {rounding:.1e}"
    if exact is None:
        return leaves and f"; {leaves} of the relative residual with these snapshots"
    if enough is None:
        return (
            f"; but with these snapshots {leaves} of the relative residual, more than the tolerance {model.tol:.0e}: "
            "compute in float64, or take outliers out of them"
        )
    start = " from a start in [0, 1]" if getattr(certificate.solver, "damping", 1.0) < 1 else ""
    limit = _solver(model)[1]
    stops = f" (this model stops after {limit})" if limit < enough else ""
    said = f"; relative residual {model.tol:.0e} within {enough} evaluations{start}{stops}"
    if leaves:
        return f"{said}, of which {leaves}"
    longest = certificate.range(model.tol)
    if longest is None:
        return f"{said} in exact arithmetic, which float32 is too coarse for: compute in float64"
    return (
        f"{said} in exact arithmetic; in float32 within {certificate.within(model.tol)} for snapshots whose "
        f"least-squares video is at most {longest:.3g} times as long as the result; rounding may leave more beyond"
    )


def _evidence(model: Equilibrium) -> dict[str, Any]:
    """What the network proves of itself, if the step around it lets that stand: gap and pgd are nonexpansive."""
    bound = getattr(model.network, "lipschitz_bound", None)
    if bound is None or not (model.iteration.nonexpansive or model.iteration.splitting):
        return {}
    evidence: dict[str, Any] = bound()
    if model.iteration.splitting:
        return {**evidence, "kind": "splitting"} if evidence.get("firm") else {}
    descent_elsewhere = evidence["kind"].endswith("gradient step") and not isinstance(model.iteration, GAP)
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
