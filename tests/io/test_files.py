"""read_arrays, save_arrays and sha256: round trips, folders, and one sentence for each thing that can be wrong."""

from __future__ import annotations

import hashlib
import os
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest
import tifffile
import torch
from PIL import Image

from unsnap.errors import InputError
from unsnap.io import ARRAY_OUTPUTS, load_scene, memory, read_arrays, save_arrays, save_video, sha256
from unsnap.io.files import scene_files
from unsnap.io.formats import suffixes
from unsnap.io.raw import Raw

RNG = np.random.default_rng(7)
VIDEO8 = RNG.integers(0, 256, (11, 5, 7), dtype=np.uint8)
VIDEO16 = RNG.integers(0, 65536, (3, 6, 3), dtype=np.uint16)


def write_frames(folder: Path, video: np.ndarray, suffix: str = ".png", name: str = "frame{}") -> Path:
    folder.mkdir(parents=True)
    for number, frame in enumerate(video):
        Image.fromarray(frame).save(folder / f"{name.format(number)}{suffix}")
    return folder


@pytest.mark.parametrize("suffix", [*ARRAY_OUTPUTS, ".NPZ"])
def test_saved_arrays_come_back(tmp_path: Path, suffix: str) -> None:
    arrays = {"meas": RNG.random((5, 7)), "mask": VIDEO8 > 99, "orig": VIDEO16, "file": np.float32([[1]])}
    path = save_arrays(tmp_path / f"new/scene{suffix}", **arrays)
    back = read_arrays(path)
    assert back.keys() == arrays.keys()
    for name, value in arrays.items():
        np.testing.assert_array_equal(back[name], value)
        assert back[name].dtype == value.dtype


