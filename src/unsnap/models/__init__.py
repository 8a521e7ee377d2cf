"""Reconstructions with weights, each a value that contains its start: equilibria and unfolded networks, as files."""

from unsnap.models.base import Batch, Learning, Model
from unsnap.models.equilibrium import Equilibrium
from unsnap.models.file import load, save
from unsnap.models.interpolation import Interpolation
from unsnap.models.stability import Certificate, certify
from unsnap.models.starts import STARTS, Adjoint, Annealed, LeastSquares, LowRank, TotalVariation
from unsnap.models.unfolded import Unfolded

__all__ = [
    "STARTS",
    "Adjoint",
    "Annealed",
    "Batch",
    "Certificate",
    "Equilibrium",
    "Interpolation",
    "Learning",
    "LeastSquares",
    "LowRank",
    "Model",
    "TotalVariation",
    "Unfolded",
    "certify",
    "load",
    "save",
]
