"""From what a sensor counts to the scene: faults are taken out or left out; and files with names of their own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.io
import tifffile
import torch

from laws import seeded
from unsnap.errors import InputError
from unsnap.io import load_scene, save_arrays, save_scene
from unsnap.io.raw import Raw
from unsnap.io.scene_file import interpret
from unsnap.masks import bernoulli, moving, shifted
from unsnap.scene import Scene
from unsnap.simulate import render

T, H, W = 4, 24, 28
MASKS = bernoulli(T, H, W, generator=seeded()).numpy()
LIGHT = (1000 * MASKS * render(2 * T, H, W, seed=1).reshape(2, T, H, W).numpy()).sum(1).round()
GAIN = np.linspace(0.7, 1.3, W)[None].repeat(H, 0)
DARK = 100 + np.arange(H)[:, None] + np.zeros((H, W))


def developed(y: np.ndarray, **raw: object) -> tuple[np.ndarray, np.ndarray | None, list[str]]:
    notes: list[str] = []
    return *Raw(**raw).develop(y.astype(np.float32), 1.0, "file", notes), notes  # type: ignore[arg-type]


def test_dark_frame_flat_field_and_offset_are_taken_out_exactly() -> None:
    y, weights, notes = developed(GAIN * LIGHT + DARK + 7, dark=DARK, white=3000 * GAIN + DARK + 7, offset=7.0)
    np.testing.assert_allclose(y, np.median(GAIN) * LIGHT, rtol=1e-5, atol=1e-2)
    assert weights is None
    assert [note.split(",")[0].split(" 0.")[0] for note in notes] == [
        "subtracted the dark frame", "subtracted the offset 7", "divided by the gains of the white frame",
    ]  # fmt: skip


def test_hot_dead_listed_and_saturated_pixels_are_left_out(tmp_path: Path) -> None:
    dark, white, y = DARK.copy(), 3000 * GAIN + DARK, LIGHT + DARK
    dark[2, 3], white[5, 6] = 5000, dark[5, 6]
    level = np.sort(y[0].ravel())[-20]
    found, weights, notes = developed(
        np.minimum(y, level), dark=dark, white=white, bad_pixels="7,8;9,10", saturated="exclude"
    )
    expected = np.minimum(y, level) < level
    expected[:, [2, 5, 7, 9], [3, 6, 8, 10]] = False
    assert weights is not None
    assert np.array_equal(weights > 0, expected)
    assert not found[~expected].any()
    assert notes[-1].endswith("saturated, 1 hot, 1 dead, 2 listed as bad")
    assert np.array_equal(developed(y, saturated=str(level))[1] > 0, y < level)
    (tmp_path / "bad.txt").write_text("# stuck\n7,8\n9 10\n")
    picture = np.zeros((H, W), np.uint8)
    picture[[7, 9], [8, 10]] = 255
    tifffile.imwrite(tmp_path / "bad.tif", picture)
    (tmp_path / "bom.csv").write_text("7,8\n9,10\n", encoding="utf-8-sig")
    for source in (
        "7,8;9,10",
        tmp_path / "bad.txt",
        tmp_path / "bom.csv",
        tmp_path / "bad.tif",
        np.array([[7, 8], [9, 10]]),
    ):
        assert np.array_equal(developed(y, bad_pixels=source)[1] == 0, picture > 0), "all snapshots share the weights"


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ({"dark": np.zeros((3, 4))}, "dark frame of 24×28"),
        ({"dark": np.full((H, W), np.nan)}, "finite"),
        ({"white": np.zeros((H, W))}, "not brighter than the dark one"),
        ({"bad_pixels": "24,0"}, "names the pixel 24,0"),
        ({"bad_pixels": "3,4;-1,3"}, "names the pixel -1,3, which the picture of 24×28 does not have"),
        ({"saturated": "-1e9"}, "no pixel is left"),
        ({"saturated": "perhaps"}, "must be keep, exclude or a level"),
        ({"offset": float("inf")}, "number of usual size"),
    ],
)
def test_what_cannot_be_is_one_sentence(raw: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        developed(LIGHT, **raw)


@pytest.mark.parametrize("name", ["a.npz", "a.mat"])
@pytest.mark.parametrize("camera", ["snapshot", "rgb"])
def test_pixels_that_are_left_out_may_be_nan(name: str, camera: str) -> None:
    """With the axes in any order; but no others may."""
    light = LIGHT[[0, 1, 0]]
    broken = light.copy()
    broken[0, 7, 8], broken[1, 9, 10], broken[2, 7, 8] = np.nan, np.inf, -np.inf
    last = name.endswith("mat")

    def read(y: np.ndarray, pixels: str | None) -> Scene:
        stored = {"meas": y.transpose(1, 2, 0) if last else y, "mask": MASKS.transpose(1, 2, 0) if last else MASKS}
        before = stored["meas"].copy()
        scene = interpret(stored, name, camera=camera, raw=Raw(bad_pixels=pixels), scale=1000.0)
        assert np.array_equal(stored["meas"], before, equal_nan=True)
        return scene

    found, expected = read(broken, "7,8;9,10"), read(light, "7,8;9,10")
    assert torch.equal(found.measurement, expected.measurement)
    assert torch.equal(found.weights, expected.weights)
    with pytest.raises(InputError, match=r"1 values are NaN or infinite .* the first at 9,10"):
        read(broken, "7,8")
    with pytest.raises(InputError, match="found 3 NaN or infinite values"):
        read(broken, None)


def test_pages_of_16_bits_with_frames_beside_them_are_a_scene_and_come_back(tmp_path: Path) -> None:
    tifffile.imwrite(tmp_path / "raw.tif", (LIGHT + DARK).astype(np.uint16))
    tifffile.imwrite(tmp_path / "dark.tif", np.stack([DARK - 1, DARK + 1]).astype(np.uint16))
    save_arrays(tmp_path / "mask.npz", mask=MASKS)
    raw = Raw(dark=tmp_path / "dark.tif", bad_pixels="0,0")
    scene = load_scene(
        tmp_path / "raw.tif", masks=tmp_path / "mask.npz", raw=raw, scale=1000.0, roi=(slice(0, 20), slice(4, 24))
    )
    np.testing.assert_allclose(scene.measurement, LIGHT[:, :20, 4:24] / 1000, atol=1e-6)
    assert scene.weights is None or bool((scene.weights == 1).all()), "the bad pixel lies outside"
    whole = load_scene(tmp_path / "raw.tif", masks=tmp_path / "mask.npz", raw=raw)
    for suffix in ("npz", "mat"):
        save_scene(tmp_path / f"s.{suffix}", whole)
        again = load_scene(tmp_path / f"s.{suffix}")
        assert torch.equal(again.weights, whole.weights)
        assert torch.equal(again.measurement, whole.measurement)


def test_a_hot_pixel_does_not_set_the_scale_of_the_masks() -> None:
    grey = 60 * MASKS
    hot = grey.copy()
    hot[:, 3, 4] = 4095
    scenes = [interpret({"meas": 60 * LIGHT[:1], "mask": code}, "f.npz") for code in (grey, hot)]
    assert torch.equal(scenes[0].masks[..., :3, :], scenes[1].masks[..., :3, :])
    assert "which few pixels exceed" in " ".join(scenes[1].meta["notes"])


def test_names_of_ones_own_are_refused_with_the_remedy_and_then_read(tmp_path: Path) -> None:
    file = tmp_path / "own.mat"
    scipy.io.savemat(file, {"shotA": LIGHT[0], "shotB": LIGHT[1], "pattern": MASKS.transpose(1, 2, 0)})
    with pytest.raises(InputError, match=r"shotA \(24, 28\).*--measurement-key NAME and --masks-key NAME"):
        load_scene(file)
    scene = load_scene(file, measurement_key="shotB", masks_key="pattern", scale=1000.0)
    np.testing.assert_allclose(scene.measurement[0], LIGHT[1] / 1000, atol=1e-6)
    assert np.array_equal(scene.masks, MASKS)
    with pytest.raises(InputError, match=r"--masks-key 'codes' is not among"):
        load_scene(file, measurement_key="shotB", masks_key="codes")


def test_every_snapshot_may_have_masks_of_its_own(tmp_path: Path) -> None:
    both = np.stack([MASKS, MASKS[::-1]])
    save_arrays(tmp_path / "m.mat", mask=both.transpose(2, 3, 1, 0))
    save_arrays(tmp_path / "y.mat", meas=LIGHT.transpose(1, 2, 0))
    scene = load_scene(tmp_path / "y.mat", masks=tmp_path / "m.mat", snapshots=slice(1, 2))
    assert np.array_equal(scene.masks, both[1:])
    shots = load_scene(tmp_path / "y.mat", masks=tmp_path / "m.mat", camera="multishot")
    assert shots.operator.image == (2, H, W)


def test_one_mask_and_its_motion_are_the_masks_of_the_camera(tmp_path: Path) -> None:
    masks = shifted(T, H, W, step=(2, -1), generator=seeded(3))
    plate = shifted(1, H + 2 * (T - 1), W + T - 1, generator=seeded(3))[0]
    assert torch.equal(moving(plate, [(2.0 * t, -1.0 * t) for t in range(T)], H, W), masks)
    half = moving(plate, [(0, 0), (0.5, 0)], H, W)
    torch.testing.assert_close(half[1, 1:], (half[0, 1:] + half[0, :-1]) / 2)
    save_arrays(tmp_path / "plate.mat", mask=plate.numpy())
    save_arrays(tmp_path / "y.npy.npz", meas=LIGHT)
    places = [(2.0 * t, -1.0 * t) for t in range(T)]
    scene = load_scene(tmp_path / "y.npy.npz", masks=tmp_path / "plate.mat", motion=places)
    assert torch.equal(scene.masks, masks)
    with pytest.raises(InputError, match="or at least 33"):
        load_scene(tmp_path / "y.npy.npz", masks=tmp_path / "plate.mat", motion=[(0, 0), (9, 0)])


def test_saturation_is_told_though_a_dark_frame_hides_it() -> None:
    full = np.minimum(LIGHT + 100, 1500)
    assert (full == 1500).mean() > 0.01
    noisy = DARK + np.random.default_rng(0).normal(0, 2, DARK.shape)
    _, _, notes = developed(full, dark=noisy)
    assert "were exactly at the maximum 1500: saturated" in " ".join(notes)
    assert "saturated" not in " ".join(developed(LIGHT + 100, dark=noisy)[2])
