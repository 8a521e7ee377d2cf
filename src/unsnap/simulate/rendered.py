"""A rendered high-speed recording: textured room, spinning wheel, bouncing balls, flying cards, splash and debris.

Lengths are in units of the shorter image side, with the origin in the middle and y pointing down; time is in frames.
Every layer is made once from the random generator and is then a pure function of time, so that frame t does not depend
on how many frames are rendered.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from unsnap.errors import InputError
from unsnap.simulate.textures import Array, Random, material, sample

_SPEED = 1 / 256  # one pixel per frame in a 256-pixel image
_GRAVITY = 0.00035
_LENS = 0.7  # blur of the optics in pixels
_LIGHT = np.array([-0.45, -0.65, 0.61], np.float32)
# Digits as 3 × 5 dots, read row by row from the highest bit.
_DIGITS = (0b111101101101111, 0b010110010010111, 0b111001111100111, 0b111001111001111, 0b101101111001001,
           0b111100111001111, 0b111100111101111, 0b111001001001001, 0b111101111101111, 0b111101111001111)  # fmt: skip
_FONT = np.array([[d >> (14 - k) & 1 for k in range(15)] for d in _DIGITS], np.float32).reshape(10, 5, 3)


@dataclass(frozen=True)
class _View:
    """The sampled image plane: an image (h, w) and the coordinates of its samples, `pixel` apart."""

    image: Array
    y: Array
    x: Array
    pixel: float
    tint: float = 1.0
    """How much of the colour that is rendered the present layer reflects."""

    def around(self, cx: float, cy: float, radius: float) -> _View:
        """The part of the view within a square about (cx, cy), with that point as origin."""
        rows = slice(*np.searchsorted(self.y.ravel(), (cy - radius, cy + radius)))
        columns = slice(*np.searchsorted(self.x.ravel(), (cx - radius, cx + radius)))
        y, x = self.y[rows] - np.float32(cy), self.x[:, columns] - np.float32(cx)
        return _View(self.image[rows, columns], y, x, self.pixel, self.tint)

    def cover(self, inside: Array) -> Array:
        """Opacity of a shape from the signed distance to its edge."""
        return np.clip(inside / self.pixel + 0.5, 0, 1)

    def paint(self, colour: Array, opacity: Array) -> None:
        self.image[...] += opacity * (np.float32(self.tint) * colour - self.image)


Layer = Callable[[_View, float], None]


def render(
    frames: int,
    height: int = 256,
    width: int = 256,
    *,
    seed: int = 0,
    speed: float = 1.0,
    supersample: int = 2,
    colour: bool = False,
) -> Tensor:
    """A video (T, H, W) of a scene that the seed decides, float32 in [0, 1], with short exposures.

    At speed 1 the objects move 1 to 6 pixels per frame in a 256-pixel image, and proportionally at other sizes. With
    `colour` every object has one, and the video is (3, T, H, W).

    >>> render(8, 64, 96, seed=3).shape
    torch.Size([8, 64, 96])
    """
    from scipy.ndimage import gaussian_filter

    _check(frames, height, width, speed, supersample)
    rows, columns = height * supersample, width * supersample
    pixel = 1 / (min(height, width) * supersample)
    y = ((np.arange(rows, dtype=np.float32) - (rows - 1) / 2) * pixel).astype(np.float32)[:, None]
    x = ((np.arange(columns, dtype=np.float32) - (columns - 1) / 2) * pixel).astype(np.float32)[None]
    layers = _scene(np.random.default_rng(seed), half_width=columns * pixel / 2, pixel=pixel)
    tints = _tints(len(layers), seed) if colour else np.ones((1, len(layers)))
    video = np.empty((frames, len(tints), height, width), np.float32)
    for t, plane in np.ndindex(video.shape[:2]):
        image = np.zeros((rows, columns), np.float32)
        for layer, tint in zip(layers, tints[plane], strict=True):
            layer(_View(image, y, x, pixel, float(tint)), t * speed)
        soft = gaussian_filter(image, _LENS * supersample, mode="nearest", truncate=3)
        video[t, plane] = soft.reshape(height, supersample, width, supersample).mean((1, 3))
    exposed = torch.from_numpy(_expose(video))
    return exposed.transpose(0, 1).contiguous() if colour else exposed[:, 0]


def _tints(layers: int, seed: int) -> Array:
    """What each layer reflects of red, green and blue, (3, layers): a hue at random, the room's a pale one."""
    hue = np.random.default_rng([seed, 1]).uniform(0, 1, layers)
    wave = 0.5 + 0.5 * np.cos(2 * np.pi * (hue - np.arange(3)[:, None] / 3))
    depth = np.where(np.arange(layers) == 0, 0.3, 0.65)
    return np.asarray(1 - depth * (1 - wave))


