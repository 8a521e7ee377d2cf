"""Masks that were moved are found where they are, others are left alone, and a camera file keeps it all."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter
from typer.testing import CliRunner

from unsnap import Camera, InputError, Scene, calibrate, psnr, reconstruct, save_scene
from unsnap.calibration.agreement import Snapshots
from unsnap.calibration.warp import Motion, Plates, Window, displacement, movements, slopes
from unsnap.cli.app import app
from unsnap.doctor import examine
from unsnap.io.scene_file import interpret
from unsnap.masks import bernoulli, gray, moving
from unsnap.simulate import render

SIDE, FRAMES, MARGIN = 64, 4, 8
RANDOM = torch.Generator().manual_seed(0)


def seen(plate: np.ndarray, down: float, right: float) -> torch.Tensor:
    """What pixels see of a plate three times as fine, moved by a Fourier phase: not the kernel of the search."""
    y, x = (np.fft.fftfreq(side) for side in plate.shape[-2:])
    phase = np.exp(-2j * np.pi * 3 * (y[:, None] * down + x[None] * right))
    moved = np.fft.ifft2(np.fft.fft2(plate) * phase).real
    masks = moved.reshape(FRAMES, SIDE + 2 * MARGIN, 3, SIDE + 2 * MARGIN, 3).mean((2, 4))
    return torch.from_numpy(np.ascontiguousarray(masks[:, MARGIN:-MARGIN, MARGIN:-MARGIN], np.float32)).clamp(0, 1)


@pytest.fixture(scope="module")
def capture() -> tuple[Scene, Scene]:
    """A capture whose masks lie (1.4, −0.8) pixels off those given, with an offset; and the same through true masks."""
    side, random = SIDE + 2 * MARGIN, torch.Generator().manual_seed(0)
    dots = bernoulli(FRAMES, side, side, generator=random).numpy()
    plate = gaussian_filter(dots.repeat(3, 1).repeat(3, 2), (0, 1, 1), mode="wrap")
    given, true = seen(plate, 0, 0), seen(plate, 1.4, -0.8)
    video = render(FRAMES, SIDE, SIDE, seed=3)[None]
    scene = Scene.of(video, true)
    y = scene.measurement + 0.01 * torch.randn(scene.measurement.shape, generator=random)
    return Scene(y + 0.2, given, video), Scene(y, true, video)


def test_a_camera_that_changes_nothing_leaves_a_capture_alone(capture: tuple[Scene, Scene]) -> None:
    """docs/your-camera.md has `calibrate` find that masks are aligned."""
    scene, camera = capture[1], Camera()
    assert not camera.changed
    again = camera.apply(scene)
    assert torch.equal(again.masks, scene.masks)
    assert torch.equal(again.measurement, scene.measurement)


def test_pixels_left_out_stay_where_they_are_when_masks_move(capture: tuple[Scene, Scene]) -> None:
    weights = torch.ones(SIDE, SIDE)
    weights[::9, ::7] = 0
    broken = capture[0].weighted(weights)
    camera = calibrate(broken)
    np.testing.assert_allclose(camera.shift, (1.4, -0.8), atol=0.05)
    assert camera.offset == pytest.approx(0.2, abs=0.05)
    again = camera.apply(broken)
    assert torch.equal(again.weights, weights)
    assert not again.measurement[:, weights == 0].any()
    inner = (..., slice(8, -8), slice(8, -8))
    assert (again.masks.sum(0)[inner] > 0).float().mean() > 0.95  # masks have no holes of their own


def test_what_a_capture_does_not_show_is_not_told() -> None:
    one_hot = torch.eye(FRAMES)[torch.randint(FRAMES, (32, 32), generator=RANDOM)].movedim(-1, 0)
    noise = Scene(torch.rand(1, 32, 32, generator=RANDOM), one_hot.contiguous())
    camera = calibrate(noise)
    assert (camera.changed, camera.told, camera.uncertainty["shift"]) == (False, False, None)


def test_a_shift_along_the_way_of_a_moving_mask_is_less_certain() -> None:
    """The video of a scene that moves makes up for it, by running later."""
    plate = gray(1, 80 + 24, 80, blur=0.7, generator=torch.Generator().manual_seed(4))[0]
    given, true = (moving(plate, [(t + part, 0.0) for t in range(6)], 80, 80) for part in (8.0, 7.6))
    y = Scene.of(render(6, 80, 80, seed=5, speed=3)[None], true).measurement
    camera = calibrate(Scene(y + 0.02 * torch.randn(y.shape, generator=torch.Generator().manual_seed(5)), given))
    along, across = camera.uncertainty["shift"]
    assert along > 2 * across
    assert abs(camera.shift[0] + 0.4) < 3 * along
    assert abs(camera.shift[1]) < 3 * across


def test_a_white_picture_tells_the_gain() -> None:
    masks = gray(FRAMES, 48, 48, generator=RANDOM)
    scene = Scene.of(render(FRAMES, 48, 48)[None], masks)
    bright = Scene(1.25 * scene.measurement, masks)
    camera = calibrate(bright, white=1.25 * masks.sum(0).numpy())
    assert camera.changed
    assert camera.gain == pytest.approx(1.25, rel=0.01)
    torch.testing.assert_close(camera.apply(bright).measurement, scene.measurement, rtol=0.02, atol=1e-3)


def test_shift_moves_masks_down_and_right_and_rotation_is_counter_clockwise() -> None:
    masks = np.random.default_rng(0).random((2, 33, 33), np.float32)
    moved, known = Plates(masks).moved(Motion(shift=(2, -1)))
    np.testing.assert_allclose(moved[:, 2:, :-1], masks[:, :-2, 1:], atol=1e-5)
    assert known[2:, :-1].all()
    assert not known[:2].any()
    assert not known[:, -1].any()
    np.testing.assert_allclose(Plates(masks).moved(Motion(rotation=90))[0], np.rot90(masks, 1, (1, 2)), atol=1e-4)


def test_derivatives_are_those_of_moving() -> None:
    """∂Σm/∂θ by the formula equals the difference of masks moved a little further either way."""
    picture = gaussian_filter(np.random.default_rng(0).random((1, 64, 64), np.float32), (0, 1.5, 1.5))
    plates, motion, reach = Plates(picture), Motion((0.3, -0.2), 0.4, 1.003), 32.0
    base = plates.moved(motion)[0]
    columns = movements(*(s[0] for s in slopes(base)), Window.whole(64, 64), reach)
    inner = (slice(6, -6), slice(6, -6))
    for k, column in enumerate(columns):
        change = np.zeros(4)
        change[k] = 0.01
        ahead, behind = (plates.moved(motion.moved(sign * change, reach))[0][0] for sign in (1, -1))
        further = (ahead - behind) / 0.02
        assert np.linalg.norm((column - further)[inner]) < 0.05 * np.linalg.norm(further[inner])


@pytest.mark.parametrize(("softness", "blur"), [(0.0, 0.0), (0.0, 0.6), (0.3, 0.0), (0.5, 0.6), (-0.19094, 0.0)])
def test_masks_between_pixels_are_cells_through_a_lens(softness: float, blur: float) -> None:
    """Cells on a grid 16 times as fine, blurred there and summed over the area that pixels see, at rest and moved."""
    fine, cells = 16, np.random.default_rng(0).random((24, 24))
    area = fine if softness >= 0 else round(fine * np.sqrt(1 - 12 * softness**2))  # the middle of a pixel

    def seen(lens: float, down: float, right: float) -> np.ndarray:
        plate = cells.repeat(fine, 0).repeat(fine, 1)
        plate = gaussian_filter(plate, lens * fine) if lens else plate
        y, x = (fine * (np.arange(24)[:, None] + 0.5 - move) + np.arange(area) - area / 2 for move in (down, right))
        rows, columns = (np.rint(place).astype(int).clip(0, 24 * fine - 1) for place in (y, x))
        found: np.ndarray = plate[rows][:, :, columns].mean((1, 3))
        return found

    recorded = seen(max(softness, 0), 0, 0)[None].astype(np.float32)
    moved = Plates(recorded).moved(Motion((0.25, -0.5), blur=blur, softness=softness))[0]
    expected = seen(np.hypot(max(softness, 0), blur), 0.25, -0.5)
    np.testing.assert_allclose(moved[0, 7:17, 7:17], expected[7:17, 7:17], atol=5e-3)


def test_a_distortion_is_found_where_there_is_one(tmp_path, capture) -> None:
    """Masks through a barrel, 0.9 pixels at the corners, against masks moved by the same law on their own grid."""
    true, size = capture[1], Window.whole(SIDE, SIDE)
    field = tuple(0.0 if k not in (5, 7, 13, 15) else 0.3 for k in range(16))  # r² times the way from the middle
    down, right = displacement(field, *size.grid, SIDE / 2)
    far = float(np.hypot(*np.broadcast_arrays(down, right)).max())
    assert 0.7 < far < 1.0
    masks, known = Plates(true.masks.numpy()).moved(Motion((0.6, -0.4), softness=0.3, distortion=field))
    y = Scene.of(true.truth, torch.from_numpy(masks)).measurement
    camera = calibrate(Scene(y + 0.01 * torch.randn(y.shape, generator=RANDOM), true.masks))
    found = displacement(camera.distortion, *size.grid, SIDE / 2)
    moved = [shift + part for shift, part in zip(camera.shift, found, strict=True)]
    wrong = np.hypot(moved[0] - down - 0.6, moved[1] - right + 0.4)
    assert float(wrong[known].mean()) < 0.05
    assert float(wrong[known].max()) < 0.25
    assert Camera.load(camera.save(tmp_path / "camera.npz")).distortion == pytest.approx(camera.distortion)


def test_correlation_peaks_where_the_masks_are() -> None:
    masks = bernoulli(FRAMES, 64, 64, generator=RANDOM)
    y = Scene.of(render(FRAMES, 64, 64)[None], masks).measurement.numpy()
    surface = Snapshots(y).against(masks.roll((-3, 5), (-2, -1)).sum(0).numpy())
    value, shift = surface.best()
    assert shift == (3, -5)
    assert value > 0.5 > 0.15 > abs(surface.here)


def test_a_camera_file_gives_the_camera_back(tmp_path) -> None:
    sure = {"shift": [0.01, 0.02], "gain": None}
    camera = Camera(
        (1.25, -0.5), 0.3, 1.002, 0.6, 1.1, 0.05, (0.9, 1.0, 1.1), sure, True, 0.2, 0.1,
        (0.5,) * 16, 0.2, (24, 32), 255.0, np.ones((24, 32), np.float32),
    )  # fmt: skip
    again = Camera.load(camera.save(tmp_path / "camera.npz"))
    assert again == Camera(**{**vars(camera), "uncertainty": {"shift": [0.01, 0.02]}})
    np.testing.assert_array_equal(again.dark, camera.dark)


@pytest.mark.parametrize(
    ("change", "word"),
    [({"gain": -1.0}, "gain"), ({"shift": [1.0]}, "shift"), ({"scale": np.nan}, "scale"), ({"softness": 7.0}, "soft"),
     ({"exposure": [0.0]}, "exposure"), ({"unsnap_camera_file": 3}, "newer"), ({"unsnap_camera_file": 1}, "again"),
     ({"dark": np.zeros(3)}, "dark"), ({"distortion": [1.0]}, "distortion")],
)  # fmt: skip
def test_damaged_camera_files_are_one_sentence(tmp_path, change, word) -> None:
    path = Camera((1.0, 0.0)).save(tmp_path / "camera.npz")
    with np.load(path) as arrays:
        np.savez(path, **{**arrays, **change})
    with pytest.raises(InputError, match=word):
        Camera.load(path)


def test_sub_pixel_shift_and_offset_are_found_on_the_command_line_and_the_video_gets_better(tmp_path, capture) -> None:
    run = CliRunner()
    file, camera, picture = (tmp_path / name for name in ("capture.npz", "camera.npz", "picture.png"))
    save_scene(file, capture[0])
    found = run.invoke(app, ["calibrate", str(file), "-o", str(camera), "--picture", str(picture), "--json"])
    assert found.exit_code == 0, found.output
    facts = json.loads(found.stdout)
    assert list(facts) == [
        "shift", "rotation", "scale", "blur", "gain", "offset", "exposure", "uncertainty", "changed",
        "objective_before", "objective_after", "distortion",
    ]  # fmt: skip
    assert facts["changed"]
    assert facts["objective_after"] < 0.5 * facts["objective_before"]
    np.testing.assert_allclose(facts["shift"], (1.4, -0.8), atol=0.05)
    np.testing.assert_allclose([facts["rotation"], facts["scale"], facts["offset"]], [0, 1, 0.2], atol=0.1)
    assert picture.stat().st_size > 0
    command = ["reconstruct", str(file), "-m", "gap-tv3d", "--json"]
    refused = run.invoke(app, command)
    assert refused.exit_code == 2
    assert "--anyway" in refused.stderr
    assert "calibrate" in refused.stderr
    worse, better = (
        json.loads(run.invoke(app, [*command, *more]).stdout)["psnr"]
        for more in (["--anyway"], ["--camera", str(camera)])
    )
    assert worse + 3 < better
    known = (..., slice(8, -8), slice(8, -8))  # nobody knows the masks that came in at the border
    mended, right = (
        float(psnr(reconstruct(one.measurement, one.masks, "gap-tv3d").x[known], capture[1].truth[known]).mean())
        for one in (Camera.load(camera).apply(capture[0]), capture[1])
    )
    assert mended > right - 0.3
    assert run.invoke(app, ["calibrate", str(file), "-o", str(camera)]).exit_code == 2  # it exists


def test_a_region_is_cut_out_of_what_the_camera_file_was_made_of(tmp_path, capture) -> None:
    file, camera, roi = tmp_path / "capture.npz", tmp_path / "camera.npz", (slice(10, 42), slice(20, 60))
    save_scene(file, capture[0])
    whole, part = (Camera((1.4, -0.8), offset=0.2, size=size) for size in ((SIDE, SIDE), (32, 40)))
    for told, expected in (
        (whole, whole.apply(capture[0]).crop(*roi)),
        (part, part.apply(capture[0].crop(*roi))),  # `unsnap calibrate --roi` made it
    ):
        told.save(camera)
        found = examine(file, calibration=camera, roi=roi).scene
        assert found is not None
        assert torch.equal(found.masks, expected.masks)
        assert torch.equal(found.measurement, expected.measurement)
        assert torch.equal(found.truth, expected.truth)


def test_white_is_guessed_again_with_the_masks_in_their_place() -> None:
    """Masks that lie elsewhere make single pixels seem bright, and then the video is dark."""
    video = 255 * render(8, 64, 64, seed=3)
    masks = bernoulli(8, 64, 64, generator=torch.Generator().manual_seed(0))
    meas = (masks * video).sum(0)
    moved = interpret({"meas": meas.numpy(), "mask": masks.roll((2, -1), (-2, -1)).numpy()}, "a.npz")
    assert moved.meta["white"] > 300
    scene = Camera(shift=(-2.0, 1.0)).apply(moved)
    assert scene.meta["white"] == scene.meta["measurement_factor"] == 255
    inside = (..., slice(4, -4), slice(4, -4))
    torch.testing.assert_close(scene.measurement[0][inside], (meas / 255)[inside], rtol=1e-3, atol=1e-2)


def test_one_frame_can_be_calibrated() -> None:
    """Half of its pixels are closed, so that the median pixel measures nothing."""
    video = render(1, 40, 40, seed=3)
    masks = bernoulli(1, 40, 40, p=0.4, generator=torch.Generator().manual_seed(0))
    assert calibrate(Scene.of(video[None], masks)).objective_after < 1


def dim(scale: float | None = None) -> tuple[Scene, torch.Tensor]:
    """A scene at 0.3 of white, whose camera counts 3000 for white; white is guessed unless it is told."""
    masks, true = bernoulli(4, 32, 32, generator=torch.Generator().manual_seed(0)), 0.3 * render(4, 32, 32)
    arrays = {"meas": (3000 * (masks * true).sum(0)).numpy(), "mask": masks.numpy()}
    return interpret(arrays, "file", **({} if scale is None else {"scale": scale})), true


@pytest.mark.parametrize("scale", [None, 6000.0])
def test_a_gain_that_was_measured_decides_what_is_white(scale: float | None) -> None:
    guessed, true = dim()
    unit = float(guessed.meta["measurement_factor"])
    camera = Camera(gain=3000 / unit, unit=unit, changed=True, uncertainty={"gain": 0.001})
    scene, _ = dim(scale)
    found = camera.apply(scene)
    torch.testing.assert_close(found.measurement[0], (found.masks * true).sum(0), rtol=1e-4, atol=1e-4)
    assert found.meta["measurement_factor"] == pytest.approx(3000)
    assert "by the gain in the camera file" in found.meta["notes"][-1]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bool])
def test_masks_of_whole_numbers_are_moved_like_others(dtype: torch.dtype) -> None:
    scene, _ = dim()
    camera = Camera(shift=(0.5, 0.0), changed=True)
    expected = camera.apply(scene)
    found = camera.apply(Scene(scene.measurement, scene.masks.to(dtype)))
    torch.testing.assert_close(found.masks, expected.masks)


def test_what_cannot_be_calibrated_is_said() -> None:
    scene, _ = dim()
    with pytest.raises(InputError, match="snapshots are zero everywhere"):
        calibrate(Scene(0 * scene.measurement, scene.masks))
    with pytest.raises(InputError, match="masks are zero everywhere"):
        calibrate(Scene(scene.measurement, 0 * scene.masks))
    assert np.isfinite(calibrate(Scene(scene.measurement, torch.ones_like(scene.masks))).offset)
