"""Memory is claimed before it is allocated: against what there is, and against what a file can justify."""

from __future__ import annotations

import io
import os
import struct
import zipfile
import zlib
from pathlib import Path

import h5py
import numpy as np
import pytest
import tifffile
import torch
from PIL import Image

from unsnap.errors import InputError
from unsnap.io import budget, hdf5, load_scene, memory, read_arrays, read_video, save_arrays, save_video, sha256, tiff
from unsnap.io.checks import claim_archive, read_text

MEGA = 2**20


@pytest.fixture
def low_floor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small files show what large ones would do."""
    monkeypatch.setattr(budget, "FLOOR", MEGA)
    monkeypatch.setattr(tiff, "HARMLESS", 0)
    monkeypatch.setattr(hdf5, "HARMLESS", 0)


@pytest.mark.parametrize(
    ("text", "value"), [("512M", 512 * MEGA), ("2G", 2**31), ("1.5GiB", 3 * 2**29), (" 7 kb", 7168), ("500", 500)]
)
def test_amounts(text: str, value: int) -> None:
    assert budget.parse(text) == value


@pytest.mark.parametrize("text", ["", "G", "-1G", "2X", "1e9", "0", "nan", "2G2", "٣G", "9" * 400])
def test_amounts_that_are_none(text: str) -> None:
    with pytest.raises(InputError, match="512M or 2G"):
        budget.parse(text)


def test_the_smallest_of_all_limits_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {
        "/proc/meminfo": "MemTotal: 9000 kB\nMemAvailable: 8000 kB\n",
        "/proc/self/cgroup": "4:memory:/one/two\n0::/a/b\n",
        "/sys/fs/cgroup/a/memory.max": "max",
        "/sys/fs/cgroup/a/memory.current": "5",
    }
    monkeypatch.setattr(budget, "_text", lambda path: texts.get(str(path), ""))
    monkeypatch.setattr(budget, "_under_limits", lambda: iter(()))
    assert budget.available() == int(0.8 * 8000 * 1024)
    texts |= {"/sys/fs/cgroup/a/memory.max": "3000000", "/sys/fs/cgroup/a/memory.stat": "inactive_file 5\n"}
    assert budget.available() == int(0.8 * 3_000_000)
    group = "/sys/fs/cgroup/memory/one"
    texts |= {f"{group}/memory.limit_in_bytes": "2000", f"{group}/memory.usage_in_bytes": "500"}
    assert budget.available() == int(0.8 * 1500)
    monkeypatch.setattr(budget, "_under_limits", lambda: iter((1000,)))
    assert budget.available() == 800


def test_claims_of_several_files_add_up_and_what_passes_is_given_back(tmp_path: Path) -> None:
    for name in ("a.npy", "b.npy"):
        np.save(tmp_path / name, np.zeros(1000, np.uint8))
    with memory(1500):
        read_arrays(tmp_path / "a.npy")
        with pytest.raises(InputError, match=r"b\.npy would need 1\.95 KiB of memory and 1\.46 KiB may be used"):
            read_arrays(tmp_path / "b.npy")
    with memory(1500) as granted:
        for _ in range(3):
            with budget.passing():
                read_arrays(tmp_path / "a.npy")
    assert (granted.used, granted.peak) == (0, 1000)


@pytest.mark.parametrize("suffix", [".npz", ".h5", ".mat"])
def test_conversions_are_counted(tmp_path: Path, suffix: str) -> None:
    scene = {"meas": np.ones((1, 32, 40), np.uint8), "mask": np.ones((5, 32, 40), np.uint8)}
    if suffix == ".mat":
        scene = {name: np.moveaxis(array, 0, -1) for name, array in scene.items()}
    save_arrays(tmp_path / f"a{suffix}", **scene)
    stored = 6 * 32 * 40
    with memory(2**30) as granted:
        load_scene(tmp_path / f"a{suffix}")
    assert granted.peak > 10 * stored
    with memory(10 * stored), pytest.raises(InputError, match="may be used"):
        load_scene(tmp_path / f"a{suffix}")


def fill(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("meas", (4, 1000, 1000), "u1", chunks=(1, 100, 100))


def chunk_bomb(path: Path) -> None:
    """A chunk of 100 bytes that inflates to many."""
    with h5py.File(path, "w") as file:
        data = file.create_dataset("meas", (10, 10), "u1", chunks=(10, 10), compression="gzip")
        data.id.write_direct_chunk((0, 0), zlib.compress(bytes(4 * MEGA)))


def mat5_bomb(path: Path) -> None:
    """Many small variables that are large together."""
    save_arrays(path, **{f"v{k:02}": np.zeros(MEGA // 4, np.uint8) for k in range(16)})


def npz_bomb(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for k in range(16):
            part = io.BytesIO()
            np.save(part, np.zeros(MEGA // 4, np.uint8))
            archive.writestr(f"v{k:02}.npy", part.getvalue())


def npz_header(path: Path) -> None:
    """The length of a header is all that numpy's reader believes."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", b"\x93NUMPY\x02\x00" + struct.pack("<I", 4 * MEGA) + b" " * 4 * MEGA)


