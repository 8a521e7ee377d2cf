"""A method on a sample of a picture, which finds what all its tiles must agree on, and on one tile."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypedDict

import torch
from torch import Tensor
from typing_extensions import Unpack

from unsnap.algorithms.iterate import Callback
from unsnap.methods import Method
from unsnap.operators.whole import Answers, Whole
from unsnap.scene import Scene


@dataclass(frozen=True)
class Part:
    """The videos (N, T, h, w) of a part of a scene, and how they were reached; of every snapshot (N,)."""

    x: Tensor
    energy: Tensor
    """Sum of the squares of x: how much this part counts in the relative change of the whole."""
    residual: Tensor
    converged: Tensor
    diverged: Tensor
    iterations: int

    def without_video(self) -> Part:
        """What is said of the part, which is small."""
        return replace(self, x=self.x.new_zeros(0))


class How(TypedDict, total=False):
    """What a method is told beside the scene."""

    iterations: int | None
    tol: float | None
    together: bool
    callback: Callback | None


def survey(sample: Scene, method: Method, *, seed: int | None = None, **how: Unpack[How]) -> Answers:
    """What the method finds out about a picture as a whole, from a sample of it; tensors and numbers by name."""
    whole = Whole()
    _run(sample, whole, method, seed, how)
    return whole.found


def reconstruct(
    scene: Scene, method: Method, answers: Answers | None, *, seed: int | None = None, **how: Unpack[How]
) -> Part:
    """The method on a part of a scene (`cut`), told the answers for the whole; the same bits wherever it runs."""
    return _run(scene, Whole(answers), method, seed, how)


def _run(scene: Scene, whole: Whole, method: Method, seed: int | None, how: How) -> Part:
    if seed is not None:
        torch.manual_seed(seed)  # for every part anew: chance must not depend on what ran before
    found = method(scene.measurement, scene.operator.part_of(whole), **how)
    energy = found.x.square().sum((-3, -2, -1), dtype=torch.float64)
    return Part(found.x, energy, found.final, found.converged, found.diverged, found.iterations)
