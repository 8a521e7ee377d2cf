"""Straight-line CPU code on vectors of eight numbers, as LLVM text: the base of `lanes.py` and `blocks.py`.

Compilers do not keep a block of sums in registers when they see loops over arrays, and do not vectorise loops as short
as a row of a patch; written out, they do both. LLVM turns the same text into AVX2, AVX-512, NEON or plain code. Arrays
are flat; positions and strides count elements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types

LANES = 8
INDEX = ir.IntType(64)
FUSE = ("contract", "nsz")


class Emitter:
    """Arithmetic on vectors of the arrays' kind of number, fused where the machine can."""

    def __init__(self, context: Any, builder: Any, signature: Any, args: Sequence[Any]) -> None:
        self.context, self.builder = context, builder
        number = next(kind.dtype for kind in signature.args if isinstance(kind, types.Array))
        self.scalar, self.size = context.get_value_type(number), number.bitwidth // 8
        self.vector = ir.VectorType(self.scalar, LANES)
        self.args = [
            context.make_array(kind)(context, builder, value).data if isinstance(kind, types.Array) else value
            for kind, value in zip(signature.args, args, strict=True)
        ]

    def pointer(self, base: Any, position: Any, k: int = 0, stride: Any = 1, *, lanes: int = LANES) -> Any:
        """Where base[position + k * stride] lies, as a vector; as a number for one lane."""
        step = self.builder.mul(INDEX(k), stride if not isinstance(stride, int) else INDEX(stride))
        place = self.builder.gep(base, [self.builder.add(position, step)])
        kind = self.scalar if lanes == 1 else ir.VectorType(self.scalar, lanes)
        return self.builder.bitcast(place, kind.as_pointer())

    def load(self, base: Any, position: Any, k: int = 0, stride: Any = 1, *, lanes: int = LANES) -> Any:
        return self.builder.load(self.pointer(base, position, k, stride, lanes=lanes), align=self.size)

    def store(self, value: Any, base: Any, position: Any, k: int = 0, stride: Any = 1, *, lanes: int = LANES) -> None:
        self.builder.store(value, self.pointer(base, position, k, stride, lanes=lanes), align=self.size)

    def number(self, value: float) -> Any:
        return ir.Constant(self.vector, [value] * LANES)

    def splat(self, scalar: Any) -> Any:
        first = self.builder.insert_element(ir.Constant(self.vector, ir.Undefined), scalar, ir.IntType(32)(0))
        return self.pick(first, ir.Constant(self.vector, ir.Undefined), [0] * LANES)

    def pick(self, a: Any, b: Any, lanes: Sequence[int]) -> Any:
        """A vector of these lanes of a (0 to 7) and b (8 to 15)."""
        places = ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), list(lanes))
        return self.builder.shuffle_vector(a, b, places)

    def add(self, a: Any, b: Any) -> Any:
        return self.builder.fadd(a, b, flags=FUSE)

    def sub(self, a: Any, b: Any) -> Any:
        return self.builder.fsub(a, b, flags=FUSE)

    def madd(self, a: Any, b: Any, c: Any) -> Any:
        """a * b + c; a may be a number."""
        a = self.number(a) if isinstance(a, float) else a
        return self.add(self.builder.fmul(a, b, flags=FUSE), c)

    def scale(self, a: float, b: Any) -> Any:
        return self.builder.fmul(self.number(a), b, flags=FUSE)


def kernel(arguments: Sequence[Any], body: Callable[[Emitter], None]) -> Any:
    """An intrinsic without result, to be called from compiled code with these argument types."""
    signature = types.void(*arguments)

    def generate(context: Any, builder: Any, signature: Any, args: Sequence[Any]) -> Any:
        body(Emitter(context, builder, signature, args))
        return context.get_dummy_value()

    return signature, generate
