"""Scenes in .npy, .npz, .mat and .h5: sound ones, ones with hostile numbers, and ones whose structure lies.

Every function takes a generator of random numbers and returns (name of the attack, bytes of the file).
"""

from __future__ import annotations

import io
import random
import struct
import warnings
import zipfile
import zlib
from contextlib import suppress
from functools import cache
from typing import Any

import h5py
import numpy as np

from hostile.mutate import NAMES, NUMBERS, bits, edit, number

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
    "u1",
    "i1",
    "u2",
    "i4",
    "u8",
    "i8",
    "f2",
    "f4",
    "f8",
    "g",
    "c8",
    "c16",
    "?",
    ">f4",
    ">u2",
    "S4",
    "U2",
    "M8[s]",
    "V3",
)
_SHAPES = (
    (0,),
    (),
    (1,),
    (H, W),
    (1, H, W),
    (T, H, W, 1),
    (1, 1, 1, 1, 1),
    (T * H * W,),
    (2**20,),
    (0, H, W),
    (H, W, 0),
)


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
    "|O",
    "<f4",
    "<f8",
    ">f8",
    "<f2",
    "<f16",
    "<c8",
    "|b1",
    "<u8",
    "|S0",
    "<U9",
    "|V8",
    "<M8[s]",
    "x",
    "",
    "<f999",
    "(3,)<f4",
)


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
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a name twice is on purpose
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


# ---------------------------------------------------------------------- MATLAB 5

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


# ---------------------------------------------------------------------- HDF5


def h5_image(fill: Any, **options: Any) -> bytes:
    """The bytes of an HDF5 file that `fill(file)` fills, made in memory."""
    with h5py.File("image", "w", driver="core", backing_store=False, **options) as file:
        fill(file)
        file.flush()
        return bytes(file.id.get_file_image())


def h5_scene(arrays: Arrays, matlab: bool = False, **options: Any) -> bytes:
    def fill(file: Any) -> None:
        for name, array in arrays.items():
            clean = name.replace("\0", "_").encode("utf-8", "surrogateescape") or b"empty"
            data = array.astype(object) if array.dtype.kind in "UM" else array
            if data.dtype.kind == "O":
                data = np.array([str(x) for x in data.ravel()], dtype=h5py.string_dtype())
            with suppress(ValueError, TypeError):  # some names and types no HDF5 file can have
                node = file.create_dataset(clean, data=data.T if matlab else data)
                if matlab:
                    node.attrs["MATLAB_class"] = np.bytes_(
                        {"f4": "single", "f8": "double"}.get(array.dtype.str[1:], "double")
                    )

    content = h5_image(fill, **options)
    return (
        b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM" + bytes(384) + content if matlab and not options else content
    )


H5_REACHING = ("external", "link", "virtual")


