"""One algorithm, one page: a pure step that is the equation, a thin solve, and the step as a value for models."""

from unsnap.algorithms.admm import ADMM, ADMMState, admm, admm_step, admm_unscaled_step
from unsnap.algorithms.descent import DescentState, Energy, descent, descent_step
from unsnap.algorithms.gap import GAP, AcceleratedGAP, GAPState, accelerated_gap_step, gap, gap_step
from unsnap.algorithms.gd import GD, gd, gd_step
from unsnap.algorithms.iteration import Iteration
from unsnap.algorithms.noisy_gap import noisy_gap, noisy_gap_step
from unsnap.algorithms.pgd import PGD, FISTAState, fista, fista_step, pgd, pgd_step
from unsnap.algorithms.recurrent import Recurrent
from unsnap.registry import Registry

__all__ = [
    "ADMM",
    "GAP",
    "GD",
    "ITERATIONS",
    "PGD",
    "ADMMState",
    "AcceleratedGAP",
    "DescentState",
    "Energy",
    "FISTAState",
    "GAPState",
    "Iteration",
    "Recurrent",
    "accelerated_gap_step",
    "admm",
    "admm_step",
    "admm_unscaled_step",
    "descent",
    "descent_step",
    "fista",
    "fista_step",
    "gap",
    "gap_step",
    "gd",
    "gd_step",
    "noisy_gap",
    "noisy_gap_step",
    "pgd",
    "pgd_step",
]

ITERATIONS: Registry[type[Iteration]] = Registry(
    "iteration",
    {"gap": GAP, "agap": AcceleratedGAP, "pgd": PGD, "gd": GD, "admm": ADMM, "recurrent": Recurrent},
    Iteration,
)
"""Iterations by the name that model files and `unsnap train --set iteration=...` use."""
