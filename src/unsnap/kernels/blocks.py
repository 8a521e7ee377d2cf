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


def _tile(rows: int, vectors: int) -> Any:
    @intrinsic
    def tile(
        typing: Any,
        a: Any, at: Any, step: Any, b: Any, bt: Any, pitch: Any, depth: Any, c: Any, ct: Any, apart: Any, first: Any,
        ft: Any,
    ) -> Any:  # fmt: skip
        """c[rows, columns] = first[columns] + a[rows, depth] @ b[depth, columns]; rows lie step, pitch, apart apart."""

        def body(emit: Emitter) -> None:
            a, at, step, b, bt, pitch, depth, c, ct, apart, first, ft = emit.args
            cells = [(r, h) for r in range(rows) for h in range(vectors)]
            start = [emit.load(first, ft, h, LANES) for h in range(vectors)]
            sums = {cell: cgutils.alloca_once_value(emit.builder, start[cell[1]]) for cell in cells}
            with cgutils.for_range(emit.builder, depth) as loop:
                line = emit.builder.add(bt, emit.builder.mul(loop.index, pitch))
                panel = [emit.load(b, line, h, LANES) for h in range(vectors)]
                for r in range(rows):
                    factor = emit.splat(emit.load(a, emit.builder.add(at, loop.index), r, step, lanes=1))
                    for h in range(vectors):
                        emit.builder.store(emit.madd(factor, panel[h], emit.builder.load(sums[r, h])), sums[r, h])
            for r, h in cells:
                place = emit.builder.add(ct, INDEX(LANES * h))
                emit.store(emit.builder.load(sums[r, h]), c, place, r, apart)

        i = types.int64
        return kernel([a, i, i, b, i, i, i, c, i, i, first, i], body)

    return tile


square_tile = _tile(8, 1)
wide_tile = _tile(4, 2)


@intrinsic
def eliminate(typing: Any, a: Any, at: Any, pitch: Any, row: Any, k: Any, width: Any) -> Any:
    """a[4 rows, width] -= f row[width] with f = a[4 rows, k], which counts as 0 afterwards (Gauss-Jordan in place)."""

    def body(emit: Emitter) -> None:
        a, at, pitch, row, k, width = emit.args
        column, factors = emit.builder.add(at, k), []
        for r in range(4):
            factors.append(emit.splat(emit.builder.fneg(emit.load(a, column, r, pitch, lanes=1))))
            emit.store(ir.Constant(emit.scalar, 0.0), a, column, r, pitch, lanes=1)
        with cgutils.for_range(emit.builder, emit.builder.sdiv(width, INDEX(LANES))) as loop:
            j = emit.builder.mul(loop.index, INDEX(LANES))
            own, place = emit.load(row, j), emit.builder.add(at, j)
            for r in range(4):
                emit.store(emit.madd(factors[r], own, emit.load(a, place, r, pitch)), a, place, r, pitch)

    i = types.int64
    return kernel([a, i, i, row, i, i], body)


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
