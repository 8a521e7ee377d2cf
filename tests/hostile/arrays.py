"""Scenes in .npy and .npz: sound ones, ones with hostile numbers, and ones whose structure lies.

Every function takes a generator of random numbers and returns (name of the attack, bytes of the file).
"""

from __future__ import annotations

import io
import random
import struct
import zipfile
from functools import cache
from typing import Any

import numpy as np

from hostile.mutate import NAMES, bits, edit, number

T, H, W = 2, 16, 16
Arrays = dict[str, np.ndarray]
Made = tuple[str, bytes]


def scene(rng: random.Random, truth: bool = True) -> Arrays:
    """A measurement, its masks and the truth; most often plain, at times in integers."""
    draw = np.random.default_rng(rng.randrange(2**32))
    masks = (draw.random((T, H, W)) > 0.5).astype(np.float32)
    masks[0] = 1 - masks[1] * masks[0]
    video = draw.random((T, H, W)).astype(np.float32)
    arrays = {"meas": (masks * video).sum(0), "mask": masks}
    return arrays | {"orig": video} if truth else arrays


_KINDS = (
    "u1", "i1", "u2", "i4", "u8", "i8", "f2", "f4", "f8", "g", "c8", "c16", "?", ">f4", ">u2", "S4", "U2", "M8[s]",
    "V3",
)  # fmt: skip
_SHAPES = (
    (0,), (), (1,), (H, W), (1, H, W), (T, H, W, 1), (1, 1, 1, 1, 1), (T * H * W,), (2**20,), (0, H, W), (H, W, 0),
)  # fmt: skip


def _scaled(arrays: Arrays, rng: random.Random) -> str:
    factor = rng.choice((1e-45, 1e-38, 1e-30, 1e-20, 1e-10, 1e10, 1e20, 1e30, 1e38, 3e38, 1e300, 1e-300, -1.0, 0.0))
    for name in rng.choice((("mask",), ("meas",), ("orig",), ("mask", "meas"), tuple(arrays))):
        if name in arrays:
            arrays[name] = arrays[name].astype(np.float64) * factor
    return "scale"


def _special(arrays: Arrays, rng: random.Random) -> str:
    name = rng.choice(sorted(arrays))
    array = arrays[name] = arrays[name].copy()
    flat = array.reshape(-1)
    where = rng.choice((slice(None), slice(0, 1), slice(0, None, 7)))
    flat[where] = rng.choice((np.nan, np.inf, -np.inf, 3.4e38, -3.4e38, 1e-45, 0.0, -1.0, 1e20, 255.0, 65535.0))
    return "values"


def _kind(arrays: Arrays, rng: random.Random) -> str:
    name, kind = rng.choice(sorted(arrays)), rng.choice(_KINDS)
    with np.errstate(all="ignore"):
        arrays[name] = (
            (arrays[name] * rng.choice((1, 255, 1e6)))
            .astype("i8" if kind in ("M8[s]", "V3") else "f8")
            .astype("S3" if kind == "V3" else kind)
        )
    return f"dtype {kind}"


def _shape(arrays: Arrays, rng: random.Random) -> str:
    name = rng.choice(sorted(arrays))
    arrays[name] = np.zeros(rng.choice(_SHAPES), arrays[name].dtype) + np.float32(rng.random())
    return "shape"


def _axes(arrays: Arrays, rng: random.Random) -> str:
    name = rng.choice(sorted(arrays))
    array = arrays[name]
    arrays[name] = rng.choice((array.T, array[..., ::2], array[None], array[..., None], np.concatenate([array, array])))
    return "axes"


def _name(arrays: Arrays, rng: random.Random) -> str:
    name = rng.choice(sorted(arrays))
    arrays[rng.choice((*NAMES, "a/b", "unsnap_format", "unsnap_camera", "../x", "__x", "orig1", "file", "mask\0x"))] = (
        rng.choice(
            (arrays[name], np.array([1], "i4"), np.array([2]), np.frombuffer(b"multishot", "u1"), np.array([1e300]))
        )
    )
    if rng.random() < 0.5:
        del arrays[name]
    return "name"


def hostile_scene(rng: random.Random) -> tuple[str, Arrays]:
    """Arrays that a sound file may hold and no camera ever gave."""
    arrays = scene(rng, rng.random() < 0.7)
    attack = rng.choice((_scaled, _scaled, _special, _special, _kind, _shape, _axes, _name))(arrays, rng)
    return attack, arrays


# ---------------------------------------------------------------------- npy and npz

_DESCR = (
    "|O", "<f4", "<f8", ">f8", "<f2", "<f16", "<c8", "|b1", "<u8", "|S0", "<U9", "|V8", "<M8[s]", "x", "", "<f999",
    "(3,)<f4",
)  # fmt: skip


def npy_bytes(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.asanyarray(array), allow_pickle=False)
    return buffer.getvalue()