def test_npy_and_byte_order(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", VIDEO16.astype(">u2"))
    array = read_arrays(tmp_path / "a.npy")["array"]
    assert array.dtype.isnative
    np.testing.assert_array_equal(array, VIDEO16)


def test_hdf5_datasets_at_any_depth_without_text(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x/y/meas"], file["mask"], file["note"], file["nothing"] = VIDEO8, VIDEO16, "text", h5py.Empty("f4")
    arrays = read_arrays(tmp_path / "a.h5")
    assert arrays.keys() == {"x/y/meas", "mask"}
    np.testing.assert_array_equal(arrays["x/y/meas"], VIDEO8)


@pytest.mark.parametrize("video", [VIDEO8, VIDEO16, VIDEO8[:1], RNG.random((4, 6, 3)).astype(np.float32)])
@pytest.mark.parametrize("options", [{}, {"bigtiff": True}, {"compression": "zlib"}, {"byteorder": ">"}])
def test_tiff_stack(tmp_path: Path, video: np.ndarray, options: dict[str, object]) -> None:
    tifffile.imwrite(tmp_path / "a.TIF", video, photometric="minisblack", **options)
    array = read_arrays(tmp_path / "a.TIF")["array"]
    np.testing.assert_array_equal(array, video)
    assert array.dtype == video.dtype


def test_tiff_colour_inverted_and_odd_pages(tmp_path: Path) -> None:
    grey = VIDEO8[0]
    tifffile.imwrite(tmp_path / "rgb.tif", np.stack([grey] * 3, -1), photometric="rgb")
    tifffile.imwrite(tmp_path / "white.tif", ~grey, photometric="miniswhite")
    np.testing.assert_array_equal(read_arrays(tmp_path / "rgb.tif")["array"], grey[None])
    np.testing.assert_array_equal(read_arrays(tmp_path / "white.tif")["array"], grey[None])
    tifffile.imwrite(tmp_path / "alpha.tif", np.stack([grey, grey // 2], -1), photometric="minisblack",
                     planarconfig="contig", extrasamples=["unassalpha"])  # fmt: skip
    np.testing.assert_array_equal(read_arrays(tmp_path / "alpha.tif")["array"], grey[None])
    with tifffile.TiffWriter(tmp_path / "odd.tif") as file:
        file.write(VIDEO8[0], photometric="minisblack")
        file.write(VIDEO8[0, :3], photometric="minisblack")
    with pytest.raises(InputError, match="different sizes"):
        read_arrays(tmp_path / "odd.tif")


def test_axes_of_a_tiff_say_what_are_colours(tmp_path: Path) -> None:
    planes = VIDEO16.reshape(1, 3, 6, 3)[0]
    tifffile.imwrite(tmp_path / "planar.tif", planes, photometric="rgb", planarconfig="separate")
    np.testing.assert_array_equal(read_arrays(tmp_path / "planar.tif", capture=True)["rgb"], planes)
    for channels, key in ((2, "array"), (3, "rgb")):
        hyper = RNG.integers(0, 65536, (4, channels, 5, 7), dtype=np.uint16)
        tifffile.imwrite(tmp_path / "hyper.tif", hyper, imagej=True, metadata={"axes": "TCYX"})
        arrays = read_arrays(tmp_path / "hyper.tif", capture=True)
        np.testing.assert_array_equal(arrays[key], hyper.reshape(-1, 5, 7))


def test_a_palette_is_looked_up(tmp_path: Path) -> None:
    picture = Image.fromarray(VIDEO8[0]).convert("P")
    picture.putpalette(RNG.integers(0, 256, 768, dtype=np.uint8).tolist())
    picture.save(tmp_path / "p.tif")
    colours = np.moveaxis(np.array(picture.convert("RGB")), -1, 0)
    np.testing.assert_array_equal(read_arrays(tmp_path / "p.tif", capture=True)["rgb"], colours)
    np.testing.assert_allclose(read_arrays(tmp_path / "p.tif")["array"][0], np.array(picture.convert("L")), atol=1)


@pytest.mark.parametrize(
    ("video", "suffix"), [(VIDEO8, ".png"), (VIDEO16, ".png"), (VIDEO8, ".bmp"), (VIDEO16, ".tif")]
)
def test_frames_are_sorted_by_number(tmp_path: Path, video: np.ndarray, suffix: str) -> None:
    folder = write_frames(tmp_path / "clip", video, suffix)
    (folder / "notes.txt").write_text("ignored")
    (folder / "._frame0.png").write_text("ignored")
    array = read_arrays(folder)["array"]
    np.testing.assert_array_equal(array, video)
    assert array.dtype == video.dtype


def test_colour_palette_and_binary_frames_become_luma(tmp_path: Path) -> None:
    red = Image.new("RGB", (4, 3), (255, 0, 0))
    red.save(tmp_path / "a1.png")
    red.quantize(2).save(tmp_path / "a2.png")
    red.convert("RGBA").save(tmp_path / "a3.png")
    Image.new("1", (4, 3), 1).save(tmp_path / "a4.png")
    array = read_arrays(tmp_path)["array"]
    np.testing.assert_array_equal(array[:, 0, 0], [76, 76, 76, 255])


def test_odd_frame_is_named(tmp_path: Path) -> None:
    folder = write_frames(tmp_path / "clip", VIDEO8[:3])
    Image.fromarray(VIDEO8[0, :, :4]).save(folder / "frame1.png")
    with pytest.raises(InputError, match=r"frame1\.png is 5×4 uint8 but frame0\.png is 5×7 uint8"):
        read_arrays(folder)


def test_scene_folder(tmp_path: Path) -> None:
    scene = tmp_path / "scene"
    write_frames(scene / "mask", VIDEO8, name="{:04d}")
    tifffile.imwrite(scene / "meas.tif", VIDEO8[0].astype(np.float32))
    np.save(scene / "Orig.npy", VIDEO8)
    arrays = read_arrays(scene)
    assert {name: array.shape for name, array in arrays.items()} == {
        "mask": (11, 5, 7),
        "meas": (1, 5, 7),
        "orig": (11, 5, 7),
    }
    np.save(scene / "meas.npy", VIDEO8)
    with pytest.raises(InputError, match="'meas' more than once"):
        read_arrays(scene)


def test_files_in_another_role_are_no_frames_of_their_folder(tmp_path: Path) -> None:
    write_frames(tmp_path / "a", VIDEO8[:2], name="img{}")
    mask, dark, bad = (tmp_path / "a" / f"{name}.png" for name in ("mask", "dark", "bad"))
    for path, picture in ((mask, VIDEO8[3]), (dark, VIDEO8[4] // 9), (bad, VIDEO8[5] // 250)):
        Image.fromarray(picture).save(path)
    options = {"masks": mask, "motion": [(0, 0), (1, 0)]}
    assert load_scene(tmp_path / "a", **options, raw=Raw(dark=dark, bad_pixels=str(bad))).snapshots == 2
    assert load_scene(tmp_path / "a", **options, raw=Raw(dark=dark, bad_pixels="1,1")).snapshots == 3


def test_a_folder_is_one_scene_only_with_masks(tmp_path: Path) -> None:
    for name in ("a.npz", "snapshot.npz"):
        np.savez(tmp_path / name, meas=VIDEO8[0], mask=VIDEO8)
    both = [tmp_path / "a.npz", tmp_path / "snapshot.npz"]
    assert scene_files([tmp_path]) == both
    assert scene_files([tmp_path], separate_masks=True) == both
    (tmp_path / "a.npz").unlink()
    assert scene_files([tmp_path], separate_masks=True) == [tmp_path]
    np.savez(tmp_path / "mask.npz", VIDEO8)
    assert scene_files([tmp_path]) == [tmp_path]


@pytest.mark.parametrize("folder", [True, False])
def test_colours_that_a_capture_loses_are_told(tmp_path: Path, folder: bool) -> None:
    np.save(tmp_path / "m.npy", VIDEO8 % 2)
    (tmp_path / "a").mkdir()
    path = tmp_path / "a" / "img.png"
    for picture, told in ((np.stack([VIDEO8[0], VIDEO8[1], VIDEO8[2]], -1), True), (VIDEO8[0], False)):
        Image.fromarray(picture).save(path)
        notes = load_scene(path.parent if folder else path, masks=tmp_path / "m.npy").meta["notes"]
        assert any("which are in colour" in note for note in notes) is told


def test_missing_file_suggests_its_neighbour(tmp_path: Path) -> None:
    np.save(tmp_path / "traffic.npy", VIDEO8)
    with pytest.raises(InputError, match=r"trafic\.npy does not exist; did you mean traffic\.npy\?"):
        read_arrays(tmp_path / "trafic.npy")
    for path in (tmp_path / "no/such/a.mat", tmp_path / "traffic.npy/a.mat", "a\0b.mat", "x" * 5000 + ".mat"):
        with pytest.raises(InputError):
            read_arrays(path)


def test_what_is_not_a_container_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "a.xyz").write_text("hello")
    os.mkfifo(tmp_path / "pipe.mat")
    for name, message in {
        "folder": "holds neither frames",
        "a.xyz": r"unknown extension '\.xyz'; known are \.mat, \.npz",
        "pipe.mat": "neither a file nor a folder",
    }.items():
        with pytest.raises(InputError, match=message):
            read_arrays(tmp_path / name)


@pytest.mark.parametrize("suffix", suffixes(lambda kind: kind.is_readable))
def test_empty_foreign_and_pickled_content(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_bytes(b"")
    with pytest.raises(InputError, match="is empty"):
        read_arrays(path)
    path.write_text("certainly no data of this kind, but more than a few bytes of it\n" * 9)
    with pytest.raises(InputError, match=rf"a\{suffix} cannot be read as an? "):
        read_arrays(path)


def test_pickles_are_never_loaded(tmp_path: Path) -> None:
    objects = np.array([{"a": 1}, None], dtype=object)
    np.save(tmp_path / "a.npy", objects)
    np.savez(tmp_path / "a.npz", meas=VIDEO8, mask=objects)
    for path, key in ((tmp_path / "a.npy", "array"), (tmp_path / "a.npz", "mask")):
        with pytest.raises(InputError, match=f"pickled Python object under '{key}'"):
            read_arrays(path)


def test_no_numbers_at_all(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", name=np.array(["text"]))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["note"] = "text"
    for name in ("a.npz", "a.h5"):
        with pytest.raises(InputError, match="holds no numeric array"):
            read_arrays(tmp_path / name)


def npy_header(shape: str) -> bytes:
    text = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


def test_headers_that_promise_too_much_are_refused_before_allocating(tmp_path: Path) -> None:
    (tmp_path / "a.npy").write_bytes(npy_header("(1000000, 1000000, 1000)") + bytes(80))
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("meas.npy", npy_header("(1000000, 1000000, 1000)") + bytes(80))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("meas", (10**6, 10**6, 10**3), "f8", chunks=(1, 1000, 1000))
    (tmp_path / "a.mat").write_bytes((tmp_path / "a.h5").read_bytes())
    too_much = r"would need 7\.45e\+06 GiB of memory"
    for name, message in {"a.npy": "cut short", "a.npz": "cut short", "a.h5": too_much, "a.mat": too_much}.items():
        with pytest.raises(InputError, match=message):
            read_arrays(tmp_path / name)
    for shape, message in (("(30, 30)", "cut short"), ("(-1, 5)", "damaged")):
        (tmp_path / "a.npy").write_bytes(npy_header(shape) + bytes(80))
        with pytest.raises(InputError, match=message):
            read_arrays(tmp_path / "a.npy")


@pytest.mark.parametrize("suffix", [".npz", ".npy", ".h5", ".mat", ".tif", ".mp4", "/"])
def test_the_memory_limit_holds_for_every_container(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"clip{suffix.strip('/')}"
    video = torch.linspace(0, 1, 8 * 40 * 40).reshape(8, 40, 40)
    save_arrays(path, a=video.numpy()) if suffix == ".h5" else save_video(path, video)
    with memory(5000), pytest.raises(InputError, match=r"iB of memory and 4\.88 KiB may be used; .* --memory"):
        read_arrays(path)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_no_permission(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", VIDEO8)
    (tmp_path / "a.npy").chmod(0)
    with pytest.raises(InputError, match="permission denied"):
        read_arrays(tmp_path / "a.npy")


def test_save_arrays_refuses_what_it_cannot_hold(tmp_path: Path) -> None:
    for name, arrays in (
        ("a.xyz", {"a": VIDEO8}),
        ("a.npz", {"a": np.array([None])}),
        ("a.npz", {}),
        ("a.mat", {"a": np.array(["text"])}),
    ):
        with pytest.raises(InputError, match=name):
            save_arrays(tmp_path / name, **arrays)
    assert list(tmp_path.iterdir()) == []


def test_sha256(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 3_000_000)
    assert sha256(tmp_path / "a") == hashlib.sha256(b"x" * 3_000_000).hexdigest()
    folder = tmp_path / "folder"
    (folder / "sub").mkdir(parents=True)
    digests = set()
    for name, content in (("sub/1", b"a"), ("2", b"b"), ("2", b"c"), ("3", b"")):
        (folder / name).write_bytes(content)
        digests.add(sha256(folder))
    assert len(digests) == 4
    (folder / ".DS_Store").write_bytes(b"noise")
    assert sha256(folder) in digests
    (folder / "3").rename(folder / "4")
    assert sha256(folder) not in digests
    with pytest.raises(InputError, match="does not exist"):
        sha256(tmp_path / "none")