def strip(path: Path, data: bytes, count: int = 1) -> None:
    """A TIFF of 4 x 4 bytes whose one strip is compressed."""
    tags = ((256, 4), (257, 4), (258, 8), (259, 8), (262, 1), (273, 122), (277, 1), (278, 4), (279, len(data)))
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags)
    path.write_bytes(b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4) + data * count)


def strip_bomb(path: Path) -> None:
    strip(path, zlib.compress(bytes(4 * MEGA)))


def image_bomb(path: Path) -> None:
    Image.new("1", (70_000, 4)).save(path)


BOMBS = {
    "fill.h5": (
        fill,
        "would need 4.81 MiB of memory, and such a file may use 1 MiB; if it .* give --memory 1G",
    ),
    "chunk.h5": (chunk_bomb, "more than the 104 bytes announced"),
    "many.mat": (mat5_bomb, "such a file may use"),
    "many.npz": (npz_bomb, "such a file may use"),
    "header.npz": (npz_header, "a header of 4194304 bytes"),
    "strip.tif": (strip_bomb, "more than the 16 bytes announced"),
    "wide.png": (image_bomb, "a side may have 65535"),
}


@pytest.mark.usefixtures("low_floor")
@pytest.mark.parametrize("name", BOMBS)
def test_small_files_do_not_become_large(tmp_path: Path, name: str) -> None:
    make, words = BOMBS[name]
    make(tmp_path / name)
    with pytest.raises(InputError, match=words) as caught:
        read_arrays(tmp_path / name)
    assert str(tmp_path / name) in str(caught.value)


@pytest.mark.usefixtures("low_floor")
def test_who_names_the_memory_has_justified_it(tmp_path: Path) -> None:
    fill(tmp_path / "a.h5")
    with memory(100 * MEGA):
        assert read_arrays(tmp_path / "a.h5")["meas"].shape == (4, 1000, 1000)


@pytest.mark.usefixtures("low_floor")
def test_compressed_strips_that_are_honest_are_read(tmp_path: Path) -> None:
    strip(tmp_path / "a.tif", zlib.compress(bytes(range(16))))
    assert read_arrays(tmp_path / "a.tif")["array"].tolist() == [np.arange(16).reshape(4, 4).tolist()]


@pytest.mark.parametrize("target", [0, 110])
def test_pages_in_a_circle(tmp_path: Path, target: int) -> None:
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, np.zeros((120, 3, 4), np.uint8), photometric="minisblack", metadata=None)
    with tifffile.TiffFile(path) as file:
        offsets = [page.offset for page in file.pages]
    content = bytearray(path.read_bytes())
    (tags,) = struct.unpack_from("<H", content, offsets[-1])
    struct.pack_into("<I", content, offsets[-1] + 2 + 12 * tags, offsets[target])
    path.write_bytes(content)
    with pytest.raises(InputError, match="in a circle"):
        read_arrays(path)


@pytest.mark.usefixtures("low_floor")
def test_a_video_is_counted_frame_by_frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_video(tmp_path / "a.gif", torch.zeros(40, 200, 200))
    assert len(read_video(tmp_path / "a.gif")) == 40
    monkeypatch.setattr("unsnap.io.codec.PICTURES", 1)
    with pytest.raises(InputError, match="such a file may use"):
        read_video(tmp_path / "a.gif")


@pytest.mark.usefixtures("low_floor")
def test_archives_say_their_size(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data/0", bytes(4 * MEGA))
    with pytest.raises(InputError, match="such a file may use"):
        claim_archive(tmp_path / "a.pt")


def test_holes_and_long_texts(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    path.touch()
    os.truncate(path, 2**40)
    for read in (read_arrays, sha256):
        with pytest.raises(InputError, match="only holes"):
            read(path)
    with pytest.raises(InputError, match=r"larger than 1 MiB"):
        read_text(path, "a config")