def _scene(rng: Random, half_width: float, pixel: float) -> list[Layer]:
    """The layers from back to front."""
    textures = [material(rng, pixel) for _ in range(4)]
    floor = float(rng.uniform(0.16, 0.3))
    spread = max(half_width - 0.15, 0.2)
    layers = [_room(rng, textures[0], textures[1], floor)]
    layers += [_card(rng, textures[2], spread, moving=False) for _ in range(rng.integers(1, 3))]
    layers += [_wheel(rng, textures[3], spread) for _ in range(rng.integers(1, 3))]
    layers += [_card(rng, textures[1], spread, moving=True) for _ in range(rng.integers(1, 3))]
    ground = np.sort(rng.uniform(floor + 0.03, 0.46, rng.integers(2, 6)))
    layers += [_ball(rng, textures[rng.integers(4)], spread, float(g)) for g in ground]
    return [*layers, _splash(rng, spread), _debris(rng, textures[2], spread)]


def _room(rng: Random, wall: Array, ground: Array, floor: float) -> Layer:
    """Wall and perspective floor under a spotlight, panned slowly: the floor passes faster where it is nearer."""
    pan = rng.uniform(-0.5, 0.5) * _SPEED
    lamp_x, lamp_y, depth = rng.uniform(-0.4, 0.4), rng.uniform(-0.6, -0.1), rng.uniform(0.25, 0.5)
    shift, dim = rng.uniform(0, 1, 2), rng.uniform(0.6, 0.9)

    def layer(view: _View, t: float) -> None:
        horizon = int(np.searchsorted(view.y.ravel(), floor))
        near = (view.y[horizon:] - np.float32(floor)) + np.float32(0.12)
        scale = depth / near / 4
        view.image[:horizon] = sample(wall, view.y[:horizon] + shift[0], view.x + np.float32(shift[1] + pan * t))
        tiles = sample(ground, 1.5 * scale, (view.x + np.float32(2 * pan * t)) * scale * 2)
        view.image[horizon:] = dim * tiles * np.clip(0.55 + near * 1.6, 0, 1.1)
        distance = (view.x - np.float32(lamp_x)) ** 2 + (view.y - np.float32(lamp_y)) ** 2
        view.image[...] *= np.float32(view.tint) * (0.45 + 0.9 / (1 + 2.5 * distance))
        view.image[:horizon] *= 1 - 0.35 * np.exp((view.y[:horizon] - np.float32(floor)) / 0.05)

    return layer


def _fold(x: float, half: float) -> float:
    """A position between -half and half, reflected at both ends."""
    return abs((x - half) % (4 * half) - 2 * half) - half


def _shadow(view: _View, cx: float, cy: float, wide: float, high: float, strength: float) -> None:
    part = view.around(cx, cy, 2.2 * max(wide, high))
    part.image[...] *= 1 - strength * np.exp(-((part.x / wide) ** 2 + (part.y / high) ** 2))


def _wheel(rng: Random, texture: Array, spread: float) -> Layer:
    """A spoked wheel, fan or chopper disc with a brushed gleam, printed rim marks and a quartered hub."""
    radius = rng.uniform(0.15, 0.3)
    cx, cy = rng.uniform(-spread, spread), rng.uniform(-0.3, 0.12)
    omega = rng.choice([-1, 1]) * rng.uniform(2, 6) * _SPEED / radius
    n, duty, twist = int(rng.integers(3, 10)), rng.uniform(0.25, 0.6), rng.uniform(-1.2, 1.2) / radius
    rim, hub = rng.uniform(0.72, 0.9) * radius, rng.uniform(0.2, 0.32) * radius
    marks, tone, gleam, start = (
        int(rng.integers(12, 32)),
        rng.uniform(0.5, 1.5),
        rng.uniform(0, np.pi),
        rng.uniform(0, 7),
    )

    def layer(view: _View, t: float) -> None:
        _shadow(view, cx + 0.06, cy + 0.09, radius, radius, 0.5)
        part = view.around(cx, cy, radius * 1.02)
        r = np.hypot(part.x, part.y)
        world = np.arctan2(part.y, part.x)
        angle = world - np.float32(omega * t + start)
        blade = np.abs((angle * n / np.pi + np.float32(twist) * (r - np.float32(hub)) * n) % 2 - 1)
        inside = np.maximum((duty - blade) * r * np.pi / n, np.maximum(r - rim, hub - r))
        opacity = part.cover(np.minimum(inside, radius - r))
        u, v = r * np.cos(angle), r * np.sin(angle)
        colour = tone * sample(texture, 1.7 * u, 1.7 * v) * (1.15 - 0.6 * blade * (r < rim))
        colour += 0.35 * np.cos(world - gleam) ** 8
        tick = ((angle * marks / (2 * np.pi)) % 1 < 0.4) & (r > rim + 0.3 * (radius - rim))
        colour = np.where(tick & (r < radius * 0.97), 0.08 + 0.2 * colour, colour)
        colour = np.where(r < hub * 0.8, np.where(u * v > 0, 0.95, 0.06) * (0.6 + 0.6 * colour), colour)
        bevel = np.clip(np.minimum(np.abs(r - rim), np.abs(r - hub)) / (0.03 * radius), 0.45, 1)
        part.paint((colour * bevel).astype(np.float32), opacity)

    return layer


