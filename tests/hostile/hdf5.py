"""Scenes in HDF5, also as MATLAB 7.3 writes them: sound, bombs, links to elsewhere, strange types."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import h5py
import numpy as np

from hostile.arrays import Arrays, H, Made, T, W, scene
from hostile.mutate import NAMES


def image(fill: Any, **options: Any) -> bytes:
    """The bytes of an HDF5 file that `fill(file)` fills, made in memory."""
    with h5py.File("image", "w", driver="core", backing_store=False, **options) as file:
        fill(file)
        file.flush()
        return bytes(file.id.get_file_image())


def hdf5_scene(arrays: Arrays, matlab: bool = False, **options: Any) -> bytes:
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

    content = image(fill, **options)
    return (
        b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM" + bytes(384) + content if matlab and not options else content
    )


REACHING = ("external", "link", "virtual")


def hdf5_structure(rng: random.Random, outside: str, matlab: bool) -> Made:
    """Datasets that are not there, far too large, linked, virtual or of strange types; `outside` is another file."""
    arrays = scene(rng)
    victim = rng.choice(("mask", "meas", "x"))
    way = rng.choice((
        *REACHING, "fill", "fill", "chunk bomb", "many", "types", "types", "cycles", "deep", "rank", "attrs",
        "names",
    ))  # fmt: skip

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
    return f"h5 {way}{' unneeded' if victim == 'x' else ''}", image(fill, **options)


def _strange(file: Any, name: str, array: np.ndarray, rng: random.Random) -> None:
    kind = rng.choice((
        "f2", "g", ">f8", "c16", "?", "i8", "compound", "vlen", "string", "enum", "opaque", "null", "scalar", "ref",
        "array",
    ))  # fmt: skip
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
