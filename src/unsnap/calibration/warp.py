"""Masks that are moved, turned, stretched and blurred, and how they change when any of these does.

The masks as given, moved, are the masks that coded the capture:
m'(r) = m(A⁻¹(r − c − s) + c) with A = scale · R(rotation), c the middle of the image and s the shift in pixels, down
and right; rotation is counter-clockwise as seen on a screen.
Between pixels masks are splines, seen through a lens that blurs by a Gaussian: the splines' continuous convolution with
it, sampled at the pixels. (A blur of the pixels themselves leaves masks as sharp as pixels 12 % off behind a lens with
σ = 0.7, and the offset of the sensor with them.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
_REACH = 12
"""Pixels on either side that sharpening takes in: its weights fall as one over the square of the distance."""


@dataclass(frozen=True)
class Motion:
    """shift in pixels, rotation in degrees, scale, blur in pixels (σ), and the order of the splines between pixels.

    blur below 0 undoes a Gaussian: splines between pixels may be softer than the masks are there.
    order: 1 is linear, right for masks as sharp as pixels.
    """

    shift: tuple[float, float] = (0.0, 0.0)
    rotation: float = 0.0
    scale: float = 1.0
    blur: float = 0.0
    order: int = 3

    @property
    def variance(self) -> float:
        return self.blur * abs(self.blur)

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

    def blurrier(self, variance: float) -> Motion:
        total = self.variance + variance
        return replace(self, blur=math.copysign(math.sqrt(abs(total)), total))


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
        """The pictures (K, h, w) in the window, and where they are known."""
        window = window or Window.whole(*self.size)
        if motion.still and motion.blur == 0:
            return self.pictures[window.cut], np.ones((window.height, window.width), np.bool_)
        from unsnap.kernels.resample import resample

        y, x = window.grid
        y, x = y - motion.shift[0], x - motion.shift[1]
        angle = math.radians(motion.rotation)
        # The inverse of the rotation (dy, dx) -> (cos dy - sin dx, sin dy + cos dx).
        rows = (math.cos(angle) * y + math.sin(angle) * x) / motion.scale + (self.size[0] - 1) / 2
        columns = (-math.sin(angle) * y + math.cos(angle) * x) / motion.scale + (self.size[1] - 1) / 2
        known = (rows >= -0.01) & (rows <= self.size[0] - 0.99) & (columns >= -0.01) & (columns <= self.size[1] - 0.99)
        splines = self._splines(min(motion.variance, 0.0), motion.order)
        return resample(splines, rows, columns, _table(motion.order, max(motion.variance, 0.0))), known

    def _splines(self, variance: float, order: int) -> Array:
        from scipy.ndimage import spline_filter

        if self._kept is None or self._kept[0] != (variance, order):
            sharp = sharpened(self.pictures, variance)
            if order > 1:
                sharp = np.stack([spline_filter(picture, order, np.float32, "reflect") for picture in sharp])
            self._kept = (variance, order), sharp
        return self._kept[1]


def coded(plates: Plates, motion: Motion) -> tuple[Array, NDArray[np.bool_]]:
    """The masks that coded the capture: moved, blurred, not negative where those given are not; and where known."""
    masks, known = plates.moved(motion)
    return (masks if float(plates.pictures.min()) < 0 else np.maximum(masks, 0)), known


def _table(order: int, variance: float) -> Array:
    """The B-spline of an order, blurred, at steps of a pixel's small part (see `resample`)."""
    from unsnap.kernels.resample import STEPS

    reach = math.ceil((order + 1) / 2 + 4 * math.sqrt(variance))
    omega = 2 * np.pi * STEPS * np.fft.rfftfreq(4 * reach * STEPS)
    wave = np.sinc(omega / (2 * np.pi)) ** (order + 1) * np.exp(-variance * omega**2 / 2)
    found = np.fft.fftshift(np.fft.irfft(wave))[reach * STEPS : 3 * reach * STEPS + 1] * STEPS
    return np.ascontiguousarray(found, np.float32)


def sharpened(pictures: Array, variance: float) -> Array:
    """Frequencies ω times exp(−variance · ω²/2) along rows and columns, for a variance below 0 (or 0)."""
    from scipy.ndimage import convolve1d

    if variance == 0:
        return pictures
    omega = 2 * np.pi * np.fft.rfftfreq(4 * _REACH)
    weights = np.fft.fftshift(np.fft.irfft(np.exp(-variance * omega**2 / 2)))[_REACH : 3 * _REACH + 1]
    weights = (weights / weights.sum()).astype(np.float32)
    found: Array = convolve1d(convolve1d(pictures, weights, -1, mode="reflect"), weights, -2, mode="reflect")
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