def _card(rng: Random, texture: Array, spread: float, *, moving: bool) -> Layer:
    """A printed card: rows of digits, a ruler with ticks along its edge, and a target mark; hung up or flying."""
    wide, high = rng.uniform(0.16, 0.28), rng.uniform(0.12, 0.2)
    cx, cy, tilt = rng.uniform(-spread, spread), rng.uniform(-0.4, 0.2), rng.uniform(-0.5, 0.5)
    vx, vy, spin = (
        rng.choice([-1, 1], 3) * rng.uniform((1.5, 0.5, 0), (4, 3, 0.03)) * (moving * np.array([_SPEED, _SPEED, 1]))
    )
    digits, cell = rng.integers(0, 10, (64, 64)), rng.uniform(0.035, 0.06)
    paper, ink = rng.permutation([rng.uniform(0.75, 1.1), rng.uniform(0.08, 0.25)])

    def layer(view: _View, t: float) -> None:
        x, y = _fold(cx + vx * t, spread + 0.1), _fold(cy + vy * t, 0.45)
        turn = tilt + spin * t
        _shadow(view, x + 0.02 + 0.03 * moving, y + 0.03 + 0.04 * moving, 0.8 * wide, 0.8 * high, 0.55)
        part = view.around(x, y, float(np.hypot(wide, high)) / 2 + 2 * view.pixel)
        c, s = np.float32(np.cos(turn)), np.float32(np.sin(turn))
        u, v = c * part.x + s * part.y + np.float32(wide / 2), c * part.y - s * part.x + np.float32(high / 2)
        line = v / cell - 0.25
        row, column = np.floor(line).astype(int), np.floor(u / (0.7 * cell)).astype(int)
        dot_y, dot_x = (line % 1 * 7).astype(int), (u / (0.7 * cell) % 1 * 4).astype(int)
        glyph = _FONT[digits[row % 64, column % 64], np.minimum(dot_y, 4), np.minimum(dot_x, 2)]
        printed = (glyph > 0) & (dot_y < 5) & (dot_x < 3) & (line > 0) & (line < np.floor(high / cell - 1.25))
        printed |= (u / (0.25 * cell) % 1 < 0.4) & (v > high - cell * np.where(u / (1.25 * cell) % 1 < 0.2, 0.9, 0.5))
        a, b = u - np.float32(wide - 0.3 * high), v - np.float32(0.3 * high)
        printed = np.where(a * a + b * b < (0.24 * high) ** 2, a * b > 0, printed)
        colour = (
            np.where(printed, ink, paper)
            * (0.55 + 0.7 * sample(texture, v + np.float32(cx), u))
            * (1.1 - u / wide * 0.35)
        )
        inside = np.minimum(np.minimum(u, wide - u), np.minimum(v, high - v))
        part.paint(colour.astype(np.float32), part.cover(inside))

    return layer


def _ball(rng: Random, texture: Array, spread: float, ground: float) -> Layer:
    """A shaded, spinning ball with its own pattern that bounces on the floor and between the walls."""
    radius = rng.uniform(0.045, 0.11)
    x0, vx = rng.uniform(-spread, spread), rng.choice([-1, 1]) * rng.uniform(1, 4) * _SPEED
    top = rng.uniform(0.1, 0.55)
    half_period, phase = np.sqrt(2 * top / _GRAVITY), rng.uniform(0, 1)
    spin, turn = rng.uniform(-0.09, 0.09), rng.uniform(0, 7)
    sectors, tone, contrast, gloss = (
        int(rng.integers(0, 5)),
        rng.uniform(0.5, 1.5),
        rng.uniform(0.25, 0.6),
        rng.uniform(0.3, 0.9),
    )

    def layer(view: _View, t: float) -> None:
        beat = (t / (2 * half_period) + phase) % 1
        height = top * (1 - (2 * beat - 1) ** 2)
        x, y = _fold(x0 + vx * t, spread + 0.1), ground - radius - height
        fade = 1 / (1 + 5 * height)
        _shadow(view, x + 0.3 * height, ground, radius * (1 + height), 0.3 * radius * (1 + height), 0.75 * fade)
        part = view.around(x, y, radius * 1.03)
        nx, ny = part.x / np.float32(radius), part.y / np.float32(radius)
        r2 = nx * nx + ny * ny
        nz = np.sqrt(np.maximum(1 - r2, 0))
        c, s = np.float32(np.cos(turn + spin * t)), np.float32(np.sin(turn + spin * t))
        u, v = np.arctan2(c * nx + s * ny, nz + 1e-3), np.arcsin(np.clip(c * ny - s * nx, -1, 1))
        colour = tone * sample(texture, 0.22 * v, 0.22 * u)
        if sectors:
            colour *= np.where((np.sin(2 * sectors * u + 1) > 0) ^ (np.sin(3 * v) > 0.2), 1, contrast)
        lambert = np.maximum(nx * _LIGHT[0] + ny * _LIGHT[1] + nz * _LIGHT[2], 0)
        shine = gloss * np.maximum(2 * lambert * nz - _LIGHT[2], 0) ** 30
        part.paint(colour * (0.22 + 1.1 * lambert) + shine, part.cover((1 - np.sqrt(r2)) * radius))

    return layer


