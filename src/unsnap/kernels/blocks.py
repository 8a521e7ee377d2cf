"""Vector code for groups of patches, the inner loops of `groups.py`: short rows, small products, many distances."""

from __future__ import annotations

from typing import Any

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from unsnap.kernels.emit import FUSE, INDEX, LANES, Emitter, kernel

NEAR = (4, 16)
"""Rows and columns of places whose distances `distances` finds at once."""


def _multiply(
    emit: Emitter, rows: int, vectors: int, sums: dict[tuple[int, int], Any], factors: tuple[Any, ...]
) -> None:
    """sums[rows, vectors] += a[rows, depth] @ b[depth, columns]."""
    a, at, step, b, bt, pitch, depth = factors
    with cgutils.for_range(emit.builder, depth) as loop:
        line = emit.builder.add(bt, emit.builder.mul(loop.index, pitch))
        panel = [emit.load(b, line, h, LANES) for h in range(vectors)]
        for r in range(rows):
            factor = emit.splat(emit.load(a, emit.builder.add(at, loop.index), r, step, lanes=1))
            for h in range(vectors):
                emit.builder.store(emit.madd(factor, panel[h], emit.builder.load(sums[r, h])), sums[r, h])


@intrinsic
def wide_tile(
    typing: Any,
    a: Any, at: Any, step: Any, b: Any, bt: Any, pitch: Any, depth: Any, c: Any, ct: Any, apart: Any, first: Any,
    ft: Any,
) -> Any:  # fmt: skip
    """c[4, 16] = first[16] + a[4, depth] @ b[depth, 16]; rows lie step, pitch, apart apart."""

    def body(emit: Emitter) -> None:
        *factors, c, ct, apart, first, ft = emit.args
        start = [emit.load(first, ft, h, LANES) for h in range(2)]
        sums = {(r, h): cgutils.alloca_once_value(emit.builder, start[h]) for r in range(4) for h in range(2)}
        _multiply(emit, 4, 2, sums, tuple(factors))
        for (r, h), total in sums.items():
            emit.store(emit.builder.load(total), c, emit.builder.add(ct, INDEX(LANES * h)), r, apart)

    i = types.int64
    return kernel([a, i, i, b, i, i, i, c, i, i, first, i], body)


def _tile(vectors: int) -> Any:
    @intrinsic
    def tile(
        typing: Any, a: Any, at: Any, step: Any, b: Any, bt: Any, pitch: Any, depth: Any, c: Any, ct: Any, apart: Any
    ) -> Any:
        """c[4, 8 vectors] += a[4, depth] @ b[depth, 8 vectors]; rows lie step, pitch, apart apart."""

        def body(emit: Emitter) -> None:
            *factors, c, ct, apart = emit.args
            places = [emit.builder.add(ct, INDEX(LANES * h)) for h in range(vectors)]
            cells = [(r, h) for r in range(4) for h in range(vectors)]
            start = {(r, h): emit.load(c, places[h], r, apart) for r, h in cells}
            sums = {cell: cgutils.alloca_once_value(emit.builder, value) for cell, value in start.items()}
            _multiply(emit, 4, vectors, sums, tuple(factors))
            for (r, h), total in sums.items():
                emit.store(emit.builder.load(total), c, places[h], r, apart)

        i = types.int64
        return kernel([a, i, i, b, i, i, i, c, i, i], body)

    return tile


add_tile_8 = _tile(1)
add_tile_16 = _tile(2)


