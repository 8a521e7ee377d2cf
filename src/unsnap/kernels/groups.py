r"""Groups of similar patches found and filtered fast: `match` as in `patches.py`, `smooth` without eigenvectors.

With G the products of a group's patches (less their mean) and c a threshold, $U = G(G + c)^{-1}$ has the eigenvalues
u = λ/(λ + c) of the same eigenvectors, and $F = 3U^2 - 2U^3$ pushes them towards 0 and 1: one inverse and two products
of small matrices in place of an eigenvalue problem, the same cost at every rank.
Against `patches.py` (`python benchmarks/low_rank_speed.py`): `match` 1.4 to 2.8, `smooth` 3.3 to 6.4 times as fast.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from unsnap.kernels import memory, threads
from unsnap.kernels.blocks import (
    NEAR,
    add_row,
    add_tile_8,
    add_tile_16,
    centre_16,
    centre_32,
    copy_row,
    distances,
    inner_products,
    minus_inverse,
    take_eight,
    wide_tile,
)
from unsnap.kernels.compiled import compiled
from unsnap.kernels.patches import LAYERS, in_bands, references, replace_worst, run

Array = npt.NDArray[Any]


def match(video: Array, keys: Array, places: Array, patch: int, size: int, radius: int, span: int) -> Array:
    """The `size` patches nearest to each key patch: (G, size).

    They are searched for in the `span` frames around the key's, within `radius` pixels of places (G, T), which name a
    pixel in every frame, and which become the place of each such frame's nearest patch. A group that finds too few
    repeats its key.
    """
    memory.give_back(video.nbytes)
    width = video.shape[2]
    groups = np.empty((len(keys), size), np.int32)
    # Blocks of places may reach beyond the last one; what they find there is not used.
    flat = np.zeros(video.size + NEAR[0] * width + NEAR[1], video.dtype)
    flat[: video.size] = video.reshape(-1)
    find = partial(_match, flat, video.shape, keys, places, groups, patch, radius, span)
    run([[partial(find, *edge)] for edge in in_bands(len(keys))], groups.size * patch**2)
    return groups


def keys(shape: tuple[int, int, int], patch: int, stride: int) -> Array:
    """`patches.references`, those at one place in all frames together: what is needed next is near in memory."""
    grid = references(shape, patch, stride).reshape(shape[0], -1)
    return np.ascontiguousarray(grid.T).reshape(-1)


def smooth(video: Array, groups: Array, patch: int, limits: Array) -> Array:
    """Each group becomes its mean patch plus F times the rest, c its part of `limits`; overlaps are averaged."""
    memory.give_back(video.nbytes)
    frames, height, width = video.shape
    layers = threads.bands(len(groups), LAYERS)
    # Groups follow one another down the video, so layers share few rows; those that an earlier one reaches a layer
    # adds up above the video, where nobody else writes.
    edges, border, size = [], 0, 0
    for a, b in layers:
        first, last = _rows(groups[a:b], patch, height, width)
        edges.append((first, max(border, first), size))
        border, size = max(border, last), size + frames * max(border - first, 0) * width
    # Two arrays: the result keeps no more memory than a video, and fits where the last one was.
    total, above = np.zeros_like(video), np.zeros(size, video.dtype)
    least = limits.astype(video.dtype)
    chains: list[list[Callable[[], None]]] = [
        [partial(_smooth, video, groups, patch, least, total, above, *edge, a + u, a + v) for u, v in in_bands(b - a)]
        for edge, (a, b) in zip(edges, layers, strict=True)
    ]
    run(chains, groups.size * patch**2)
    for first, border, at in edges:
        shared = above[at : at + frames * (border - first) * width]
        total[:, first:border] += shared.reshape(frames, -1, width)
    for begin, end in threads.bands(frames, 8):
        total[begin:end] /= _covered(groups, patch, np.zeros_like(total[begin:end]), begin)
    return total


@compiled
def _match(flat, shape, keys, places, groups, patch, radius, span, begin, end):  # type: ignore[no-untyped-def]
    frames, height, width = shape
    own, worst = np.empty(patch * patch, flat.dtype), np.empty(groups.shape[1], flat.dtype)
    found = np.empty(NEAR[0] * NEAR[1], flat.dtype)
    for g in range(begin, end):
        key, group = np.int64(keys[g]), groups[g]
        for i in range(patch):
            copy_row(flat, key + i * width, own, i * patch, patch)
        group[:] = key  # what stays if distances are not numbers
        worst[:] = np.inf
        worst[-1] = -1  # the key itself is never replaced: it may be the only one to cover its pixels
        first = max(0, min(key // (height * width) - span // 2, frames - span))
        for t in range(first, min(first + span, frames)):
            y0, x0 = places[g, t] // width, places[g, t] % width
            bottom, right = min(y0 + radius, height - patch), min(x0 + radius, width - patch)
            nearest = np.inf
            for y in range(max(y0 - radius, 0), bottom + 1, NEAR[0]):
                for x in range(max(x0 - radius, 0), right + 1, NEAR[1]):
                    at = (t * height + y) * width + x
                    distances(flat, at, width, own, patch, found)
                    rows, columns = min(NEAR[0], bottom + 1 - y), min(NEAR[1], right + 1 - x)
                    least, place = _consider(found, rows, columns, at, width, key, worst, group)
                    if least < nearest:
                        nearest, places[g, t] = least, place - t * height * width


@compiled
def _consider(found, rows, columns, at, width, key, worst, group):  # type: ignore[no-untyped-def]
    """Let a key meet the patches of one block; the least distance there and its place."""
    least, place = found.dtype.type(np.inf), at
    for r in range(rows):
        for k in range(columns):
            distance, here = found[NEAR[1] * r + k], at + r * width + k
            if distance < least:
                least, place = distance, here
            if distance < worst[0] and here != key:
                replace_worst(worst, group, distance, here)
    return least, place


@compiled
def _smooth(video, groups, patch, limits, total, above, first, border, at, begin, end):  # type: ignore[no-untyped-def]
    """Add the filtered groups to `total` from row `border` on, and the rows before it to `above` from `at` on."""
    n, m, dtype = groups.shape[1], patch * patch, video.dtype
    _, height, width = video.shape
    # Zeros at the end of rows and columns change no product and let whole blocks be computed.
    rows, wide = (n + 7) // 8 * 8, (m + 15) // 16 * 16
    y, out, mean = np.zeros(rows * wide, dtype), np.empty(rows * wide, dtype), np.zeros(wide, dtype)
    gram, share = np.empty(rows * rows, dtype), np.empty(rows * rows, dtype)
    work, pivot = np.empty(rows * max(rows, 16), dtype), np.empty(64, dtype)
    part, squares = np.full(1, 1 / n, dtype), np.empty(8, dtype)
    flat, sums = video.reshape(-1), total.reshape(-1)
    one, least = dtype.type(1), 100 * np.finfo(dtype).eps  # of the energy; rounding errors are not to be inverted
    for g in range(begin, end):
        for k in range(n):
            for i in range(patch):
                copy_row(flat, groups[g, k] + i * width, y, k * wide + i * patch, patch)
        energy = _centre(y, n, mean, wide, part, squares)
        if energy > 0 and limits[g] > 0:
            _products(y, rows, wide, one / energy, gram)
            _shares(gram, rows, max(limits[g] / energy, least), share, work, pivot)
            for a in range(0, rows, 4):
                for b in range(0, wide, 16):
                    place = a * wide + b
                    wide_tile(share, a * rows, rows, y, b, wide, rows, out, place, wide, mean, b)
        else:
            for k in range(n):
                for a in range(m):
                    out[k * wide + a] = y[k * wide + a] + mean[a]
        _scatter(out, wide, groups[g], patch, height, width, sums, above, first, border, at)


@compiled
def _scatter(filtered, wide, group, patch, height, width, sums, above, first, border, at):  # type: ignore[no-untyped-def]
    for k in range(group.size):
        place = np.int64(group[k])
        t, top = place // (height * width), place // width % height
        apart = at + (t * (border - first) + top - first) * width + place % width
        for i in range(patch):
            if top + i < border:
                add_row(filtered, k * wide + i * patch, above, apart + i * width, patch)
            else:
                add_row(filtered, k * wide + i * patch, sums, place + i * width, patch)


@compiled
def _rows(groups, patch, height, width):  # type: ignore[no-untyped-def]
    """The first row that a patch of these groups covers, and the one after the last."""
    first, last = height, 0
    for group in groups:
        for k in range(group.size):
            row = group[k] // width % height
            first, last = min(first, row), max(last, row + patch)
    return first, last


@compiled
def _centre(y, n, mean, wide, share, squares):  # type: ignore[no-untyped-def]
    """Subtract the mean of n patches, as long as `wide`; the sum of squares left. share: one over n, as an array."""
    squares[:] = 0
    for a in range(0, wide - 31, 32):
        centre_32(y, a, wide, n, share, mean, a, squares)
    if wide % 32:
        centre_16(y, wide - 16, wide, n, share, mean, wide - 16, squares)
    total = squares[0]
    for i in range(1, squares.size):
        total += squares[i]
    return total


@compiled
def _products(y, n, wide, scale, gram):  # type: ignore[no-untyped-def]
    """scale Y Yᵀ of n rows as long as `wide`."""
    for a in range(0, n, 2):
        for b in range(0, a + 1, 4):
            inner_products(y, a * wide, b * wide, wide, wide // 8, scale, gram, a * n + b, b * n + a, n)


@compiled
def _shares(gram, n, c, share, work, pivot):  # type: ignore[no-untyped-def]
    """share <- 3U² - 2U³ with U = 1 - c (gram + c)⁻¹; gram and work are destroyed."""
    one, two, three = gram.dtype.type(1), gram.dtype.type(2), gram.dtype.type(3)
    for i in range(n):
        gram[i * n + i] += c
    _invert(gram, n, work, pivot)
    for i in range(n * n):
        share[i], work[i] = -c * gram[i], 0
    for i in range(n):
        share[i * n + i] += one
    _add_product(share, 0, n, n, share, 0, work, 0, n)
    for i in range(n * n):
        gram[i], share[i] = -two * share[i], 0
    for i in range(n):
        gram[i * n + i] += three
    _add_product(work, 0, n, n, gram, 0, share, 0, n)


@compiled
def _invert(a, n, work, pivot):  # type: ignore[no-untyped-def]
    """A positive definite matrix (n, n) becomes its inverse: Gauss-Jordan, eight rows at a time.

    Such matrices need no exchange of rows. work: at least 16n numbers, for eight rows and eight columns; pivot: 64.
    """
    for k in range(0, n, 8):
        minus_inverse(a, k * n + k, n, pivot)
        for i in range(n):
            take_eight(a, i * n + k, work, 8 * (n + i))
        for j in range(8 * n):
            work[j] = 0
        _add_product(pivot, 0, 8, 8, a, k * n, work, 0, n)
        for r in range(8):
            copy_row(pivot, 8 * r, work, r * n + k, 8)
        _add_product(work, 8 * n, k, 8, work, 0, a, 0, n)
        _add_product(work, 8 * (n + k + 8), n - k - 8, 8, work, 0, a, (k + 8) * n, n)
        for j in range(8 * n):
            a[k * n + j] = -work[j]


@compiled
def _add_product(a, at, rows, depth, b, bt, c, ct, n):  # type: ignore[no-untyped-def]
    """c[rows, n] += a[rows, depth] @ b[depth, n], each dense from its place on; 4 divides rows and 8 divides n."""
    for i in range(0, rows, 4):
        for j in range(0, n - 15, 16):
            add_tile_16(a, at + i * depth, depth, b, bt + j, n, depth, c, ct + i * n + j, n)
        if n % 16:
            add_tile_8(a, at + i * depth, depth, b, bt + n - 8, n, depth, c, ct + i * n + n - 8, n)


@compiled
def _covered(groups, patch, count, first):  # type: ignore[no-untyped-def]
    """How many patches cover each pixel of some frames: how many begin there, summed over columns, then over rows."""
    frames, height, width = count.shape
    # Of the sums over columns the last `patch` rows, and those of one row more, are all that is needed.
    starts, line = np.empty(width, count.dtype), np.empty((patch + 1, width), count.dtype)
    order = count.reshape(-1)
    for group in groups:
        for k in range(group.size):
            place = group[k] - first * height * width
            if 0 <= place < order.size:
                order[place] += 1
    for t in range(frames):
        for y in range(height):
            here, above = line[y % (patch + 1)], count[t, max(y - 1, 0)]
            for x in range(width):
                starts[x], here[x] = count[t, y, x], 0
            for j in range(min(patch, width)):
                before, after = starts[: width - j], here[j:]
                for x in range(before.size):
                    after[x] += before[x]
            # Whole numbers: adding the row that comes and taking the one that goes is exact.
            for x in range(width):
                count[t, y, x] = above[x] + here[x] if y else here[x]
            if y >= patch:
                gone = line[(y - patch) % (patch + 1)]
                for x in range(width):
                    count[t, y, x] -= gone[x]
    return count
