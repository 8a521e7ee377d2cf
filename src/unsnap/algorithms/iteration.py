r"""An iteration as a value: what a model repeats, `state <- step(state; y, phi, denoise, sigma)`.

Written beside its step, it makes an algorithm an equilibrium (`models/equilibrium.py`: solve state = step(state)) and
an unfolded network (`models/unfolded.py`: a few stages with weights of their own).
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor

from unsnap.algorithms.iterate import Denoiser
from unsnap.fields import check
from unsnap.operators import CodedOperator

States = tuple[Tensor, ...]


class Iteration(ABC):
    """To be subclassed by frozen dataclasses whose fields are numbers: they travel in model files."""

    @property
    def nonexpansive(self) -> bool:
        """Is what comes before the denoiser firmly nonexpansive? Then the denoiser's certificate is the map's."""
        return False

    @property
    def splitting(self) -> bool:
        """Is it Douglas-Rachford splitting in what the denoiser is given, with a projection as its other half?"""
        return False

    @property
    def whole(self) -> bool:
        """Is the network the whole iteration, called as `network(x, y, phi)`, and no denoiser?"""
        return False

    def start(self, x: Tensor) -> States:
        """What is iterated, from a video; the video is the first of the tensors."""
        return (x,)

    def prepared(self, y: Tensor, phi: CodedOperator) -> tuple[Tensor, CodedOperator]:
        """Snapshots and camera in the units of the step; once per solve."""
        return y, phi

    @abstractmethod
    def step(self, state: States, y: Tensor, phi: CodedOperator, denoise: Denoiser, sigma: float | Tensor) -> States:
        """One iteration."""


class Relative(Iteration):
    r"""An iteration whose one number is relative to $\|\Phi\|^2$ of each sample, so that the masks' scale cancels."""

    def __post_init__(self) -> None:
        check("", type(self), vars(self))

    def prepared(self, y: Tensor, phi: CodedOperator) -> tuple[Tensor, CodedOperator]:
        return phi.unit(y)
