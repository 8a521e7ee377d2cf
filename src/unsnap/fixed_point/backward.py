r"""How to differentiate through $\hat z = f(\hat z)$: modes as values.

With $J = \partial f/\partial z$ at $\hat z$, the gradient of a loss is $(\partial f/\partial\theta)^\top a$ where
$a = (I - J)^{-\top} v$ and $v = \partial\ell/\partial\hat z$: one evaluation of f is recorded, whatever number it
took to get there. All modes but `unroll` return $\hat z$ itself and differ in $a$ alone.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from unsnap.fixed_point.adjoint import Map, attach
from unsnap.fixed_point.anderson import anderson
from unsnap.fixed_point.solver import Solver, Trace, relative_norm, solve


@dataclass
class BackwardReport:
    """What the backward passes did, filled in as they run; `residual` and `converged` by `implicit` alone."""

    evaluations: int = 0
    """Products with Jᵀ, and with J for second derivatives."""
    residual: Tensor | None = None
    """(B,) relative residual of the adjoint equation that was solved last."""
    converged: bool | None = None
    """Did every solve?"""


class Attach(Protocol):
    """Given f and the solution z (B, n), return z with a gradient attached."""

    def attach(self, f: Map, z: Tensor, report: BackwardReport) -> Tensor: ...


@dataclass(frozen=True)
class Implicit:
    solver: Solver
    tol: float
    max_iter: int
    order: int

    def attach(self, f: Map, z: Tensor, report: BackwardReport) -> Tensor:
        def inverse(product: Map, v: Tensor) -> Tensor:
            """Solve a = Ja + v, or with Jᵀ; if that fails, the best a found, or v itself (JFB) where none is finite."""

            def evaluate(a: Tensor, rows: Tensor) -> Tensor:
                return _padded(product, a, rows, v) + v[rows]

            trace = solve(evaluate, v, self.solver, self.tol, self.max_iter)
            converged = bool((trace.best <= self.tol).all())
            if not converged:
                _warn(float(trace.best.max()), self.tol, trace.evaluations)
            report.evaluations += trace.evaluations
            report.residual, report.converged = trace.best, converged and report.converged is not False
            return torch.where(torch.isfinite(trace.best)[:, None], trace.z, v)

        return attach(f, z, inverse, self.order)


@dataclass(frozen=True)
class Neumann:
    terms: int

    def attach(self, f: Map, z: Tensor, report: BackwardReport) -> Tensor:
        def inverse(product: Map, v: Tensor) -> Tensor:
            a = v
            for _ in range(self.terms):
                a = product(a) + v
            report.evaluations += self.terms
            return a

        return attach(f, z, inverse)


@dataclass(frozen=True)
class Phantom:
    steps: int
    damping: float

    def attach(self, f: Map, z: Tensor, report: BackwardReport) -> Tensor:
        point = z
        for _ in range(self.steps):
            value = f(point)
            point = value if self.damping == 1 else (1 - self.damping) * point + self.damping * value
        return _StandIn.apply(point, z) if point.requires_grad else z  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class Unroll:
    steps: int

    def run(self, f: Map, z: Tensor, callback: Callable[[int, Tensor, Tensor], None] | None) -> Trace:
        """The last of the plain iterates; its residual is that of the last step."""
        history = []
        for k in range(1, self.steps + 1):
            value = f(z)
            history.append(relative_norm((value - z).detach(), value.detach()))
            z = value
            if callback is not None:
                callback(k, z.detach(), history[-1])
        last = history[-1]
        return Trace(z, last, torch.stack(history), torch.full_like(last, k, dtype=torch.long), ~torch.isfinite(last))


Backward = Attach | Unroll


def implicit(solver: Solver | None = None, tol: float = 1e-6, max_iter: int = 100, order: int = 1) -> Implicit:
    """The exact gradient: a = Jᵀa + v solved to `tol` by its own solver (default: Anderson).

    order: how many times the result may be differentiated (a gradient: 1, a Hessian: 2, more by torch.autograd only);
    each records one evaluation of f and is as exact as its solves. One more than that is refused, on every route.
    If the solve does not converge it warns, once in a process, and uses the best a found, or v itself for a sample
    without a finite one.
    To save memory put a checkpoint inside f, not around the equilibrium: that would solve again for every product.
    """
    if not max_iter >= 1 or not tol >= 0 or not order >= 1:
        raise ValueError(f"implicit needs max_iter >= 1, tol >= 0 and order >= 1, got {max_iter}, {tol} and {order}")
    return Implicit(anderson(memory=9) if solver is None else solver, tol, max_iter, order)


def neumann(terms: int) -> Neumann:
    """a = v + Jᵀv + … + (Jᵀ)^terms v: `terms` beyond the first; converges if the spectral radius of J is below 1.

    Its gradient cannot be differentiated again, which is refused.
    """
    if terms < 0:
        raise ValueError(f"terms must be at least 0, got {terms}")
    return Neumann(terms)


def jfb() -> Phantom:
    """Jacobian-free: a = v, that is, the last application of f alone. Fung et al., AAAI 2022.

    Second derivatives, too, are those of that application, ẑ held constant.
    """
    return Phantom(1, 1.0)


def phantom(steps: int, damping: float = 1.0) -> Phantom:
    """a from a few damped steps z ← (1 − λ)z + λf(z) from the solution. Geng et al., NeurIPS 2021.

    Derivatives of every order are those of the steps, their start ẑ held constant.
    """
    if steps < 1 or not 0 < damping <= 1:
        raise ValueError(f"phantom needs steps >= 1 and damping in (0, 1], got {steps} and {damping}")
    return Phantom(steps, damping)


def unroll(steps: int) -> Unroll:
    """Deep unfolding, no equilibrium: `steps` plain iterations from the start, with or without gradients.

    The solver is not used; all iterations are recorded, so memory grows with them.
    """
    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps}")
    return Unroll(steps)


class _StandIn(torch.autograd.Function):
    """The values of z with the gradient of `value`, which is f(z) or near it."""

    @staticmethod
    def forward(value: Tensor, z: Tensor) -> Tensor:
        return z.view_as(z)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, v: Tensor) -> tuple[Tensor, None]:
        return v, None


def _padded(transpose: Map, a: Tensor, rows: Tensor, v: Tensor) -> Tensor:
    """Jᵀa for some rows of the batch: the recorded graph covers all of it."""
    if len(rows) == len(v):
        return transpose(a)
    full = torch.zeros_like(v)
    full[rows] = a
    return transpose(full)[rows]


_warned = False


def _warn(residual: float, tol: float, evaluations: int) -> None:
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(
            f"the backward solve stopped at relative residual {residual:.1e} > {tol:.1e} after {evaluations} products; "
            "the best adjoint found is used, so gradients are approximate (raise max_iter, or penalise the Jacobian)",
            RuntimeWarning,
            stacklevel=3,
        )
