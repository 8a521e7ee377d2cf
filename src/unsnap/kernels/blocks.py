"""Vector code for groups of patches, the inner loops of `groups.py`: short rows, small products, many distances."""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from unsnap.kernels.emit import INDEX, LANES, Emitter, kernel

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


def _tile(rows: int) -> Any:
    @intrinsic
    def tile(
        typing: Any, a: Any, at: Any, step: Any, b: Any, bt: Any, pitch: Any, depth: Any, c: Any, ct: Any, apart: Any
    ) -> Any:
        """c[rows, 8] += a[rows, depth] @ b[depth, 8]; rows lie step, pitch, apart apart."""

        def body(emit: Emitter) -> None:
            *factors, c, ct, apart = emit.args
            start = [emit.load(c, ct, r, apart) for r in range(rows)]
            sums = {(r, 0): cgutils.alloca_once_value(emit.builder, start[r]) for r in range(rows)}
            _multiply(emit, rows, 1, sums, tuple(factors))
            for (r, _), total in sums.items():
                emit.store(emit.builder.load(total), c, ct, r, apart)

        i = types.int64
        return kernel([a, i, i, b, i, i, i, c, i, i], body)

    return tile


flat_tile = _tile(4)
square_tile = _tile(8)


@intrinsic
def take_four(typing: Any, source: Any, at: Any, target: Any, to: Any) -> Any:
    """target[to : to + 4] = source[at : at + 4], which becomes 0."""

    def body(emit: Emitter) -> None:
        source, at, target, to = emit.args
        emit.store(emit.load(source, at, lanes=4), target, to, lanes=4)
        emit.store(ir.Constant(ir.VectorType(emit.scalar, 4), [0.0] * 4), source, at, lanes=4)

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