@intrinsic
def inner_products(
    typing: Any,
    y: Any, at: Any, bt: Any, pitch: Any, vectors: Any, scale: Any, c: Any, ct: Any, mirror: Any, apart: Any,
) -> Any:  # fmt: skip
    """c[2, 4] at ct = scale times the products of two rows of y with four, each 8 vectors long; c[4, 2] at mirror."""

    def body(emit: Emitter) -> None:
        y, at, bt, pitch, vectors, scale, c, ct, mirror, apart = emit.args
        b = emit.builder
        cells = [(r, k) for r in range(2) for k in range(4)]
        sums = {cell: cgutils.alloca_once_value(b, emit.number(0.0)) for cell in cells}
        with cgutils.for_range(b, vectors) as loop:
            shift = b.mul(loop.index, INDEX(LANES))
            pair = [emit.load(y, b.add(at, shift), r, pitch) for r in range(2)]
            for k in range(4):
                other = emit.load(y, b.add(bt, shift), k, pitch)
                for r in range(2):
                    b.store(emit.madd(pair[r], other, b.load(sums[r, k])), sums[r, k])
        total = _sums_of_lanes(emit, [b.load(sums[cell]) for cell in cells])
        total = b.fmul(total, emit.splat(scale))
        for r in range(2):
            emit.store(emit.pick(total, total, range(4 * r, 4 * r + 4)), c, ct, r, apart, lanes=4)
        for k in range(4):
            emit.store(emit.pick(total, total, (k, 4 + k)), c, mirror, k, apart, lanes=2)

    i = types.int64
    return kernel([y, i, i, i, i, scale, c, i, i, i], body)


def _sums_of_lanes(emit: Emitter, vectors: list[Any]) -> Any:
    """Of eight vectors the sum of each, as one vector: half as many in every round, neighbours added."""
    while len(vectors) > 2:
        rows = [(vectors[k], vectors[k + 1]) for k in range(0, len(vectors), 2)]
        vectors = [
            emit.add(emit.pick(p, q, (0, 2, 8, 10, 4, 6, 12, 14)), emit.pick(p, q, (1, 3, 9, 11, 5, 7, 13, 15)))
            for p, q in rows
        ]
    p, q = vectors
    return emit.add(emit.pick(p, q, (0, 1, 2, 3, 8, 9, 10, 11)), emit.pick(p, q, (4, 5, 6, 7, 12, 13, 14, 15)))


@intrinsic
def minus_inverse(typing: Any, a: Any, at: Any, pitch: Any, out: Any) -> Any:
    """out[64] = minus the inverse of the positive definite a[8, 8], whose rows lie pitch apart: Gauss-Jordan."""

    def body(emit: Emitter) -> None:
        a, at, pitch, out = emit.args
        b, one, zero = emit.builder, emit.number(1.0), emit.number(0.0)
        rows = [emit.load(a, at, r, pitch) for r in range(LANES)]
        for k in range(LANES):
            without = [LANES + k if j == k else j for j in range(LANES)]  # lane k is another vector's
            inverse = b.fdiv(one, emit.pick(rows[k], one, [k] * LANES))
            rows[k] = b.fmul(emit.pick(rows[k], one, without), inverse)
            for r in range(LANES):
                if r != k:
                    factor = emit.pick(rows[r], zero, [k] * LANES)
                    rows[r] = emit.sub(emit.pick(rows[r], zero, without), b.fmul(factor, rows[k], flags=FUSE))
        for r in range(LANES):
            emit.store(b.fneg(rows[r]), out, INDEX(LANES * r))

    i = types.int64
    return kernel([a, i, i, out], body)


@intrinsic
def take_eight(typing: Any, source: Any, at: Any, target: Any, to: Any) -> Any:
    """target[to : to + 8] = source[at : at + 8], which becomes 0."""

    def body(emit: Emitter) -> None:
        source, at, target, to = emit.args
        emit.store(emit.load(source, at), target, to)
        emit.store(emit.number(0.0), source, at)

    i = types.int64
    return kernel([source, i, target, i], body)


