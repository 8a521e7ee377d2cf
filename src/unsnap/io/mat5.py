"""MATLAB v5 to v7 files, read element by element with every length checked.

scipy's compiled reader looks the type of an element up in a table without checking it, so that a damaged tag ends the
whole process: scipy 1.17.1 does (`python benchmarks/hand_written.py`); scipy's pull request 25349 was closed, 25829 is
open (as of August 2026), and 25166 documents that `loadmat` is not hardened. This reader raises, and takes as long
(ratio 1.0 for a compressed scene). Format: "MAT-File Format", The MathWorks: a 128-byte header, then elements (type,
length, data), matrices as nested elements, often compressed.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from unsnap.io.budget import claim, keep, passing
from unsnap.io.checks import Array

_MATRIX, _COMPRESSED, _CELL, _STRUCT = 14, 15, 1, 2
_STORED = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}
_LOGICAL, _COMPLEX = 0x200, 0x800

DEEPEST = 3
"""Structs inside one another, whose fields are read"""

Element = tuple[int, memoryview]


def is_v5(header: bytes) -> bool:
    return len(header) >= 128 and header[126:128] in (b"IM", b"MI") and 0 not in header[:4]


def read_v5(path: Path) -> Iterator[tuple[str, Array]]:
    """Numeric and logical variables, and those in the fields of 1×1 structs as "struct/field", also of structs in
    structs, `DEEPEST` of them; of cells the name, with no values; all else is left out."""
    with path.open("rb") as file:
        size = path.stat().st_size
        order = "<" if file.read(128)[126:128] == b"IM" else ">"
        while file.tell() < size:
            kind, length = _integers(file.read(8), order, 2)
            if length > size - file.tell():
                raise ValueError(f"a variable of {length} bytes where {size - file.tell()} are left")
            found: list[tuple[str, Array]] = []
            with passing():
                claim(path, length)
                data = memoryview(file.read(length))
                if kind == _COMPRESSED:
                    kind, data = _inflate(path, data, order)
                if kind == _MATRIX:
                    found = list(_variable(path, data, order))
            keep(sum(array.nbytes for _, array in found))
            yield from found


def _inflate(path: Path, data: memoryview, order: str) -> Element:
    stream = zlib.decompressobj()
    kind, length = _integers(stream.decompress(data, 8), order, 2)
    claim(path, length)
    content = stream.decompress(stream.unconsumed_tail, length) if length else b""
    surplus = stream.decompress(stream.unconsumed_tail, 8)  # reaching for the end verifies the checksum
    if len(content) < length or surplus or not stream.eof:
        raise ValueError(f"a compressed variable does not hold the {length} bytes it announces")
    return kind, memoryview(content)


def _variable(path: Path, data: memoryview, order: str) -> Iterator[tuple[str, Array]]:
    elements = _elements(data, order)
    flags, shape, name = _head(elements, order)
    if flags & 0xFF in _CLASSES and name:
        yield name, _numbers(path, elements, flags, shape, order)
    elif flags & 0xFF == _CELL and name:
        yield name, np.empty(0, object)
    elif flags & 0xFF == _STRUCT and math.prod(shape) == 1:
        yield from _fields(path, elements, name, order)


def _fields(
    path: Path, elements: Iterator[Element], name: str, order: str, depth: int = 1
) -> Iterator[tuple[str, Array]]:
    (width,) = _integers(bytes(next(elements)[1]), order, 1)
    joined = bytes(next(elements)[1])
    keys = [joined[i : i + width].split(b"\0")[0].decode("latin-1") for i in range(0, len(joined), max(width, 1))]
    for key, (kind, data) in zip(keys, elements, strict=True):
        if kind != _MATRIX or not data:
            continue
        inner = _elements(data, order)
        flags, shape, _ = _head(inner, order)
        if flags & 0xFF in _CLASSES:
            yield f"{name}/{key}", _numbers(path, inner, flags, shape, order)
        elif flags & 0xFF == _CELL:
            yield f"{name}/{key}", np.empty(0, object)
        elif flags & 0xFF == _STRUCT and math.prod(shape) == 1 and depth < DEEPEST:
            yield from _fields(path, inner, f"{name}/{key}", order, depth + 1)


def _elements(data: memoryview, order: str) -> Iterator[Element]:
    """The parts of a matrix; short ones are packed into their own tag, long ones padded to 8 bytes."""
    start = 0
    while start < len(data):
        kind, length = _integers(bytes(data[start : start + 8]), order, 2)
        if kind >> 16:
            yield kind & 0xFFFF, data[start + 4 : start + 4 + min(kind >> 16, 4)]
            start += 8
            continue
        if start + 8 + length > len(data):
            raise ValueError(f"an element of {length} bytes where {len(data) - start - 8} are left")
        yield kind, data[start + 8 : start + 8 + length]
        start += 8 + length + (-length) % 8


def _head(elements: Iterator[Element], order: str) -> tuple[int, tuple[int, ...], str]:
    parts = [bytes(data) for _, data in (next(elements, (0, b"")) for _ in range(3))]
    shape = np.frombuffer(parts[1], f"{order}i4").tolist()
    if len(shape) < 2 or min(shape) < 0:
        raise ValueError(f"a variable of shape {tuple(shape)}")
    return _integers(parts[0], order, 1)[0], tuple(shape), parts[2].decode("latin-1")


def _numbers(path: Path, elements: Iterator[Element], flags: int, shape: tuple[int, ...], order: str) -> Array:
    dtype = np.dtype(_CLASSES[flags & 0xFF])
    claim(path, math.prod(shape) * (48 if flags & _COMPLEX else dtype.itemsize))
    real = _stored(elements, shape, order)
    if flags & _COMPLEX:
        return np.asarray(real + 1j * _stored(elements, shape, order))
    return real.astype(bool if flags & _LOGICAL else dtype)


def _stored(elements: Iterator[Element], shape: tuple[int, ...], order: str) -> Array:
    kind, data = next(elements, (1, memoryview(b"")))
    if kind not in _STORED:
        raise ValueError(f"numbers of the unknown type {kind}")
    # A reshape to the announced shape fails unless exactly that many values are there.
    return np.frombuffer(data, order + _STORED[kind]).reshape(shape, order="F")


def _integers(data: bytes, order: str, count: int) -> tuple[int, ...]:
    if len(data) < 4 * count:
        raise ValueError("the file ends inside a tag")
    return tuple(int(value) for value in np.frombuffer(data, f"{order}u4", count))
