"""Masks that are moved, turned, stretched and blurred, and how they change when any of these does.

The masks as given, moved, are the masks that coded the capture:
m'(r) = m(A⁻¹(r − c − s) + c) with A = scale · R(rotation), c the middle of the image and s the shift in pixels, down
and right; rotation is counter-clockwise as seen on a screen.
Between pixels masks are cubic splines; blur is the discrete Gaussian of variance σ², whose derivative with respect to
σ² is half the second difference, exactly (Lindeberg, *Scale-space for discrete signals*, PAMI 1990).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]


@dataclass(frozen=True)
class Motion:
    """shift in pixels, rotation in degrees, scale, blur in pixels (σ), and what the blur is beyond a Gaussian.

    kernel: weights of the differences `shapes` that are added to the masks; they change no mean.
    order: of the splines between pixels; 1 is linear, right for masks as sharp as pixels.
    """

    shift: tuple[float, float] = (0.0, 0.0)
    rotation: float = 0.0
    scale: float = 1.0
    blur: float = 0.0
    kernel: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    order: int = 3

    @property
    def still(self) -> bool:
        return not any(self.shift) and self.rotation == 0 and self.scale == 1

    def moved(self, change: NDArray[np.float64], reach: float) -> Motion:
        """Further by (down, right, turn, stretch), the last two in pixels at `reach` from the middle."""
        down, right, turn, stretch = change.tolist()
        return replace(
            self,
            shift=(self.shift[0] + down, self.shift[1] + right),
            rotation=self.rotation + math.degrees(turn / reach),
            scale=self.scale * math.exp(stretch / reach),
        )


REST = Motion()


@dataclass(frozen=True)
class Window:
    """A part of pictures of `size` (H, W)."""

    size: tuple[int, int]
    top: int
    left: int
    height: int
    width: int

    @staticmethod
    def whole(height: int, width: int) -> Window:
        return Window((height, width), 0, 0, height, width)

    @property
    def cut(self) -> tuple[Any, ...]:
        return (..., slice(self.top, self.top + self.height), slice(self.left, self.left + self.width))

    @property
    def grid(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Rows and columns of the pixels, from the middle of the whole picture."""
        y = np.arange(self.top, self.top + self.height) - (self.size[0] - 1) / 2
        x = np.arange(self.left, self.left + self.width) - (self.size[1] - 1) / 2
        return y[:, None], x[None]


class Plates:
    """Mask pictures (K, H, W) that can be moved; splines through them are found once for each blur."""

    def __init__(self, pictures: Array) -> None:
        self.pictures = np.asarray(pictures, np.float32)
        self._kept: tuple[tuple[float, int], Array] | None = None

    @property
    def size(self) -> tuple[int, int]:
        return self.pictures.shape[-2], self.pictures.shape[-1]

    def moved(self, motion: Motion, window: Window | None = None) -> tuple[Array, NDArray[np.bool_]]:
        """The pictures (K, h, w) in the window without their `kernel`, and where they are known."""
        from scipy.ndimage import map_coordinates

        window = window or Window.whole(*self.size)
        known = np.ones((window.height, window.width), np.bool_)
        if motion.still:
            return blurred(self.pictures, motion.blur)[window.cut], known
        y, x = window.grid
        y, x = y - motion.shift[0], x - motion.shift[1]
        angle = math.radians(motion.rotation)
        # The inverse of the rotation (dy, dx) -> (cos dy - sin dx, sin dy + cos dx).
        rows = (math.cos(angle) * y + math.sin(angle) * x) / motion.scale + (self.size[0] - 1) / 2
        columns = (-math.sin(angle) * y + math.cos(angle) * x) / motion.scale + (self.size[1] - 1) / 2
        known = (rows >= -0.01) & (rows <= self.size[0] - 0.99) & (columns >= -0.01) & (columns <= self.size[1] - 0.99)
        places = np.stack([rows, columns]).astype(np.float32)
        views = [
            map_coordinates(spline, places, np.float32, order=motion.order, mode="mirror", prefilter=False)
            for spline in self._splines(motion.blur, motion.order)
        ]
        return np.stack(views), known

    def _splines(self, blur: float, order: int) -> Array:
        from scipy.ndimage import spline_filter

        if self._kept is None or self._kept[0] != (blur, order):
            soft = blurred(self.pictures, blur)
            if order > 1:
                soft = np.stack([spline_filter(picture, order, np.float32, "mirror") for picture in soft])
            self._kept = (blur, order), soft
        return self._kept[1]


def coded(plates: Plates, motion: Motion) -> tuple[Array, NDArray[np.bool_]]:
    """The masks that coded the capture: moved, blurred, not negative where those given are not; and where known."""
    masks, known = plates.moved(motion)
    masks = with_kernel(masks, motion.kernel)
    return (masks if float(plates.pictures.min()) < 0 else np.maximum(masks, 0)), known


def with_kernel(masks: Array, kernel: tuple[float, ...]) -> Array:
    return (
        masks + sum(weight * shape for weight, shape in zip(kernel, shapes(masks), strict=True))
        if any(kernel)
        else masks
    )


def blurred(pictures: Array, sigma: float) -> Array:
    """Convolved with the discrete Gaussian of variance σ²."""
    from scipy.ndimage import convolve1d
    from scipy.special import ive

    if sigma == 0:
        return pictures
    reach = math.ceil(4 * sigma) + 2
    weights = ive(np.abs(np.arange(-reach, reach + 1)), sigma**2)
    weights = (weights / weights.sum()).astype(np.float32)
    soft: Array = convolve1d(convolve1d(pictures, weights, -1, mode="reflect"), weights, -2, mode="reflect")
    return soft


def shapes(pictures: Array) -> list[Array]:
    """L, L², the product of both directions' second differences, and L³, with L half the discrete Laplacian.

    L widens the kernel: its weight is a variance in pixels². The others keep the variance and change the tails.
    """
    rows, columns = _second(pictures, -2), _second(pictures, -1)
    once = rows + columns
    twice = _second(once, -2) + _second(once, -1)
    return [once, twice, _second(rows, -1), _second(twice, -2) + _second(twice, -1)]


def _second(pictures: Array, axis: int) -> Array:
    from scipy.ndimage import convolve1d

    found: Array = convolve1d(pictures, np.array([0.5, -1, 0.5], np.float32), axis, mode="mirror")
    return found


def slopes(masks: Array) -> tuple[Array, Array]:
    """Slope along rows and columns of the cubic splines through masks (K, h, w), at their pixels."""
    from scipy.ndimage import convolve1d, spline_filter1d

    def along(axis: int) -> Array:
        spline = spline_filter1d(masks, 3, axis, output=np.float32, mode="mirror")
        found: Array = convolve1d(spline, np.array([0.5, 0, -0.5], np.float32), axis, mode="mirror")
        return found

    return along(-2), along(-1)


def movements(down: Array, right: Array, window: Window, reach: float) -> list[NDArray[Any]]:
    """How a picture with these slopes changes with `Motion.moved`: it moves against its slope."""
    y, x = window.grid
    return [-down, -right, (x * down - y * right) / reach, -(y * down + x * right) / reach]
