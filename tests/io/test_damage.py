"""Damaged files of every kind, cut and flipped at many places, give arrays or one sentence: never another exception."""

from __future__ import annotations

import random
from pathlib import Path

import h5py
import numpy as np
import pytest
import scipy.io
import tifffile
import torch
from PIL import Image

from unsnap.errors import InputError
from unsnap.io import ARRAY_OUTPUTS, VIDEO_OUTPUTS, read_arrays, save_arrays, save_video

VIDEO = torch.rand(4, 9, 11, generator=torch.Generator().manual_seed(0))
FRAMES = (VIDEO.numpy() * 255).astype(np.uint8)
ROUNDS = 30


def make(path: Path) -> None:
    name = path.name
    if name == "plain.mat":
        scipy.io.savemat(
            path, {"a": np.eye(3), "s": {"b": FRAMES, "c": "text"}, "w": np.eye(2) * 1j, "l": np.eye(2) > 0}
        )
    elif name == "v4.mat":
        scipy.io.savemat(path, {"a": np.eye(3)}, format="4")
    elif name == "v73.mat":
        with h5py.File(path, "w", userblock_size=512) as file:
            file["meas"], file["s/x"] = VIDEO.numpy(), np.eye(3)
    elif name == "zlib.tif":
        tifffile.imwrite(path, FRAMES, compression="zlib", photometric="minisblack")
    elif path.stem == "scene":
        save_arrays(path, meas=FRAMES[0], mask=VIDEO.numpy())
    elif path.suffix in (".png", ".jpg", ".bmp"):
        Image.fromarray(FRAMES[0]).save(path)
    else:
        save_video(path, VIDEO)


KINDS = ["plain.mat", "v4.mat", "v73.mat", "zlib.tif", "i.png", "i.jpg", "i.bmp"]
KINDS += [f"v{suffix}" for suffix in VIDEO_OUTPUTS if suffix not in ("", ".hdr", ".zarr")] + [
    f"scene{suffix}" for suffix in ARRAY_OUTPUTS
]
# These formats do not say how much is to come: what is left of them reads as a shorter file.
OPEN_ENDED = {"plain.mat", "v.gif"}


def read_or_refuse(path: Path) -> dict[str, np.ndarray] | None:
    """The arrays, or None for a sentence that names the file; anything else fails the test."""
    try:
        return read_arrays(path)
    except InputError as error:
        if path.name not in str(error):
            raise
        return None


def same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[key], b[key]) for key in a)


@pytest.mark.parametrize("name", KINDS)
def test_truncated(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    make(path)
    content, whole = path.read_bytes(), read_arrays(path)
    lengths = np.unique(np.linspace(1, len(content) - 1, ROUNDS, dtype=int))
    refused = 0
    for length in lengths:
        path.write_bytes(content[:length])
        arrays = read_or_refuse(path)
        refused += arrays is None
        assert arrays is None or same(arrays, whole) or name in OPEN_ENDED, f"{length} bytes read as something else"
    assert refused > len(lengths) // 2 or name in OPEN_ENDED


@pytest.mark.parametrize("name", KINDS)
def test_flipped(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    make(path)
    content, rng = path.read_bytes(), random.Random(name)
    for _ in range(2 * ROUNDS):
        damaged = bytearray(content)
        reach = len(content) if rng.random() < 0.5 else min(len(content), 300)  # headers matter most
        for _ in range(rng.choice((1, 1, 3, 20))):
            damaged[rng.randrange(reach)] = rng.choice((0, 127, 255, rng.randrange(256)))
        path.write_bytes(damaged)
        arrays = read_or_refuse(path) or {}
        assert all(array.dtype.kind in "biufc" for array in arrays.values())
