"""Straight-line CPU kernels on vectors of eight floats, the inner loops of `winograd.py`, as LLVM code.

Arrays are flat float32; positions and strides count elements (see `emit.py`).
`product` is 4 times faster than loops and 1.5 times faster than BLAS called from numba (`python
benchmarks/hand_written.py`); numpy.matmul comes closer (1.0 to 1.3), but would bring BLAS's own threads into ours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from unsnap.kernels.emit import INDEX, LANES, Emitter, kernel

TILES = {16: 6, 24: 4}
"""Columns of a product: rows that it computes at a time, as many as keep all sums in the registers."""
# The points 0, ±√½, ±√2, ∞ at which Winograd's polynomials are evaluated; ±1, ±2 would double the rounding error.
POINT_A, POINT_B = math.sqrt(0.5), math.sqrt(2)
_ARRAY = types.Array(types.float32, 1, "C")


@intrinsic
def product(typing: Any, a: Any, at: Any, step: Any, b: Any, bt: Any, depth: Any, c: Any, ct: Any, pitch: Any) -> Any:
    """c[6 rows, 16] = a[6 rows, depth] @ b[depth, 16]; rows of a and c lie `step` and `pitch` apart, b is dense."""
    return _product(16)


@intrinsic
def product_24(
    typing: Any, a: Any, at: Any, step: Any, b: Any, bt: Any, depth: Any, c: Any, ct: Any, pitch: Any
) -> Any:
    """The same with four rows and 24 columns."""
    return _product(24)


def _product(columns: int) -> Any:
    def body(emit: Emitter) -> None:
        a, at, step, b, bt, depth, c, ct, pitch = emit.args
        rows, parts = TILES[columns], columns // LANES
        cells = [(r, h) for r in range(rows) for h in range(parts)]
        sums = {cell: cgutils.alloca_once_value(emit.builder, emit.number(0.0)) for cell in cells}
        with cgutils.for_range(emit.builder, depth) as loop:
            k = loop.index
            row = emit.builder.add(bt, emit.builder.mul(k, INDEX(columns)))
            panel = [emit.load(b, row, h, LANES) for h in range(parts)]
            for r in range(rows):
                place = emit.builder.add(emit.builder.add(at, k), emit.builder.mul(INDEX(r), step))
                factor = emit.splat(emit.builder.load(emit.builder.gep(a, [place])))
                for h in range(parts):
                    total = emit.builder.load(sums[r, h])
                    emit.builder.store(emit.madd(factor, panel[h], total), sums[r, h])
        for r, h in cells:
            place = emit.builder.add(ct, INDEX(h * LANES))
            emit.store(emit.builder.load(sums[r, h]), c, place, r, pitch)

    i = types.int64
    return kernel([_ARRAY, i, i, _ARRAY, i, i, _ARRAY, i, i], body)


@intrinsic
def spread(typing: Any, image: Any, at: Any, row: Any, column: Any, out: Any, ot: Any, pitch: Any) -> Any:
    """Input transform of a 6 x 6 patch, 8 channels: its 36 coefficients go to out, `pitch` apart."""

    def body(emit: Emitter) -> None:
        image, at, row, column, out, ot, pitch = emit.args
        lines = [emit.builder.add(at, emit.builder.mul(INDEX(y), row)) for y in range(6)]
        columns = [_forward(emit, [emit.load(image, lines[y], x, column) for y in range(6)]) for x in range(6)]
        for u in range(6):
            for v, value in enumerate(_forward(emit, [columns[x][u] for x in range(6)])):
                emit.store(value, out, ot, 6 * u + v, pitch)

    i = types.int64
    return kernel([_ARRAY, i, i, i, _ARRAY, i, i], body)


@intrinsic
def gather(
    typing: Any,
    m: Any, mt: Any, pitch: Any, bias: Any, bt: Any, floor: Any, ceiling: Any, image: Any, at: Any, row: Any,
    column: Any,
) -> Any:  # fmt: skip
    """Output transform of 36 coefficients, 8 channels: 4 x 4 pixels min(max(value + bias, floor), ceiling)."""

    def body(emit: Emitter) -> None:
        m, mt, pitch, bias, bt, floor, ceiling, image, at, row, column = emit.args
        shift, least, most = emit.load(bias, bt), emit.splat(floor), emit.splat(ceiling)
        lines = [_backward(emit, [emit.load(m, mt, 6 * u + v, pitch) for u in range(6)]) for v in range(6)]
        for y in range(4):
            line = emit.builder.add(at, emit.builder.mul(INDEX(y), row))
            for x, value in enumerate(_backward(emit, [lines[v][y] for v in range(6)])):
                moved = emit.add(value, shift)
                # A NaN is neither above nor below: it stays.
                raised = emit.builder.select(emit.builder.fcmp_unordered(">", moved, least), moved, least)
                above = emit.builder.fcmp_ordered(">", raised, most)
                emit.store(emit.builder.select(above, most, raised), image, line, x, column)

    i = types.int64
    return kernel([_ARRAY, i, i, _ARRAY, i, types.float32, types.float32, _ARRAY, i, i, i], body)


def _forward(emit: Emitter, d: Sequence[Any]) -> list[Any]:
    """Six samples -> six coefficients: products of x, x² − a², x² − b² with one factor (or half of one) left out."""
    a, b = POINT_A, POINT_B
    even_a, odd_a = emit.madd(-b * b, d[2], d[4]), emit.madd(-b * b, d[1], d[3])
    even_b, odd_b = emit.madd(-a * a, d[2], d[4]), emit.madd(-a * a, d[1], d[3])
    centre = emit.scale(-(a * a + b * b), d[2])
    edge = emit.scale(-(a * a + b * b), d[3])
    return [
        emit.add(emit.madd(a * a * b * b, d[0], centre), d[4]),
        emit.madd(a, odd_a, even_a),
        emit.madd(-a, odd_a, even_a),
        emit.madd(b, odd_b, even_b),
        emit.madd(-b, odd_b, even_b),
        emit.add(emit.madd(a * a * b * b, d[1], edge), d[5]),
    ]


def _backward(emit: Emitter, m: Sequence[Any]) -> list[Any]:
    """Six coefficients -> four samples."""
    a, b = POINT_A, POINT_B
    sum_a, gap_a = emit.add(m[1], m[2]), emit.sub(m[1], m[2])
    sum_b, gap_b = emit.add(m[3], m[4]), emit.sub(m[3], m[4])
    return [
        emit.add(emit.add(m[0], sum_a), sum_b),
        emit.madd(a, gap_a, emit.scale(b, gap_b)),
        emit.madd(a * a, sum_a, emit.scale(b * b, sum_b)),
        emit.add(emit.madd(a**3, gap_a, emit.scale(b**3, gap_b)), m[5]),
    ]