def _splash(rng: Random, spread: float) -> Layer:
    """Drops of liquid thrown up from a point, again and again: dark rims, bright cores."""
    n = int(rng.integers(40, 110))
    cx, cy = rng.uniform(-spread, spread), rng.uniform(0.3, 0.46)
    vx, vy = rng.normal(0, 1.6, n) * _SPEED, -rng.uniform(1.5, 5.2, n) * _SPEED
    radius, phase = rng.gamma(3, 0.0025, n) + 0.003, rng.uniform(0, 1, n)
    life = np.abs(2 * vy / _GRAVITY)

    def layer(view: _View, t: float) -> None:
        age = (t / life + phase) % 1 * life
        for x, y, r in zip(cx + vx * age, cy + vy * age + _GRAVITY / 2 * age**2, radius, strict=True):
            part = view.around(x, y, r + view.pixel)
            d = np.hypot(part.x, part.y)
            core = np.exp(-((part.x + 0.3 * r) ** 2 + (part.y + 0.35 * r) ** 2) / (0.12 * r * r))
            part.paint(0.75 - 0.6 * (d / r) ** 2 + 0.7 * core, part.cover(r - d) * np.float32(0.9))

    return layer


def _debris(rng: Random, texture: Array, spread: float) -> Layer:
    """Tumbling chips that fly across the picture."""
    n = int(rng.integers(4, 16))
    x0, y0 = rng.uniform(-spread, spread, n), rng.uniform(-0.5, 0.4, n)
    vx, vy = rng.normal(0, 3, n) * _SPEED, rng.normal(0, 2, n) * _SPEED
    size, spin, turn = rng.uniform(0.012, 0.045, n), rng.normal(0, 0.12, n), rng.uniform(0, 7, n)
    tone = rng.choice([0.35, 1.7], n) * rng.uniform(0.7, 1.2, n)

    def layer(view: _View, t: float) -> None:
        for k in range(n):
            x, y, angle = _fold(x0[k] + vx[k] * t, spread + 0.15), _fold(y0[k] + vy[k] * t, 0.55), turn[k] + spin[k] * t
            part = view.around(x, y, size[k] + view.pixel)
            c, s = np.float32(np.cos(angle)), np.float32(np.sin(angle))
            u, v = c * part.x + s * part.y, c * part.y - s * part.x
            flat = 0.35 + 0.45 * abs(np.sin(0.7 * angle + k))
            inside = np.minimum(flat * size[k] - np.abs(v), 0.7 * size[k] - np.abs(u + np.float32(0.4) * v))
            colour = tone[k] * sample(texture, 2 * v + np.float32(x0[k]), 2 * u) * (0.5 + 0.6 * flat) + 0.12 * (
                inside < 0.002
            )
            part.paint(colour.astype(np.float32), part.cover(inside))

    return layer


def _expose(video: Array) -> Array:
    """Levels and gamma that give the first frame its full range and a mean of 0.45, applied to all frames."""
    low, high = np.percentile(video[0], (0.5, 99.5))
    levels = np.clip(0.02 + 0.96 * (video - low) / (high - low), 0, 1)
    gammas = np.linspace(0.4, 2.5, 43)
    some = levels[0].ravel()[:: max(levels[0].size // 4096, 1)]
    means = np.array([(some**g).mean() for g in gammas])
    gamma = float(gammas[np.abs(means - 0.45).argmin()])
    return np.asarray(levels**gamma, np.float32)


def _check(frames: int, height: int, width: int, speed: float, supersample: int) -> None:
    rules = (("frames", frames, 1), ("height", height, 16), ("width", width, 16), ("supersample", supersample, 1))
    for name, value, least in rules:
        if int(value) != value or value < least:
            raise InputError(f"{name} must be a whole number of at least {least}, got {value}")
    if not np.isfinite(speed):
        raise InputError(f"speed must be finite, got {speed}; 1 is the natural speed")
