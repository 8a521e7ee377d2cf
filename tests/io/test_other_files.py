"""A file is read alone: whatever other files it names are not opened."""

from __future__ import annotations

import os
from pathlib import Path

import h5py
import numpy as np
import pytest
import tifffile
import torch
from PIL import Image

from unsnap.errors import InputError
from unsnap.io import read_arrays, read_video, save_video

SECRET = np.arange(12, dtype=np.uint8).reshape(3, 4)


def link(file: h5py.File, other: Path) -> None:
    file["meas"] = h5py.ExternalLink(str(other), "secret")


def deep_link(file: h5py.File, other: Path) -> None:
    file.create_group("a/b")["meas"] = h5py.ExternalLink(str(other), "secret")


def storage(file: h5py.File, other: Path) -> None:
    file.create_dataset("meas", (3, 4), "u1", external=[(str(other), 0, 12)])


def virtual(file: h5py.File, other: Path) -> None:
    layout = h5py.VirtualLayout((3, 4), "u1", maxshape=(None, 4))
    layout[:] = h5py.VirtualSource(str(other), "secret", (3, 4), maxshape=(None, 4))[:]
    file.create_virtual_dataset("meas", layout)


@pytest.mark.parametrize("suffix", [".h5", ".mat"])
@pytest.mark.parametrize("make", [link, deep_link, storage, virtual])
@pytest.mark.parametrize("pipe", [False, True])
def test_hdf5(tmp_path: Path, make: object, suffix: str, pipe: bool) -> None:
    other, path = tmp_path / "other.h5", tmp_path / f"a{suffix}"
    if pipe:
        os.mkfifo(other)  # who opens it waits for ever
    else:
        with h5py.File(other, "w") as file:
            file["secret"] = SECRET
    with h5py.File(path, "w") as file:
        make(file, other)  # type: ignore[operator]
    with pytest.raises(InputError, match=r"meas' lies in another file, which is not opened"):
        read_arrays(path)


@pytest.mark.parametrize("suffix", [".h5", ".mat"])
def test_hdf5_soft_links_cycles_and_second_names(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    with h5py.File(path, "w") as file:
        file["meas"] = SECRET
        file["again"], file["loop"] = file["meas"], file["/"]
        file["soft"], file["dangling"] = h5py.SoftLink("/meas"), h5py.SoftLink("/nowhere")
    assert len(read_arrays(path)) == 1


def test_hdf5_that_is_endlessly_deep(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["/".join("g" * 60)] = SECRET
    with pytest.raises(InputError, match="groups in 32 groups"):
        read_arrays(tmp_path / "a.h5")


@pytest.mark.parametrize("text", ["ffconcat version 1.0\nfile 'real.mp4'\n", "#EXTM3U\n#EXTINF:1,\nreal.mp4\n"])
def test_text_under_the_name_of_a_video(tmp_path: Path, text: str) -> None:
    save_video(tmp_path / "real.mp4", torch.zeros(2, 16, 16))
    for suffix in (".mp4", ".gif", ".mkv", ".avi"):
        (tmp_path / f"a{suffix}").write_text(text)
        with pytest.raises(InputError, match="not mp4, mov, avi, mkv, webm or gif"):
            read_video(tmp_path / f"a{suffix}")


def test_videos_of_another_name_are_still_read(tmp_path: Path) -> None:
    save_video(tmp_path / "a.mp4", torch.zeros(2, 16, 16))
    (tmp_path / "a.mov").write_bytes((tmp_path / "a.mp4").read_bytes())
    assert read_video(tmp_path / "a.mov").shape == (2, 16, 16)


def test_ome_metadata_that_name_another_file(tmp_path: Path) -> None:
    pages = np.stack([SECRET, SECRET + 1])
    path = tmp_path / "a.ome.tif"
    tifffile.imwrite(path, pages, photometric="minisblack", metadata={"axes": "TYX"}, ome=True)
    description = str(tifffile.tiffcomment(path))
    own = description[description.index("<TiffData") : description.index("</Pixels>")]
    other = '<TiffData IFD="0" FirstT="0" PlaneCount="2"><UUID FileName="b.ome.tif">urn:uuid:0</UUID></TiffData>'
    tifffile.tiffcomment(path, description.replace(own, other).encode())
    os.mkfifo(tmp_path / "b.ome.tif")  # who opens it waits for ever
    np.testing.assert_array_equal(read_arrays(path)["array"], pages)


def test_images_of_formats_that_are_not_asked_for(tmp_path: Path) -> None:
    Image.fromarray(SECRET).save(tmp_path / "a.eps")
    (tmp_path / "a.png").write_bytes((tmp_path / "a.eps").read_bytes())  # Pillow would run Ghostscript
    with pytest.raises(InputError, match="cannot be read as an image"):
        read_arrays(tmp_path / "a.png")
