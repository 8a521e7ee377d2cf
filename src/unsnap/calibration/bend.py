"""What is left of the motion of masks when shift, rotation and scale are found: a smooth field of displacements."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from unsnap.calibration.align import COUNT, MOTION, Picture
from unsnap.calibration.fit import Correction, Evidence, gauss_newton
from unsnap.calibration.warp import FIELD, Motion, waves

_FURTHEST = 0.7
"""Pixels in one step: further away the slopes of masks say nothing."""


@dataclass(frozen=True)
class Bending:
    """A step of shift, rotation, scale and field together, and the points (2, n) at which it is judged."""

    step: Correction
    at: NDArray[np.float64]
    reach: float

    def displacements(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(2n,): by the field alone, and their standard deviations."""
        y, x = self.at
        places = np.array([np.concatenate(one) for one in waves(y, x, self.reach)]).T
        field = slice(COUNT, COUNT + FIELD)
        moved = places @ self.step.change[field]
        variance = np.einsum("ij,jk,ik->i", places, self.step.covariance[field, field], places)
        return moved, np.sqrt(np.maximum(variance, 0))

    def certain(self, sure: float, least: float) -> bool:
        moved, deviation = self.displacements()
        return bool((np.abs(moved) > np.maximum(sure * deviation, least)).any())

    def applied(self, motion: Motion, reach: float) -> Motion:
        furthest = max(float(np.abs(self.displacements()[0]).max()), float(np.abs(self.step.change[MOTION]).max()))
        change = self.step.change * min(1.0, _FURTHEST / max(furthest, 1e-300))
        before = np.asarray(motion.distortion or (0.0,) * FIELD)
        distortion = tuple((before + change[COUNT:]).tolist())
        return replace(motion.moved(change[MOTION], reach), distortion=distortion)


def bend(evidence: list[Evidence], pictures: list[Picture], reach: float) -> Bending:
    """The step that a field of displacements would take: masks move against their slopes, as in a shift."""
    wide = []
    for one in evidence:
        y, x = np.broadcast_arrays(*pictures[one.place].window.grid)
        shapes = waves(y, x, reach)
        more = [
            np.stack([down * part[0] + right * part[1] for down, right in shapes]).astype(np.float32)
            for part in (one.columns, one.probes)
        ]
        columns, probes = (np.concatenate(pair) for pair in zip((one.columns, one.probes), more, strict=True))
        wide.append(replace(one, columns=columns, probes=probes))
    free = np.zeros(COUNT + FIELD, np.bool_)
    free[MOTION], free[COUNT:] = True, True
    height, width = pictures[0].window.size
    y, x = np.meshgrid(*(np.linspace(-0.5, 0.5, 5) * (side - 1) for side in (height, width)), indexing="ij")
    return Bending(gauss_newton(wide, free), np.stack([y.ravel(), x.ravel()]), reach)
