"""Scenes in MATLAB files of version 4 and 5, written element by element so that each of them can lie."""

from __future__ import annotations

import random
import struct
import zlib
from functools import cache
from typing import Any

import numpy as np

from hostile.arrays import Arrays, H, Made, scene
from hostile.mutate import NAMES, NUMBERS, bits, edit, number

_STORED = {"i1": 1, "u1": 2, "i2": 3, "u2": 4, "i4": 5, "u4": 6, "f4": 7, "f8": 9, "i8": 12, "u8": 13}
_CLASS = {"f8": 6, "f4": 7, "i1": 8, "u1": 9, "i2": 10, "u2": 11, "i4": 12, "u4": 13, "i8": 14, "u8": 15}
_HEADER = b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01IM"


def _element(kind: int, data: bytes, length: int | None = None) -> bytes:
    padding = b"" if kind == 15 else bytes(-len(data) % 8)  # what is compressed is not padded
    return bits(kind, "<I") + bits(len(data) if length is None else length, "<I") + data + padding


def _matrix(name: str, array: np.ndarray, /, **fields: Any) -> bytes:
    code = array.dtype.str[1:]
    parts = {
        "flags": _CLASS[code], "dims": struct.pack(f"<{array.ndim}i", *array.shape),
        "name": name.encode("utf-8", "replace"),
        "stored": _STORED[code], "data": array.tobytes(order="F"), "order": "fdnv", "length": None, "outer": None,
        "dimtype": 5,
        "nametype": 1, "kind": 14,
    } | fields  # fmt: skip
    element = {
        "f": _element(6, bits(parts["flags"], "<Q")),
        "d": _element(parts["dimtype"], parts["dims"]),
        "n": _element(parts["nametype"], parts["name"]),
        "v": _element(parts["stored"], parts["data"], parts["length"]),
    }
    return _element(parts["kind"], b"".join(element[part] for part in parts["order"]), parts["outer"])


def _matlab(arrays: Arrays) -> list[tuple[str, np.ndarray]]:
    """MATLAB has no bool, no half and at least two dimensions; axes H×W×T."""
    found = []
    for name, array in arrays.items():
        if array.dtype.kind in "biuf":
            plain = (
                array.astype("f8")
                if array.dtype.str[1:] not in _STORED
                else array.astype(array.dtype.newbyteorder("<"))
            )
            found.append((name, np.atleast_2d(np.moveaxis(plain, 0, -1) if plain.ndim == 3 else plain)))
    return found


def mat5_scene(arrays: Arrays, compressed: bool = True) -> bytes:
    elements = [_matrix(name, array) for name, array in _matlab(arrays)]
    return _HEADER + b"".join(_element(15, zlib.compress(e)) if compressed else e for e in elements)


@cache
def _mat5_bomb(size: int, lie: int) -> bytes:
    claimed = {"length": lie, "outer": lie} if lie else {}
    return _element(15, zlib.compress(_matrix("x", np.zeros((1, size), "u1"), **claimed)))


def mat5_structure(rng: random.Random) -> Made:
    """Elements whose types, lengths, flags, dimensions or compression lie."""
    fields: dict[str, Any] = {}
    arrays = dict(_matlab(scene(rng)))

    def value(name: str, rng: random.Random) -> Any:
        sizes = [rng.choice((number(rng), -1, 0, 16)) % 2**32 for _ in range(rng.choice((0, 1, 2, 3, 4, 33)))]
        return {
            "flags": rng.choice((*range(19), 0x206, 0x806, 0x406, 0x207, 255, number(rng))),
            "dims": rng.choice((struct.pack(f"<{len(sizes)}I", *sizes), b"\1", b"")),
            "name": rng.choice((*NAMES, "", "\0", "a/b", "meas")).encode("utf-8", "replace"),
            "stored": rng.choice((*range(20), 255, number(rng))),
            "data": rng.choice((b"", b"\0" * 7, bytes(5000))),
            "order": rng.choice(("fdn", "fd", "f", "", "dfnv", "fdnvv", "fdvn", "fndv")),
            "length": number(rng), "outer": number(rng), "dimtype": rng.randrange(20), "nametype": rng.randrange(20),
            "kind": rng.choice((14, 15, 0, 1, 9, 16, 255)),
        }[name]  # fmt: skip

    names = ("flags", "dims", "name", "stored", "data", "order", "length", "outer", "dimtype", "nametype", "kind")
    chosen = dict.fromkeys(names)
    attack = edit(chosen, rng, value)
    fields = {name: found for name, found in chosen.items() if found is not None}
    way = rng.choice(
        ("edit", "edit", "edit", "edit", "bomb", "cumulative", "stream", "struct", "small", "order", "empty")
    )
    victim = rng.choice(sorted(arrays))
    parts = [
        _matrix(name, array, **(fields if name == victim and way == "edit" else {})) for name, array in arrays.items()
    ]
    packed = rng.random() < 0.6
    if packed:
        parts = [_element(15, zlib.compress(part)) for part in parts]
    if way in ("bomb", "cumulative"):
        lie = rng.choice((0, 0, *NUMBERS[-8:]))
        parts += [_mat5_bomb(rng.choice((2**20, 2**22)), lie)] * (rng.choice((8, 600)) if way == "cumulative" else 1)
    elif way == "stream":
        stream = bytearray(zlib.compress(parts[0]))
        stream[rng.randrange(len(stream))] ^= 255
        cut = bytes(stream[: rng.randrange(len(stream))]) if rng.random() < 0.5 else bytes(stream)
        parts[0] = _element(15, cut)
    elif way == "struct":
        inner = _matrix("", arrays["mask"]) * rng.choice((1, 2, 0))
        depth = rng.choice((1, 1, 3, 500))
        for _ in range(depth):
            head = (
                _element(6, bits(2, "<Q"))
                + _element(5, struct.pack("<2i", 1, rng.choice((1, 1, 2, 0, -1))))
                + _element(1, b"")
            )
            lengths = _element(5, bits(rng.choice((8, 8, 0, number(rng))), "<I")) + _element(
                1, rng.choice((b"meas\0\0\0\0", b"", b"x"))
            )
            inner = _element(14, head + lengths + inner)
        parts.append(_matrix("s", arrays["mask"])[:0] + inner)
    elif way == "small":
        parts.insert(0, bits(rng.choice((0x00040005, 0x00050001, 0xFFFF0001, 0x00010000)), "<I") + b"abcd")
    elif way == "empty":
        parts = rng.choice(([], [b"\0" * 8], [b"\0" * 3], [_element(15, b"")], [_element(14, b"")]))
    header = _HEADER[:126] + b"MI" if way == "order" else _HEADER
    return f"mat5 {attack if way == 'edit' else way}", header + b"".join(parts)


def mat4(rng: random.Random) -> Made:
    """MATLAB 4: five integers, a name and the values."""
    content = b""
    attack = "sound"
    for name, array in _matlab(scene(rng)):
        plain = array.reshape(H, -1).astype("f8")
        fields = {"type": 0, "rows": plain.shape[0], "columns": plain.shape[1], "imaginary": 0, "length": len(name) + 1}
        if rng.random() < 0.4:
            attack = edit(fields, rng, lambda _, rng: number(rng))
        content += (
            b"".join(bits(value, "<I") for value in fields.values()) + name.encode() + b"\0" + plain.tobytes(order="F")
        )
    return f"mat4 {attack}", content