def npy(array: np.ndarray, rng: random.Random) -> Made:
    """One array with a header that lies."""
    fields: dict[str, Any] = {
        "descr": repr(array.dtype.str), "fortran_order": "False", "shape": repr(array.shape), "version": (1, 0),
        "length": None,
        "more": "",
    }  # fmt: skip

    def value(name: str, rng: random.Random) -> Any:
        sizes = [str(rng.choice((number(rng), -1, -5, 2**62))) for _ in range(rng.choice((1, 2, 3, 33, 70)))]
        return {
            "descr": rng.choice((repr(rng.choice(_DESCR)), "[('a', '<f4')]", "None", "3", "'" + "<" * 99 + "'", "{}")),
            "fortran_order": rng.choice(("True", "None", "1", "'x'", "[]")),
            "shape": rng.choice(
                (f"({', '.join(sizes)},)", "()", "None", "[2, 2]", "(1.5,)", "(True, 2)", "(" * 300, "('a',)")
            ),
            "version": rng.choice(((2, 0), (3, 0), (0, 0), (9, 9), (1, 255))),
            "length": rng.choice((0, 1, 65535, number(rng))),
            "more": rng.choice((", 'x': 1", "," * 500, ")" * 50, "\x00", "# ", ", 'y': " + "[" * 500, "\n" * 40, "é")),
        }[name]

    attack = edit(fields, rng, value)
    text = "{{'descr': {descr}, 'fortran_order': {fortran_order}, 'shape': {shape}{more}}}".format(**fields)
    header = text.encode("latin-1", "replace").ljust(117 - 64, b" ") + b"\n"
    form = "<H" if fields["version"][0] == 1 else "<I"
    length = len(header) if fields["length"] is None else fields["length"]
    content = b"\x93NUMPY" + bytes(fields["version"]) + bits(length, form) + header + array.tobytes()
    return f"header {attack}", content


def npz(members: list[tuple[str, bytes]], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, content in members:
            info = zipfile.ZipInfo(name.encode("utf-8", "replace").decode())
            archive.writestr(info, content, compression)
    return buffer.getvalue()


def npz_scene(arrays: Arrays) -> bytes:
    return npz([(f"{name}.npy", npy_bytes(array)) for name, array in arrays.items()])


@cache
def _npz_bomb(shape: tuple[int, ...], lie: int) -> bytes:
    """Megabytes of zeros in a few kilobytes, of which the header claims `lie` times as many."""
    text = (
        f"{{'descr': '|u1', 'fortran_order': False, 'shape': {(shape[0] * lie, *shape[1:])}, }}".ljust(117).encode()
        + b"\n"
    )
    content = b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text + bytes(int(np.prod(shape)))
    sound = scene(random.Random(0))
    return npz([*((f"{name}.npy", npy_bytes(a)) for name, a in sound.items()), ("x.npy", content), ("z.npy", content)])


def npz_structure(rng: random.Random) -> Made:
    """A zip archive that lies about its members, repeats them or holds a bomb."""
    arrays = scene(rng)
    members = [(f"{name}.npy", npy_bytes(array)) for name, array in arrays.items()]
    way = rng.choice(("member", "bomb", "twice", "many", "sizes", "sizes", "method", "stray", "empty", "nested"))
    if way == "member":
        attack, content = npy(arrays["mask"], rng)
        members[1] = ("mask.npy", content)
        way = f"member {attack}"
    elif way == "bomb":  # zeros deflate a thousandfold
        return "zip bomb", _npz_bomb(
            rng.choice(((2, 2**10, 2**11), (2**12, H, W), (2**22,))), rng.choice((1, 2**10, 2**20))
        )
    elif way == "twice":
        members *= 2
    elif way == "many":
        members += [(f"a{k}.npy", b"") for k in range(300)]
    elif way == "stray":
        members.append(
            (rng.choice(("../mask.npy", "/etc/x.npy", "x.txt", ".npy", "a/b.npy", "meas.NPY", "")), members[0][1])
        )
    elif way == "empty":
        members = rng.choice(([], [("meas.npy", b"")], [("x.txt", b"x")]))
    elif way == "nested":
        members.append(("z.npy", npz(members)))
    packing = rng.choice((zipfile.ZIP_STORED, *[zipfile.ZIP_DEFLATED] * 6, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))
    content = npz(members, packing if len(members) < 9 else zipfile.ZIP_STORED)
    if way in ("sizes", "method"):
        data = bytearray(content)
        for mark, offset in ((b"PK\1\2", 10 if way == "method" else 20), (b"PK\3\4", 8 if way == "method" else 18)):
            at = data.find(mark, rng.randrange(len(data) // 2) if mark == b"PK\3\4" else 0)
            if at >= 0 and rng.random() < 0.8:
                form = "<H" if way == "method" else "<I"
                place = at + offset + (rng.choice((0, 4)) if way == "sizes" else 0)
                data[place : place + struct.calcsize(form)] = bits(number(rng), form)
        content = bytes(data)
    return f"zip {way}", content
