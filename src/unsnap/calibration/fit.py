r"""Gauss–Newton on pixels that a reconstruction has not seen.

With the exact projection of GAP, and nearly so with any prior, a video can be found that explains *every* pixel through
wrong masks too. So a part of the pixels is held out, the video $\hat x$ is found from the rest, and
$r = y - o - \sum_t m_t(\theta)\,\hat x_t$ on what was held out says how wrong the masks are, and by the derivative of
$m_t$ with respect to $\theta$ in which direction. Held out and seen pixels share no noise, so that the step needs no
correction for what the video had fitted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from unsnap.calibration.agreement import local_mean

Array = NDArray[np.float32]
Vector = NDArray[np.float64]
BLOCK, TILES = 16, 4


@dataclass(frozen=True)
class Evidence:
    """One picture's say: its misfit r and prediction (h, w), columns (P, h, w) of ∂prediction/∂θ, and which count.

    probes (P, h, w): what each parameter is read with. Errors of x̂ are in the misfit and in the columns, and their
    product does not average out where masks meet their own second differences; probes are made with a smooth picture.
    """

    misfit: Array
    predicted: Array
    columns: Array
    probes: Array
    counted: NDArray[np.bool_]
    place: int = 0
    """Which picture: what several folds of one picture say of a tile is not independent."""


@dataclass(frozen=True)
class Correction:
    """The change of θ that explains most, its covariance by leaving out tiles in turn, and the misfit's weight sums."""

    change: Vector
    covariance: NDArray[np.float64]

    @property
    def deviation(self) -> Vector:
        found: Vector = np.sqrt(np.maximum(np.diag(self.covariance), 0))
        return found


def gauss_newton(pictures: Iterable[Evidence], free: NDArray[np.bool_], known: Vector | None = None) -> Correction:
    """The δ with Σ w z (r − J δ) = 0 for the probe z of every free parameter; `known` holds δ of the others, or 0."""
    places: dict[int, tuple[Vector, Vector]] = {}
    for picture in pictures:
        if known is not None:
            rest = np.tensordot(known.astype(np.float32), picture.columns, 1)
            picture = replace(picture, misfit=picture.misfit - rest)
        a, b = _normal(picture, free)
        before = places.get(picture.place)
        places[picture.place] = (a, b) if before is None else (a + before[0], b + before[1])
    tiles_a, tiles_b = (np.concatenate(parts) for parts in zip(*places.values(), strict=True))
    a, b = tiles_a.sum(0), tiles_b.sum(0)
    change = _solve(a, b)
    left = np.stack([_solve(a - x, b - y) for x, y in zip(tiles_a, tiles_b, strict=True)])
    count = len(left)
    scatter = (left - left.mean(0)).T @ (left - left.mean(0)) * (count - 1) / count
    step, covariance = np.zeros(len(free)) if known is None else known.copy(), np.zeros((len(free), len(free)))
    step[free] = change
    covariance[np.ix_(free, free)] = scatter
    return Correction(step, covariance)


def _normal(picture: Evidence, free: NDArray[np.bool_]) -> tuple[Vector, Vector]:
    """ZᵀWJ (tiles, P, P) and ZᵀWr (tiles, P)."""
    weight = picture.counted * _weights(picture.misfit, picture.counted)
    stack = np.concatenate([picture.columns[free], picture.misfit[None], picture.probes[free]]).astype(np.float64)
    count = int(free.sum())
    height, width = weight.shape
    across = min(TILES, height // BLOCK or 1), min(TILES, width // BLOCK or 1)
    of_tile = _labels(height, width, *across)
    order = np.argsort(of_tile, kind="stable")
    flat = (stack.reshape(len(stack), -1) * np.sqrt(weight).ravel())[:, order]
    parts = np.split(flat, np.cumsum(np.bincount(of_tile, minlength=across[0] * across[1]))[:-1], axis=1)
    found = np.stack([part[count + 1 :] @ part[: count + 1].T for part in parts])
    return found[..., :-1], found[..., -1]


def _labels(height: int, width: int, rows: int, columns: int) -> NDArray[np.int64]:
    labels: NDArray[np.int64] = (
        (np.arange(height) * rows // height)[:, None] * columns + (np.arange(width) * columns // width)[None]
    ).ravel()
    return labels


def _weights(misfit: Array, counted: NDArray[np.bool_]) -> Vector:
    """One over the local variance of the misfit: where things move, no video is right."""
    power = local_mean((misfit * counted) ** 2, 4.0)
    share = np.maximum(local_mean(counted.astype(np.float32), 4.0), 1e-3)
    variance = power / share
    floor = 0.1 * float(np.median(variance)) + 1e-30
    found: Vector = (1 / (variance + floor)).astype(np.float64)
    return found


def _solve(a: NDArray[np.float64], b: Vector) -> Vector:
    rows = np.maximum(np.abs(a).max(1, keepdims=True), 1e-300)
    columns = np.maximum(np.abs(a / rows).max(0), 1e-300)
    found: Vector = np.linalg.lstsq(a / rows / columns, b / rows[:, 0], rcond=1e-9)[0] / columns
    return found
