"""Three straight-line CPU kernels on vectors of eight floats, the inner loops of `winograd.py`, as LLVM code.

Compilers do not keep a block of sums in registers when they see loops over arrays; written out, they do. LLVM turns the
same text into AVX2, AVX-512, NEON or plain code. Arrays are flat float32; positions and strides count elements.
`product` is 4 times faster than loops and 1.5 times faster than BLAS called from numba (`python
benchmarks/hand_written.py`); numpy.matmul comes closer (1.0 to 1.3), but would bring BLAS's own threads into ours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LANES, ROWS, PANEL = 8, 6, 16
_VECTOR = ir.VectorType(ir.FloatType(), LANES)
_INDEX = ir.IntType(64)
_FUSE = ("contract", "nsz")
# The points 0, ±√½, ±√2, ∞ at which Winograd's polynomials are evaluated; ±1, ±2 would double the rounding error.
POINT_A, POINT_B = math.sqrt(0.5), math.sqrt(2)


class _Emitter:
    """Arithmetic on vectors, fused where the machine can."""

    def __init__(self, context: Any, builder: Any, signature: Any, args: Sequence[Any]) -> None:
        self.context, self.builder = context, builder
        self.args = [
            context.make_array(kind)(context, builder, value).data if isinstance(kind, types.Array) else value
            for kind, value in zip(signature.args, args, strict=True)
        ]

    def pointer(self, base: Any, position: Any, k: int = 0, stride: Any = 1) -> Any:
        """Where base[position + k * stride] lies, as a vector."""
        step = self.builder.mul(_INDEX(k), stride if not isinstance(stride, int) else _INDEX(stride))
        place = self.builder.gep(base, [self.builder.add(position, step)])
        return self.builder.bitcast(place, _VECTOR.as_pointer())

    def load(self, *place: Any) -> Any:
        return self.builder.load(self.pointer(*place), align=4)

    def store(self, value: Any, *place: Any) -> None:
        self.builder.store(value, self.pointer(*place), align=4)

    def number(self, value: float) -> Any:
        return ir.Constant(_VECTOR, [value] * LANES)

    def splat(self, scalar: Any) -> Any:
        first = self.builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), scalar, ir.IntType(32)(0))
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
        return self.builder.shuffle_vector(first, ir.Constant(_VECTOR, ir.Undefined), zeros)

    def add(self, a: Any, b: Any) -> Any:
        return self.builder.fadd(a, b, flags=_FUSE)

    def sub(self, a: Any, b: Any) -> Any:
        return self.builder.fsub(a, b, flags=_FUSE)

    def madd(self, a: Any, b: Any, c: Any) -> Any:
        """a * b + c; a may be a number."""
        a = self.number(a) if isinstance(a, float) else a
        return self.add(self.builder.fmul(a, b, flags=_FUSE), c)

    def scale(self, a: float, b: Any) -> Any:
        return self.builder.fmul(self.number(a), b, flags=_FUSE)


def _kernel(arguments: Sequence[Any], body: Callable[[_Emitter], None]) -> Any:
    """An intrinsic without result, to be called from compiled code with these argument types."""
    signature = types.void(*arguments)

    def generate(context: Any, builder: Any, signature: Any, args: Sequence[Any]) -> Any:
        body(_Emitter(context, builder, signature, args))
        return context.get_dummy_value()

    return signature, generate


_ARRAY = types.Array(types.float32, 1, "C")


@intrinsic
def product(typing: Any, a: Any, at: Any, step: Any, b: Any, bt: Any, depth: Any, c: Any, ct: Any, pitch: Any) -> Any:
    """c[6 rows, 16] = a[6 rows, depth] @ b[depth, 16]; rows of a and c lie `step` and `pitch` apart, b is dense."""

    def body(emit: _Emitter) -> None:
        a, at, step, b, bt, depth, c, ct, pitch = emit.args
        halves = PANEL // LANES
        cells = [(r, h) for r in range(ROWS) for h in range(halves)]
        sums = {cell: cgutils.alloca_once_value(emit.builder, emit.number(0.0)) for cell in cells}
        with cgutils.for_range(emit.builder, depth) as loop:
            k = loop.index
            row = emit.builder.add(bt, emit.builder.mul(k, _INDEX(PANEL)))
            panel = [emit.load(b, row, h, LANES) for h in range(halves)]
            for r in range(ROWS):
                place = emit.builder.add(emit.builder.add(at, k), emit.builder.mul(_INDEX(r), step))
                factor = emit.splat(emit.builder.load(emit.builder.gep(a, [place])))
                for h in range(halves):
                    total = emit.builder.load(sums[r, h])
                    emit.builder.store(emit.madd(factor, panel[h], total), sums[r, h])
        for r, h in cells:
            place = emit.builder.add(ct, _INDEX(h * LANES))
            emit.store(emit.builder.load(sums[r, h]), c, place, r, pitch)

    i = types.int64
    return _kernel([_ARRAY, i, i, _ARRAY, i, i, _ARRAY, i, i], body)


@intrinsic
def spread(typing: Any, image: Any, at: Any, row: Any, column: Any, out: Any, ot: Any, pitch: Any) -> Any:
    """Input transform of a 6 x 6 patch, 8 channels: its 36 coefficients go to out, `pitch` apart."""

    def body(emit: _Emitter) -> None:
        image, at, row, column, out, ot, pitch = emit.args
        lines = [emit.builder.add(at, emit.builder.mul(_INDEX(y), row)) for y in range(6)]
        columns = [_forward(emit, [emit.load(image, lines[y], x, column) for y in range(6)]) for x in range(6)]
        for u in range(6):
            for v, value in enumerate(_forward(emit, [columns[x][u] for x in range(6)])):
                emit.store(value, out, ot, 6 * u + v, pitch)

    i = types.int64
    return _kernel([_ARRAY, i, i, i, _ARRAY, i, i], body)


@intrinsic
def gather(
    typing: Any, m: Any, mt: Any, pitch: Any, bias: Any, bt: Any, floor: Any, image: Any, at: Any, row: Any, column: Any
) -> Any:
    """Output transform of 36 coefficients, 8 channels: 4 x 4 pixels max(value + bias, floor)."""

    def body(emit: _Emitter) -> None:
        m, mt, pitch, bias, bt, floor, image, at, row, column = emit.args
        shift, least = emit.load(bias, bt), emit.splat(floor)
        lines = [_backward(emit, [emit.load(m, mt, 6 * u + v, pitch) for u in range(6)]) for v in range(6)]
        for y in range(4):
            line = emit.builder.add(at, emit.builder.mul(_INDEX(y), row))
            for x, value in enumerate(_backward(emit, [lines[v][y] for v in range(6)])):
                moved = emit.add(value, shift)
                larger = emit.builder.fcmp_unordered(">", moved, least)
                emit.store(emit.builder.select(larger, moved, least), image, line, x, column)

    i = types.int64
    return _kernel([_ARRAY, i, i, _ARRAY, i, types.float32, _ARRAY, i, i, i], body)


def _forward(emit: _Emitter, d: Sequence[Any]) -> list[Any]:
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


def _backward(emit: _Emitter, m: Sequence[Any]) -> list[Any]:
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
