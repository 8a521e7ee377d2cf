"""Materials that look real at any resolution: stone, marble, wood, brick and cloth made from fractal noise."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Random = np.random.Generator


def material(rng: Random, pixel: float) -> Array:
    """One square of material (unit length, periodic) with values about 0.5: stone, marble, wood, brick or cloth."""
    octaves = int(np.clip(np.ceil(np.log2(1 / pixel)) - 2, 3, 11))
    size = min(4 << octaves, 4096)
    rough = _noise(rng, size, octaves, rng.uniform(0.66, 0.84))
    bend = _noise(rng, size, 4, 0.5)
    y, x = np.meshgrid(*[np.arange(size, dtype=np.float32) / size] * 2, indexing="ij")
    kind, n = rng.integers(5), int(rng.integers(5, 10))
    if kind == 0:
        body = rough + 0.5 * bend
    elif kind == 1:
        body = 1.6 - 2.2 * np.abs(bend + 0.35 * rough) + 0.3 * rough
    elif kind == 2:
        fibre = _noise(rng, size, octaves, 0.85, aspect=16)
        body = 0.8 * np.sin(2 * np.pi * (n * y + 0.5 * bend)) + 0.7 * fibre + 0.3 * rough
    elif kind == 3:
        row = np.floor(y * 2 * n)
        column = np.floor(x * n + 0.5 * (row % 2)) % n
        edge = np.abs((y * 2 * n) % 1 - 0.5) > 0.42
        edge |= np.abs((x * n + 0.5 * (row % 2)) % 1 - 0.5) > 0.46
        tone = rng.standard_normal((2 * n, n)).astype(np.float32)[row.astype(int), column.astype(int)]
        body = np.where(edge, -1.2 + 0.4 * rough, 0.6 * tone + 0.6 * rough)
    else:
        body = 0.9 * np.sin(6 * np.pi * n * x) * np.sin(6 * np.pi * n * y) + 0.6 * rough + 0.5 * bend
    return np.asarray(np.clip(0.5 + 0.12 * body, 0.05, 1), np.float32)


def sample(texture: Array, y: Array, x: Array) -> Array:
    """The texture, repeated without end, at the coordinates y and x in unit lengths (they broadcast)."""
    from scipy.ndimage import map_coordinates

    n = np.float32(len(texture))
    coordinates = np.stack(np.broadcast_arrays(y * n, x * n))
    return np.asarray(map_coordinates(texture, coordinates, np.float32, order=1, mode="grid-wrap", prefilter=False))


def _noise(rng: Random, size: int, octaves: int, gain: float, aspect: int = 1) -> Array:
    """Fractal noise (size, size), periodic: octave k is a random 2ᵏ lattice, interpolated; unit variance."""
    out = np.zeros((size, size), np.float32)
    power = 0.0
    for k, child in enumerate(rng.spawn(12)):  # always the same number, so that resolution does not change the scene
        if k >= octaves:
            break
        lattice = child.standard_normal((2 << k, max((2 << k) // aspect, 2))).astype(np.float32)
        amplitude = gain**k
        out += amplitude * _stretch(_stretch(lattice, size, child).T, size, child).T
        power += amplitude**2
    return out / np.float32(np.sqrt(power) * 0.62)


def _stretch(lattice: Array, size: int, rng: Random) -> Array:
    """Periodic cubic (Catmull–Rom) interpolation of the first axis to `size` samples, at a random offset."""
    n = len(lattice)
    position = np.arange(size) * (n / size) + rng.uniform(0, n)
    base = np.floor(position).astype(int)
    f = (position - base).astype(np.float32)[:, None]
    weights = (
        ((2 - f) * f - 1) * f / 2,
        ((3 * f - 5) * f * f + 2) / 2,
        ((4 - 3 * f) * f + 1) * f / 2,
        (f - 1) * f * f / 2,
    )
    taps = (w * lattice[(base + k - 1) % n] for k, w in enumerate(weights))
    return np.asarray(sum(taps), np.float32)
