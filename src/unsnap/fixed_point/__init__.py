"""Solve z = f(z) and differentiate through the solution. Solvers and backward modes are values.

>>> import torch
>>> from unsnap.fixed_point import anderson, fixed_point
>>> solution = fixed_point(lambda z: 0.5 * z.cos(), torch.zeros(1, 3), solver=anderson(memory=4), tol=1e-6)
>>> bool(solution.converged.all())
True
"""

from collections.abc import Callable

from unsnap.fixed_point.anderson import anderson
from unsnap.fixed_point.backward import implicit, jfb, neumann, phantom, unroll
from unsnap.fixed_point.broyden import broyden
from unsnap.fixed_point.layer import FixedPoint, fixed_point
from unsnap.fixed_point.picard import picard
from unsnap.fixed_point.solver import Solver

__all__ = [
    "SOLVERS",
    "FixedPoint",
    "anderson",
    "broyden",
    "fixed_point",
    "implicit",
    "jfb",
    "neumann",
    "phantom",
    "picard",
    "unroll",
]

SOLVERS: dict[str, Callable[..., Solver]] = {"anderson": anderson, "broyden": broyden, "picard": picard}
"""Solvers by the name that model files use."""