def _centre(vectors: int) -> Any:
    @intrinsic
    def centre(
        typing: Any, y: Any, at: Any, pitch: Any, count: Any, scale: Any, mean: Any, to: Any, squares: Any
    ) -> Any:
        """y[count, 8 vectors] -= scale times their sum, which is kept in mean; squares[8] += the squares left."""

        def body(emit: Emitter) -> None:
            y, at, pitch, count, scale, mean, to, squares = emit.args
            b, every = emit.builder, range(vectors)
            sums = [cgutils.alloca_once_value(b, emit.number(0.0)) for _ in every]
            with cgutils.for_range(b, count) as loop:
                row = b.add(at, b.mul(loop.index, pitch))
                for h in every:
                    b.store(emit.add(b.load(sums[h]), emit.load(y, row, h, LANES)), sums[h])
            factor = emit.splat(emit.load(scale, INDEX(0), lanes=1))
            means = [emit.madd(factor, b.load(sums[h]), emit.number(0.0)) for h in every]
            left = [cgutils.alloca_once_value(b, emit.number(0.0)) for _ in every]
            with cgutils.for_range(b, count) as loop:
                row = b.add(at, b.mul(loop.index, pitch))
                for h in every:
                    rest = emit.sub(emit.load(y, row, h, LANES), means[h])
                    emit.store(rest, y, row, h, LANES)
                    b.store(emit.madd(rest, rest, b.load(left[h])), left[h])
            total = emit.load(squares, INDEX(0))
            for h in every:
                emit.store(means[h], mean, to, h, LANES)
                total = emit.add(total, b.load(left[h]))
            emit.store(total, squares, INDEX(0))

        i = types.int64
        return kernel([y, i, i, i, scale, mean, i, squares], body)

    return centre


centre_32 = _centre(4)
centre_16 = _centre(2)


def _row(add: bool) -> Any:
    @intrinsic
    def row(typing: Any, source: Any, at: Any, target: Any, to: Any, count: Any) -> Any:
        """target[to : to + count] = or += source[at : at + count], in pieces of 8, 4 and 1."""

        def body(emit: Emitter) -> None:
            source, at, target, to, count = emit.args
            b = emit.builder

            def move(j: Any, lanes: int) -> None:
                here, there = b.add(at, j), b.add(to, j)
                value = emit.load(source, here, lanes=lanes)
                value = emit.add(value, emit.load(target, there, lanes=lanes)) if add else value
                emit.store(value, target, there, lanes=lanes)

            with cgutils.for_range(b, b.ashr(count, INDEX(3))) as loop:
                move(b.mul(loop.index, INDEX(LANES)), LANES)
            done, four = b.and_(count, INDEX(-8)), b.and_(count, INDEX(4))
            with b.if_then(b.icmp_signed(">", four, INDEX(0))):
                move(done, 4)
            done = b.add(done, four)
            with cgutils.for_range(b, b.sub(count, done)) as loop:
                move(b.add(done, loop.index), 1)

        i = types.int64
        return kernel([source, i, target, i, i], body)

    return row


copy_row = _row(add=False)
add_row = _row(add=True)


@intrinsic
def distances(typing: Any, video: Any, at: Any, pitch: Any, own: Any, side: Any, out: Any) -> Any:
    """out[4, 16] = squared distances between a patch `own`, dense, and those that begin at 4 rows, 16 columns."""

    def body(emit: Emitter) -> None:
        video, at, pitch, own, side, out = emit.args
        b, vectors = emit.builder, NEAR[1] // LANES
        cells = [(r, h) for r in range(NEAR[0]) for h in range(vectors)]
        sums = {cell: cgutils.alloca_once_value(b, emit.number(0.0)) for cell in cells}
        with cgutils.for_range(b, side) as down:
            line, first = b.add(at, b.mul(down.index, pitch)), b.mul(down.index, side)
            with cgutils.for_range(b, side) as across:
                value = emit.splat(emit.load(own, b.add(first, across.index), lanes=1))
                place = b.add(line, across.index)
                for r, h in cells:
                    d = emit.sub(emit.load(video, b.add(place, INDEX(LANES * h)), r, pitch), value)
                    b.store(emit.madd(d, d, b.load(sums[r, h])), sums[r, h])
        for k, cell in enumerate(cells):
            emit.store(b.load(sums[cell]), out, INDEX(LANES * k))

    i = types.int64
    return kernel([video, i, i, own, i, out], body)
