"""A method on a sample of a picture, which finds what all its tiles must agree on, and on one tile."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

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


def survey(
    sample: Scene,
    method: Method,
    *,
    iterations: int | None = None,
    tol: float | None = None,
    seed: int | None = None,
    together: bool = False,
) -> Answers:
    """What the method finds out about a picture as a whole, from a sample of it; tensors and numbers by name."""
    whole = Whole()
    _run(sample, whole, method, iterations, tol, seed, together, None)
    return whole.found


def reconstruct(
    scene: Scene,
    method: Method,
    answers: Answers | None,
    *,
    iterations: int | None = None,
    tol: float | None = None,
    seed: int | None = None,
    together: bool = False,
    callback: Callback | None = None,
) -> Part:
    """The method on a part of a scene (`cut`), told the answers for the whole; the same bits wherever it runs."""
    return _run(scene, Whole(answers), method, iterations, tol, seed, together, callback)


def _run(
    scene: Scene,
    whole: Whole,
    method: Method,
    iterations: int | None,
    tol: float | None,
    seed: int | None,
    together: bool,
    callback: Callback | None,
) -> Part:
    if seed is not None:
        torch.manual_seed(seed)  # for every part anew: chance must not depend on what ran before
    phi = scene.operator.part_of(whole)
    found = method(scene.measurement, phi, iterations=iterations, tol=tol, callback=callback, together=together)
    energy = found.x.square().sum((-3, -2, -1), dtype=torch.float64)
    return Part(found.x, energy, found.final, found.converged, found.diverged, found.iterations)
