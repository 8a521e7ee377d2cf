"""One algorithm, one page: a pure step that is the equation, and a thin solve that hands it to `iterate`."""

from unsnap.algorithms.admm import ADMMState, admm, admm_step, admm_unscaled_step
from unsnap.algorithms.gap import GAPState, accelerated_gap_step, gap, gap_step
from unsnap.algorithms.gd import gd, gd_step
from unsnap.algorithms.noisy_gap import noisy_gap, noisy_gap_step
from unsnap.algorithms.pgd import FISTAState, fista, fista_step, pgd, pgd_step

__all__ = [
    "ADMMState",
    "FISTAState",
    "GAPState",
    "accelerated_gap_step",
    "admm",
    "admm_step",
    "admm_unscaled_step",
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