def h5_structure(rng: random.Random, outside: str, matlab: bool) -> Made:
    """Datasets that are not there, far too large, linked, virtual or of strange types; `outside` is another file."""
    arrays = scene(rng)
    victim = rng.choice(("mask", "meas", "x"))
    way = rng.choice(
        (
            *H5_REACHING,
            "fill",
            "fill",
            "chunk bomb",
            "many",
            "types",
            "types",
            "cycles",
            "deep",
            "rank",
            "attrs",
            "names",
        )
    )

    def fill(file: Any) -> None:
        for name, array in arrays.items():
            if name != victim:
                file[name] = array.T if matlab else array
        if way == "external":
            file.create_dataset(victim, (T, H, W), "u1", external=[(outside, 0, T * H * W)])
        elif way == "link":
            file[victim] = h5py.ExternalLink(outside, rng.choice(("/mask", "/", "/nothing", "/meas")))
        elif way == "virtual":
            layout = h5py.VirtualLayout((T, H, W), "f4")
            layout[:] = h5py.VirtualSource(rng.choice((outside, ".", "absent.h5")), "mask", (T, H, W))
            file.create_virtual_dataset(victim, layout)
        elif way == "fill":  # claimed, never written: read as zeros
            shape = rng.choice(
                ((2**20, 2**11), (2**16, 2**16), (T, 2**20, 2**12), (2**31, 2**20), (2**50,), (2**10, 2**20))
            )
            chunks = rng.choice((None, True)) if len(shape) < 3 and shape[0] < 2**31 else None
            file.create_dataset(
                victim, shape, rng.choice(("u1", "f4", "f8")), chunks=chunks, fillvalue=rng.choice((0, 1))
            )
        elif way == "chunk bomb":
            size = rng.choice((2**18, 2**20))
            node = file.create_dataset(
                victim, (size * 2**12,), "u1", chunks=(size,), compression="gzip", compression_opts=1
            )
            node[:size] = 0
        elif way == "many":
            for k in range(40):
                file.create_dataset(f"g{k % 7}/d{k}", (2**18, 2**12) if k % 2 else (3, 3), "u1")
        elif way == "types":
            _strange(file, victim, arrays["mask"], rng)
        elif way == "cycles":
            file["self"] = file["/"]
            file["soft"] = h5py.SoftLink(rng.choice(("/soft", "/nowhere", "/", "/meas", "../x")))
            file["g/up"] = file["/"]
        elif way == "deep":
            file["/".join("g" * rng.choice((3, 200)))] = arrays["mask"]
        elif way == "rank":
            file[victim] = np.zeros((1,) * rng.choice((6, 20, 32)))
        elif way == "attrs":
            node = file.create_dataset(victim, data=arrays["mask"].T)
            hostile = (
                np.zeros(300),
                b"\xff\xfe",
                "double",
                3,
                np.bytes_("logical"),
                np.bytes_("cell"),
                h5py.Empty("f"),
                "x" * 5000,
            )
            node.attrs[rng.choice(("MATLAB_class", "MATLAB_empty", "MATLAB_sparse", "MATLAB_fields"))] = rng.choice(
                hostile
            )
        elif way == "names":
            for name in rng.sample(NAMES, 5):
                with suppress(ValueError):
                    file.create_dataset(name.encode("utf-8", "surrogateescape"), data=arrays["mask"])

    options = {"libver": "latest"} if rng.random() < 0.3 else {}
    return f"h5 {way}{' unneeded' if victim == 'x' else ''}", h5_image(fill, **options)


def _strange(file: Any, name: str, array: np.ndarray, rng: random.Random) -> None:
    kind = rng.choice(
        (
            "f2",
            "g",
            ">f8",
            "c16",
            "?",
            "i8",
            "compound",
            "vlen",
            "string",
            "enum",
            "opaque",
            "null",
            "scalar",
            "ref",
            "array",
        )
    )
    if kind == "compound":
        names = rng.choice((["real", "imag"], ["a", "b"]))
        file[name] = np.zeros(array.shape, [(names[0], "f8"), (names[1], rng.choice(("f8", "u1", "S3")))])
    elif kind == "vlen":
        file.create_dataset(name, (3,), h5py.vlen_dtype(np.float32))
    elif kind == "string":
        file.create_dataset(name, data=["a", "\x1b[31m"], dtype=h5py.string_dtype())
    elif kind == "enum":
        file.create_dataset(name, (4, 4), h5py.enum_dtype({"A": 0, "B": 1}))
    elif kind == "opaque":
        file.create_dataset(name, (4, 4), "V5")
    elif kind == "null":
        file[name] = h5py.Empty("f4")
    elif kind == "scalar":
        file[name] = 1.5
    elif kind == "ref":
        file.create_dataset(name, (2,), h5py.ref_dtype)
    elif kind == "array":
        file.create_dataset(name, (4,), np.dtype(("f4", (4, 4))))
    else:
        with np.errstate(all="ignore"):
            file[name] = array.astype(kind)
