"""Colour and spectral captures from files and back, and what is written of their videos."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tifffile
import torch
from PIL import Image

from laws import uniform
from unsnap import InputError, Scene, load_scene, save_scene, save_video
from unsnap.io import read_arrays, read_cube, read_video, save_arrays
from unsnap.io.cie import FIELD, matching, to_rgb
from unsnap.io.kinds import wavelengths
from unsnap.io.scene_file import interpret
from unsnap.operators.dispersed import moved
from unsnap.simulate.coded import coded_masks

T, H, W, L = 4, 12, 10, 5


def drawn(count: int) -> torch.Tensor:
    return uniform(count, H, W, dtype=torch.float32)


def made(kind: str, frames: int, planes: int = 1, captures: int = 1) -> Scene:
    masks, name = coded_masks(kind, drawn, frames)
    truth = uniform(captures, planes * frames, H, W, seed=1, dtype=torch.float32)
    return Scene.of(truth, masks, name)


@pytest.mark.parametrize("suffix", [".npz", ".mat", ".h5"])
@pytest.mark.parametrize(("kind", "frames", "planes"), [
    ("bayer:grbg", T, 3), ("rgb", T, 3), ("dispersed:-1,2", L, 1), ("dual:1", L, 1),
])  # fmt: skip
def test_saved_scenes_come_back(tmp_path: Path, suffix: str, kind: str, frames: int, planes: int) -> None:
    scene = made(kind, frames, planes, captures=2)
    back = load_scene(save_scene(tmp_path / f"s{suffix}", scene))
    assert back.camera == scene.camera
    assert back.frames == frames
    assert back.truth is not None
    assert torch.equal(back.measurement, scene.measurement)
    assert torch.equal(back.masks, scene.masks)
    assert torch.equal(back.truth, scene.truth)


def test_a_foreign_mosaic_is_read_in_its_order() -> None:
    scene = made("bayer:bggr", T, 3, captures=2)
    video = scene.truth.reshape(2, 3, T, H, W).transpose(0, 1).reshape(3, 2 * T, H, W)
    arrays = {
        "meas": scene.measurement.permute(1, 2, 0).numpy(),
        "mask": drawn(T).permute(1, 2, 0).numpy(),
        "orig": 255 * video.permute(2, 3, 0, 1).numpy(),
    }
    back = interpret(arrays, "a.mat", camera="bayer:bggr")
    torch.testing.assert_close(back.truth, scene.truth)
    torch.testing.assert_close(back.coded, back.measurement)
    named = {"meas_bayer": arrays["meas"], "mask_bayer": arrays["mask"]}
    assert interpret(named, "a.mat").camera == "bayer"


@pytest.mark.parametrize("step", ["0,2", "0,-1", "3,0"])
@pytest.mark.parametrize("masks", ["one", "each", "moved"])
def test_a_foreign_spectrum_is_read_whatever_its_masks(step: str, masks: str) -> None:
    scene = made(f"dispersed:{step}", L)
    phi = scene.operator
    code = {
        "one": phi.masks[0],
        "each": phi.masks.permute(1, 2, 0),
        "moved": moved(phi.masks, phi.step).permute(1, 2, 0),
    }
    arrays = {"meas": scene.measurement[0].numpy(), "mask": code[masks].numpy()}
    arrays["truth"] = scene.truth[0].permute(1, 2, 0).numpy()
    back = interpret(arrays, "a.mat", camera=f"dispersed:{step}")
    assert back.camera == f"dispersed:{step}"
    torch.testing.assert_close(back.masks, scene.masks)
    torch.testing.assert_close(back.coded, back.measurement)


def test_a_spectrum_is_recognised_by_its_size() -> None:
    scene = made("dispersed:0,2", L)
    arrays = {"meas_real": scene.measurement[0].numpy(), "mask": scene.masks[0].numpy(), "lambda": np.arange(L) + 500.0}
    back = interpret(arrays, "a.mat")
    assert (back.camera, back.frames, back.meta["wavelengths"][-1]) == ("dispersed:0,2", L, 504.0)
    with pytest.raises(InputError, match="step"):
        interpret(arrays, "a.mat", camera="dispersed:3")


@pytest.mark.parametrize("suffix", [".npz", ".mat", ".tif", ".mp4", ".gif", ".png", ""])
def test_colour_videos_are_written_in_colour(tmp_path: Path, suffix: str) -> None:
    ramp = torch.linspace(0, 1, 16).expand(2, 16, 16) * torch.tensor([1.0, 0.8]).reshape(2, 1, 1)
    planes = torch.stack([ramp, 1 - ramp, ramp.mT.flip(0)])
    path = save_video(tmp_path / f"v{suffix}", planes.flatten(0, 1), colour=True)
    if suffix == ".png":
        strip = torch.from_numpy(np.array(Image.open(path))).permute(2, 0, 1) / 255
        found = torch.stack([strip[:, :, :16], strip[:, :, 16:]], 1)
    elif suffix == ".mat":
        found = torch.from_numpy(read_arrays(path)["video"]).permute(2, 3, 0, 1)
    else:
        found = read_video(path, colour=True)
    worst = {".mp4": 0.3, ".gif": 0.1, ".png": 0.003, "": 0.003}.get(suffix, 1e-6)
    assert found.shape == planes.shape
    assert float((found - planes).abs().mean()) < worst / 3


@pytest.mark.parametrize("grey", [False, True])
def test_a_tiff_in_colour_is_a_capture_by_three_detectors(tmp_path: Path, grey: bool) -> None:
    """Two pages; as a file of masks, or with three equal colours, it stays grey."""
    pages = np.random.default_rng(0).integers(0, 3000, (2, 3, H, W)).astype(np.uint16)
    pages = pages[:, :1].repeat(3, 1) if grey else pages
    tifffile.imwrite(tmp_path / "y.tif", pages.transpose(0, 2, 3, 1), photometric="rgb")
    save_arrays(tmp_path / "m.npz", mask=drawn(T).numpy())
    found = load_scene(tmp_path / "y.tif", masks=tmp_path / "m.npz", scale=1000)
    assert found.camera == ("snapshot" if grey else "rgb")
    torch.testing.assert_close(found.measurement, torch.from_numpy((pages[:, 0] if grey else pages) / np.float32(1000)))
    assert read_arrays(tmp_path / "y.tif")["array"].shape == (2, H, W)


def test_an_envi_file_holds_the_cube_and_its_wavelengths(tmp_path: Path) -> None:
    cube = uniform(L, H, W, dtype=torch.float32)
    path = save_video(tmp_path / "c.hdr", cube, wavelengths=[450, 500, 550, 600, 650])
    header = path.read_text()
    assert header.startswith("ENVI\n")
    for line in (
        f"samples = {W}",
        f"lines = {H}",
        f"bands = {L}",
        "data type = 4",
        "wavelength = {450, 500, 550, 600, 650}",
    ):
        assert line in header
    assert np.array_equal(np.fromfile(tmp_path / "c.raw", "<f4").reshape(L, H, W), cube.numpy())
    with pytest.raises(InputError, match=r"c\.raw"):
        save_video(path, cube, overwrite=False)


def test_a_spectrum_has_its_colour() -> None:
    assert float(matching([555.0])[1]) == pytest.approx(1.0, abs=0.02)
    flat = to_rgb(torch.ones(len(FIELD), 4, 4), FIELD)
    torch.testing.assert_close(flat, torch.ones(3, 4, 4), atol=1e-3, rtol=0)
    for nm, colour in ((460, 2), (530, 1), (625, 0)):
        line = torch.exp(-0.5 * ((torch.tensor(FIELD) - nm) / 8) ** 2).reshape(-1, 1, 1).expand(-1, 4, 4)
        assert int(to_rgb(line, FIELD)[:, 0, 0].argmax()) == colour


def test_a_zarr_array_knows_its_wavelengths(tmp_path: Path) -> None:
    save_video(tmp_path / "c.zarr", torch.rand(2, 4, 4), wavelengths=[450, 500])
    assert json.loads((tmp_path / "c.zarr" / ".zattrs").read_text()) == {"wavelengths": [450.0, 500.0]}


@pytest.mark.parametrize("bands", [L, len(FIELD)])
def test_wavelengths_that_nobody_knows_are_not_made_up(tmp_path: Path, bands: int) -> None:
    """But for the 28 bands of the field; and a picture has its colours all the same."""
    scene = made("dispersed:0,2", bands)
    arrays = {"meas": scene.measurement[0].numpy(), "mask": scene.masks[0].numpy()}
    read = interpret(arrays, "a.mat", camera="dispersed:2")
    known = FIELD if bands == len(FIELD) else ()
    for suffix in (".npz", ".mat", ".h5"):
        stored = read_arrays(save_video(tmp_path / f"c{suffix}", scene.truth, **read.video_options))
        assert tuple(np.ravel(stored.get("wavelengths", ()))) == known
    attributes = save_video(tmp_path / "c.zarr", scene.truth, **read.video_options) / ".zattrs"
    assert tuple(json.loads(attributes.read_text()).get("wavelengths", ())) == known
    header = save_video(tmp_path / "c.hdr", scene.truth, **read.video_options).read_text()
    assert ("wavelength" in header) == bool(known)
    with Image.open(save_video(tmp_path / "c.png", scene.truth, **read.video_options)) as picture:
        assert (picture.mode, picture.size) == ("RGB", (W, H))


@pytest.mark.parametrize(
    ("name", "shape", "bands"),
    [("a.mat", (6, 16, 7), 7), ("a.mat", (4, 16, 16), 4), ("a.npz", (4, 16, 7), 4), ("a.npz", (16, 16, 7), 7)],
)
def test_bands_are_where_the_container_has_them(tmp_path: Path, name: str, shape: tuple[int, ...], bands: int) -> None:
    save_arrays(tmp_path / name, cube=np.random.default_rng(0).random(shape))
    assert len(read_cube(tmp_path / name)) == bands


@pytest.mark.parametrize(
    ("stored", "known", "word"),
    [
        ([450, 500, 550], [450, 500, 550], ""),
        ([0.45, 0.5, 0.55], [450, 500, 550], "for µm"),
        ([4.5e-7, 5e-7, 5.5e-7], [450, 500, 550], "for m"),
        ([1, 2, 3], [], "1 to 3 are none"),
    ],
)
def test_wavelengths_in_any_unit_are_nanometres(stored: list[float], known: list[float], word: str) -> None:
    notes: list[str] = []
    assert wavelengths({"wavelengths": np.array(stored)}, 3, notes) == pytest.approx(known)
    assert word in " ".join(notes)
