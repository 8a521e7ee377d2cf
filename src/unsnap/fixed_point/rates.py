r"""How many evaluations a solver can need at most for a map that contracts: counted from its rules, never measured.

Let $\|f(a) - f(b)\| \le c\|a - b\|$ with c < 1 and $g(z) = f(z) - z$. A solver stops at a relative residual
$\|g(z)\|/\|f(z)\| \le$ tol. Every value of f is at least `shortest` long, also at points outside the range of f, where
accelerated steps may lead; so $\|g(z)\| \le \mathrm{target} = \mathrm{tol}\cdot\mathrm{shortest}$ is enough.

**A plain step** to $z + \delta g$ has the residual $[f(z + \delta g) - f(z)] + (1 - \delta)g$, at most $s\|g\|$ with
$s = 1 - \delta(1 - c)$. If $\delta = 1$ the step leads to a value of f, and the next residual is a difference of two
values of f: at most `spread`, from whatever start.

**Picard.** Evaluation 1 is at the start. Evaluation 2 finds $e_2 \le \min(s e_1, \mathrm{spread\ if\ } \delta = 1)$,
evaluation 2 + k at most $s^k e_2$.

**Anderson with safeguard $\gamma$.** Its first step is plain and always accepted, so $e_2$ is the same. From then on
every accepted point is followed by a trial. Either the trial's residual is at most $\gamma$ times the last accepted one
and it is accepted: one evaluation for the factor $\gamma$. Or it is rejected and a plain step is taken from the last
accepted point, always accepted: two evaluations for the factor s. After a accepted and b rejected trials the residual
is at most $\gamma^a s^b e_2$. While that exceeds the target the solve may go on, at worst with a rejected trial:
$N = 2 + \max\{a + 2b : \gamma^a s^b e_2 > \mathrm{target}\} + 2$. Two accepted trials cost what one rejected costs, so
at the maximum b = 0 if $\gamma^2 \ge s$ and $a \le 1$ otherwise.

**Anderson without safeguard, Broyden**: nothing bounds where a step may lead, and no number is proven.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from unsnap.fixed_point.anderson import Anderson
from unsnap.fixed_point.broyden import Broyden
from unsnap.fixed_point.picard import Picard
from unsnap.fixed_point.solver import Solver


@dataclass(frozen=True)
class Contraction:
    """What is known of a map: its factor c < 1, and its values in some unit of length."""

    factor: float
    shortest: float
    """<= ‖f(z)‖ for every z; more than 0."""
    spread: float = math.inf
    """>= ‖f(a) − f(b)‖ for all a, b."""


def evaluations(solver: Solver, f: Contraction, tol: float, start: float = math.inf) -> int | None:
    """Evaluations after which the relative residual is <= tol; None where none is proven.

    start: a bound on ‖f(z) − z‖ at the start; without it only undamped solvers have a number.

    >>> from unsnap.fixed_point import anderson, picard
    >>> f = Contraction(0.8, shortest=0.0125, spread=0.8)
    >>> evaluations(picard(), f, 1e-5), evaluations(anderson(safeguard=0.9), f, 1e-5), evaluations(anderson(), f, 1e-5)
    (73, 152, None)
    """
    if not isinstance(solver, (Picard, Anderson)) or not keeps_guarantees(solver) or not tol > 0:
        return None
    target = tol * f.shortest
    if start <= target:
        return 1
    damping = solver.plain if isinstance(solver, Anderson) else solver.damping
    step = 1 - damping * (1 - f.factor)
    second = min(step * start, f.spread if damping == 1 else math.inf)
    if not second < math.inf:
        return None
    if second <= target:
        return 2
    orders = math.log(second / target)
    if isinstance(solver, Picard):
        return 2 + _enough(orders, step)
    return 4 + _most(orders, solver.safeguard or 0.0, step)


def keeps_guarantees(solver: Solver) -> bool:
    """Does every step of the solver keep what is proven about the plain one?"""
    return isinstance(solver, Picard) or (isinstance(solver, Anderson) and solver.safeguard is not None)


def describe(solver: Solver) -> str:
    """The solver in words.

    >>> from unsnap.fixed_point import anderson, picard
    >>> describe(picard()), describe(anderson(safeguard=0.9)), describe(anderson(damping=0.5))
    ('the plain iteration', 'Anderson (safeguard 0.9)', 'Anderson (no safeguard, damping 0.5)')
    """
    if isinstance(solver, Broyden):
        return "Broyden's method"
    if not isinstance(solver, (Picard, Anderson)):
        return type(solver).__name__
    notes = [] if solver.damping == 1 else [f"damping {solver.damping:g}"]
    if isinstance(solver, Anderson):
        notes = ["no safeguard" if solver.safeguard is None else f"safeguard {solver.safeguard:g}", *notes]
    name = "the plain iteration" if isinstance(solver, Picard) else "Anderson"
    return f"{name} ({', '.join(notes)})" if notes else name


def _enough(orders: float, factor: float) -> int:
    """The least number of factors that make up e^-orders."""
    return math.ceil(orders / -math.log(factor)) if factor > 0 else 1


def _most(orders: float, accepted: float, rejected: float) -> int:
    """max{a + 2b : accepted^a rejected^b > e^-orders}."""
    counts = [_enough(orders, accepted) - 1]
    for a in (0, 1):
        left = orders + a * math.log(accepted)
        if left > 0:
            counts.append(a + 2 * (_enough(left, rejected) - 1))
    return max(counts)
