"""Masks that are moved, turned, stretched and blurred, and how they change when any of these does.

The masks as given, moved, are the masks that coded the capture:
m'(r) = m(A⁻¹(r − c − s − d(r)) + c) with A = scale · R(rotation), c the middle of the image and s the shift in pixels,
down and right; rotation is counter-clockwise as seen on a screen; d is a field of displacements, a polynomial of third
degree, for lenses and for masks that are not parallel to the sensor.
Masks consist of cells as large as pixels, seen through a lens: what a pixel sees of a cell is two boxes and a Gaussian
convolved, and the cells are those that give the masks as recorded. `softness` is the Gaussian's σ at that time (below
0: pixels see less than their whole area, one box is narrower); `blur` is what the capture's lens adds to it. (A spline
of fixed order has the wrong contrast between pixels, by 2 to 3 %, and the offset of the sensor makes up for it.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
FIELD = 16
"""Factors of a field of displacements."""
SHARPEST, SOFTEST = -0.22, 0.65
"""Of masks as recorded. Softer ones look alike however soft, and their cells are not to be found."""


@dataclass(frozen=True)
class Motion:
    """shift in pixels, rotation in degrees, scale; blur and softness in pixels (σ).

    softness: that of the masks as recorded, 0 for masks as sharp as pixels. distortion: factors of `waves`, or none.
    """

    shift: tuple[float, float] = (0.0, 0.0)
    rotation: float = 0.0
    scale: float = 1.0
    blur: float = 0.0
    softness: float = 0.4
    distortion: tuple[float, ...] = ()

    @property
    def variance(self) -> float:
        return self.blur**2

    @property
    def softness_variance(self) -> float:
        return _squared(self.softness)

    @property
    def still(self) -> bool:
        return not any(self.shift) and self.rotation == 0 and self.scale == 1 and not any(self.distortion)

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
        """By this variance; a capture is not sharper than masks are recorded."""
        return replace(self, blur=math.sqrt(max(self.variance + variance, 0.0)))

    def softer(self, variance: float) -> Motion:
        """With masks that were recorded this much softer."""
        total = min(max(self.softness_variance + variance, _squared(SHARPEST)), _squared(SOFTEST))
        return replace(self, softness=math.copysign(math.sqrt(abs(total)), total))


def _squared(width: float) -> float:
    return width * abs(width)


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
    """Mask pictures (K, H, W) that can be moved; their cells are found once for each softness."""

    def __init__(self, pictures: Array) -> None:
        self.pictures = np.asarray(pictures, np.float32)
        self._kept: tuple[float, Array] | None = None

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
        down, right = displacement(motion.distortion, y, x, max(self.size) / 2)
        y, x = y - motion.shift[0] - down, x - motion.shift[1] - right
        angle = math.radians(motion.rotation)
        # The inverse of the rotation (dy, dx) -> (cos dy - sin dx, sin dy + cos dx).
        rows = (math.cos(angle) * y + math.sin(angle) * x) / motion.scale + (self.size[0] - 1) / 2
        columns = (-math.sin(angle) * y + math.cos(angle) * x) / motion.scale + (self.size[1] - 1) / 2
        known = (rows >= -0.01) & (rows <= self.size[0] - 0.99) & (columns >= -0.01) & (columns <= self.size[1] - 0.99)
        table = _table(motion.softness_variance + motion.variance)
        return resample(self._cells(motion.softness), rows, columns, table), known

    def _cells(self, softness: float) -> Array:
        if self._kept is None or self._kept[0] != softness:
            self._kept = softness, cells(self.pictures, softness)
        return self._kept[1]


def coded(plates: Plates, motion: Motion) -> tuple[Array, NDArray[np.bool_]]:
    """The masks that coded the capture: moved, blurred, not negative where those given are not; and where known."""
    masks, known = plates.moved(motion)
    return (masks if float(plates.pictures.min()) < 0 else np.maximum(masks, 0)), known


def cells(pictures: Array, softness: float) -> Array:
    """The cells (K, H, W) that are seen as these pictures where pixels lie; beyond the edge, those at it again."""
    from scipy.fft import dctn, idctn

    from unsnap.kernels.resample import STEPS

    if softness <= 0:
        return pictures
    seen = _table(softness**2)[::STEPS].astype(np.float64)
    reach = len(seen) // 2
    response = [seen[reach:] @ _doubled_cosines(reach, side) for side in pictures.shape[-2:]]
    found: Array = idctn(dctn(pictures, axes=(-2, -1)) / np.outer(*response).astype(np.float32), axes=(-2, -1))
    return found


def _doubled_cosines(reach: int, side: int) -> NDArray[np.float64]:
    """Row k: what weights at k and −k pixels do to the cosines of a picture's side."""
    waves = np.cos(np.pi * np.arange(reach + 1)[:, None] * np.arange(side) / side)
    waves[1:] *= 2
    return waves


def _table(variance: float) -> Array:
    """What a pixel sees of a cell through a lens, at steps of a pixel's small part (see `resample`)."""
    from unsnap.kernels.resample import STEPS

    lens, area = max(variance, 0.0), math.sqrt(1 + 12 * min(variance, 0.0))
    reach = math.ceil(1 + 4 * math.sqrt(lens))
    frequency = STEPS * np.fft.rfftfreq(4 * reach * STEPS)
    wave = np.sinc(frequency) * np.sinc(area * frequency) * np.exp(-2 * lens * (np.pi * frequency) ** 2)
    found = np.fft.fftshift(np.fft.irfft(wave))[reach * STEPS : 3 * reach * STEPS + 1] * STEPS
    return np.ascontiguousarray(found, np.float32)


def slopes(masks: Array) -> tuple[Array, Array]:
    """Slope along rows and columns of the cubic splines through masks (K, h, w), at their pixels."""
    from scipy.ndimage import convolve1d, spline_filter1d

    def along(axis: int) -> Array:
        spline = spline_filter1d(masks, 3, axis, output=np.float32, mode="mirror")
        found: Array = convolve1d(spline, np.array([0.5, 0, -0.5], np.float32), axis, mode="mirror")
        return found

    return along(-2), along(-1)


def waves(y: NDArray[Any], x: NDArray[Any], reach: float) -> list[tuple[Any, Any]]:
    """What is no similarity, to the third degree: (down, right), in pixels at `reach` from the middle."""
    u, v = y / reach, x / reach
    bent = [u * u, u * v, v * v, u**3, u * u * v, u * v * v, v**3]
    return [(u, -v), (v, u), *((one, 0 * one) for one in bent), *((0 * one, one) for one in bent)]


def displacement(field: tuple[float, ...], y: NDArray[Any], x: NDArray[Any], reach: float) -> tuple[Any, Any]:
    if not any(field):
        return 0.0, 0.0
    parts = list(zip(field, waves(y, x, reach), strict=True))
    return sum(c * down for c, (down, _) in parts), sum(c * right for c, (_, right) in parts)


def movements(down: Array, right: Array, window: Window, reach: float) -> list[NDArray[Any]]:
    """How a picture with these slopes changes with `Motion.moved`: it moves against its slope."""
    y, x = window.grid
    return [-down, -right, (x * down - y * right) / reach, -(y * down + x * right) / reach]
