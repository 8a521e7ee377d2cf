"""Reading a scene gives the same Scene from every layout and unit, or one sentence that says what is wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from unsnap.errors import InputError
from unsnap.io.files import save_arrays
from unsnap.io.scene_file import interpret, load_scene, save_scene
from unsnap.scene import Scene

DATA = Path(__file__).parents[2] / "../shared/data"
N, T, H, W = 2, 5, 23, 31


def make(seed=0, n=N, t=T, h=H, w=W, grey=False, per_sample=False):
    """Video in [0, 1] with whole 1/255 steps, masks and y = Σ m x, as (N, H, W), ([N,] T, H, W), (N, T, H, W)."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 256, (n, t, h, w)).astype(np.float64) / 255
    x.flat[0] = 1.0
    lead = (n, t) if per_sample else (t,)
    m = rng.random((*lead, h, w)) if grey else (rng.random((*lead, h, w)) < 0.5).astype(np.float64)
    return (m * x).sum(-3), m, x


def matlab(a):
    """(…, H, W) to H×W×…: leading axes reversed behind the image."""
    return a.transpose(a.ndim - 2, a.ndim - 1, *range(a.ndim - 3, -1, -1))


def flat(x):
    return x.reshape(-1, *x.shape[-2:])


def same(scene, y, m, x=None):
    np.testing.assert_allclose(scene.measurement, y, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(scene.masks, m, rtol=1e-6)
    if x is None:
        assert scene.truth is None
    else:
        np.testing.assert_allclose(scene.truth, x, rtol=1e-6, atol=1e-7)


def fails(arrays, *words, path="a.npz", **options):
    with pytest.raises(InputError) as caught:
        interpret(arrays, path, **options)
    text = str(caught.value)
    for word in (path, *words):
        assert word in text, text
    assert "\n" not in text


# ---- names ----


@pytest.mark.parametrize("names", [("meas", "mask", "orig"), ("y", "Phi", "x"), ("Meas_T", "C", "patch_save")])
def test_names_of_the_field_are_known(names):
    y, m, x = make()
    scene = interpret(dict(zip(names, (y, m, flat(x)), strict=True)), "a.npz")
    same(scene, y, m, x)
    assert scene.meta["roles"] == {"measurement": names[0], "masks": names[1], "truth": [names[2]]}


def test_names_inside_groups_are_known():
    y, m, x = make()
    same(interpret({"cap/meas": y, "cap/mask": m, "cap/orig": flat(x)}, "a.h5"), y, m, x)


def test_numbered_blocks_and_numbered_frames_are_stacked_in_numeric_order():
    y, m, x = make(n=11)
    blocks = {f"p{k + 1}": x[k] for k in reversed(range(11))}
    same(interpret({"meas": y, "mask": m, **blocks}, "a.npz"), y, m, x)
    frames = {f"p{k + 1}": f for k, f in enumerate(flat(x))}
    same(interpret({"meas": y, "mask": m, **frames}, "a.npz"), y, m, x)
    blocks = {name: matlab(a) for name, a in blocks.items()}
    same(interpret({"meas": matlab(y), "mask": matlab(m), **blocks}, "a.mat"), y, m, x)


def test_two_unnamed_arrays_are_told_apart_by_shape_and_recorded():
    y, m, _ = make(n=1)
    scene = interpret({"foo": m, "bar": y[0], "version": np.array([[1.0]])}, "a.npz")
    same(scene, y, m)
    assert any("'bar' for the measurement" in note for note in scene.meta["notes"])


def test_missing_roles_name_what_is_there_and_the_remedy():
    y, m, x = make()
    fails({"mask": m, "orig": flat(x)}, "no measurement", "mask (5, 23, 31)", "unsnap simulate")
    fails({"meas": y, "orig": flat(x)}, "no masks", "orig (10, 23, 31)", "--masks FILE")
    fails({"array": y}, "array (2, 23, 31)", "--masks FILE")
    fails({"mask": m}, "no measurement", "only the masks 'mask'")
    fails({"foo": m, "bar": m}, "foo (5, 23, 31), bar (5, 23, 31)", "meas")


def test_masks_from_another_file_win_over_those_in_the_file():
    y, m, x = make()
    arrays = {"meas": matlab(y), "mask": 1 - matlab(m), "orig": matlab(flat(x))}
    same(interpret(arrays, "a.mat", mask_arrays={"anything": m}, masks="m.npz"), y, m, x)
    fails(arrays, path="m.npz", mask_arrays={"u": m, "v": m}, masks="m.npz")
    fails(arrays, "'u'", "NaN", path="m.npz", mask_arrays={"u": np.where(m > 0, np.nan, m)}, masks="m.npz")


def test_separate_masks_let_a_lone_stack_be_the_measurement_but_not_a_video():
    y, m, x = make()
    same(interpret({"array": y}, "y.tif", mask_arrays={"array": m}, masks="m.tif"), y, m)
    fails({"frames": flat(x)}, "unsnap simulate", path="v.mp4", mask_arrays={"array": m}, masks="m.tif")


# ---- axes ----


@pytest.mark.parametrize("path", ["a.mat", "a.npz", "a.h5"])
@pytest.mark.parametrize("per_sample", [False, True])
@pytest.mark.parametrize("order", [matlab, np.asarray])
@pytest.mark.parametrize("seed", [0, 1])
def test_sizes_decide_the_layout_whatever_the_container(path, per_sample, order, seed):
    y, m, x = make(seed, per_sample=per_sample)
    same(interpret({"meas": order(y), "mask": order(m), "orig": order(flat(x))}, path), y, m, x)


@pytest.mark.parametrize("path", ["a.mat", "a.npz"])
@pytest.mark.parametrize("shape", [(H, W), (H, W, 1), (1, H, W)])
@pytest.mark.parametrize("order", [matlab, np.asarray])
def test_one_snapshot_may_have_two_or_three_axes(path, shape, order):
    y, m, x = make(n=1)
    same(interpret({"meas": y.reshape(shape), "mask": order(m), "orig": order(x[0])}, path), y, m, x)


def test_mixed_orders_and_time_in_the_middle_are_found():
    y, m, x = make()
    same(interpret({"meas": y, "mask": matlab(m), "orig": flat(x)}, "a.npz"), y, m, x)
    scene = interpret({"meas": matlab(y), "mask": m.transpose(1, 0, 2), "orig": flat(x)}, "a.mat")
    same(scene, y, m, x)
    assert scene.meta["time_axis"] == 1


def test_as_many_snapshots_as_frames():
    y, m, x = make(n=T)
    for path in ("a.mat", "a.npz"):
        same(interpret({"meas": matlab(y), "mask": matlab(m), "orig": matlab(flat(x))}, "a.mat"), y, m, x)
        same(interpret({"meas": y, "mask": m, "orig": flat(x)}, path), y, m, x)
    square = make(n=8, t=8, h=24, w=24)
    for order in (matlab, np.asarray):
        arrays = {"meas": order(square[0]), "mask": order(square[1])}
        for path in ("a.mat", "a.npz"):
            same(interpret(arrays, path, scale=1), square[0], square[1])


def test_equal_sizes_fall_back_on_the_container_and_time_axis_overrides():
    y, m, x = make(n=1, t=7, h=7, w=7)
    cube = {"meas": y[0], "mask": matlab(m), "orig": matlab(x[0])}
    same(interpret(cube, "a.mat"), y, m, x)
    assert interpret(cube, "a.npz").meta["time_axis"] == 0
    for axis in (2, -1):
        same(interpret(cube, "a.npz", time_axis=axis), y, m, x)
    stack = {"meas": y[0], "mask": m, "orig": x[0]}
    same(interpret(stack, "a.npz"), y, m, x)
    same(interpret(stack, "a.mat", time_axis=0), y, m, x)


def test_time_axis_is_checked():
    y, m, _ = make()
    fails({"meas": y, "mask": m}, "--time-axis 3", "0 to 2", time_axis=3)
    fails({"meas": y, "mask": m}, "time on axis 2", time_axis=2)


@pytest.mark.parametrize("path", ["a.mat", "a.npz"])
def test_transposed_masks_are_refused_and_the_remedy_works(path):
    y, m, x = make()
    arrays = {"meas": matlab(y), "mask": matlab(m.swapaxes(-1, -2)), "orig": matlab(flat(x))}
    fails(arrays, "--transpose-masks", "(31, 23, 5)", path=path)
    scene = interpret(arrays, path, transpose_masks=True)
    same(scene, y, m, x)
    assert any("transposed" in note for note in scene.meta["notes"])
    fails({**arrays, "mask": matlab(m)}, "leave out --transpose-masks", path=path, transpose_masks=True)


def test_transposed_truth_and_wrong_sizes_are_refused_with_numbers():
    y, m, x = make()
    fails({"meas": y, "mask": m, "orig": flat(x).swapaxes(-1, -2)}, "(10, 31, 23)", "exchanged")
    fails({"meas": y, "mask": m, "orig": flat(x)[:, :-1]}, "(10, 22, 31)", "(23, 31)")
    fails({"meas": y[:, :-2], "mask": m}, "(5, 23, 31)", "(2, 21, 31)", "--masks FILE")
    fails({"meas": y, "mask": m, "orig": x[0, :3]}, "3 frames", "5 per snapshot")
    fails({"meas": y, "mask": np.stack([m, m, m])}, "(3, 5, 23, 31)", "(2, 23, 31)")
    fails({"meas": np.zeros((2, 2, 2, H, W)), "mask": m}, "2 to 4 axes", "(2, 2, 2, 23, 31)")


def test_truth_may_be_shorter_longer_or_ragged():
    y, m, x = make(n=3)
    short = interpret({"meas": y, "mask": m, "orig": x[0]}, "a.npz")
    same(short, y, m, x[:1])
    assert "the truth is known for the first 1 of 3 snapshots only" in short.meta["notes"]
    long = interpret({"meas": y[:2], "mask": m, "orig": flat(x)}, "a.npz")
    same(long, y[:2], m, x[:2])
    assert "dropped the truth of 1 snapshots that have no measurement" in long.meta["notes"]
    ragged = interpret({"meas": y, "mask": m, "orig": flat(x)[:-2]}, "a.npz")
    same(ragged, y, m, x[:2])
    assert "dropped the last 3 frames of the truth: not a whole group of 5" in ragged.meta["notes"]


def test_truth_in_groups_is_read():
    y, m, x = make()
    same(interpret({"meas": y, "mask": m, "orig": x}, "a.npz"), y, m, x)
    same(interpret({"meas": matlab(y), "mask": matlab(m), "orig": matlab(x)}, "a.mat"), y, m, x)


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("k", [1, 2])
def test_colour_planes_become_one_capture_in_the_order_that_fits(k, flip):
    y, m, x = make(n=3 * k)
    video = x.reshape(k, 3, T, H, W)[:, :: -1 if flip else 1].transpose(3, 4, 1, 0, 2).reshape(H, W, 3, k * T)
    meas = y.reshape(k, 3, H, W).transpose(2, 3, 1, 0)
    scene = interpret({"meas": meas if k > 1 else meas[..., 0], "mask": matlab(m), "orig": video}, "a.mat")
    colours = m[None].repeat(3, 0)
    same(scene, y.reshape(k, 3, H, W), colours, x.reshape(k, 3 * T, H, W))
    assert (scene.camera, scene.frames, scene.meta["colour"]) == ("rgb", T, True)
    assert any("colour order" in note for note in scene.meta["notes"]) is flip
    if k > 1:
        second = interpret({"meas": meas, "mask": matlab(m), "orig": video}, "a.mat", snapshots=slice(1, 2))
        same(second, y[None, 3:], colours, x[3:].reshape(1, 3 * T, H, W))


def test_grey_video_is_not_called_colour_and_colour_truth_needs_colour_measurements():
    y, m, x = make(n=3)
    assert interpret({"meas": y, "mask": m, "orig": flat(x)}, "a.npz").meta["colour"] is False
    fails({"meas": y[0], "mask": m, "orig": x.transpose(1, 0, 2, 3)}, "(5, 3, 23, 31)", "colour")


def test_snapshots_are_selected_with_their_truth_and_masks():
    y, m, x = make(n=4, per_sample=True)
    arrays = {"meas": y, "mask": m, "orig": flat(x[:2])}
    same(interpret(arrays, "a.npz", snapshots=slice(1, 4, 2)), y[1::2], m[1::2], x[1:2])
    same(interpret(arrays, "a.npz", snapshots=slice(2, None)), y[2:], m[2:], None)
    fails(arrays, "4:", "of the 4", snapshots=slice(4, 9))
    fails(arrays, "increasing", snapshots=slice(None, None, -1))


# ---- values ----


def test_bad_values_name_array_count_and_remedy():
    y, m, x = make()
    holes = y.copy()
    holes[0, :2, 0] = np.nan
    holes[0, 2, 0] = np.inf
    fails({"meas": holes, "mask": m}, "'meas'", "3 NaN or infinite", "replace")
    fails({"meas": y, "mask": m, "orig": flat(x) * np.nan}, "'orig'", str(x.size))
    fails({"meas": y + 1e-3j, "mask": m}, "'meas'", "complex")
    fails({"meas": y.astype(object), "mask": m}, "'meas'", "object")
    fails({"meas": y[:0], "mask": m}, "'meas'", "empty", "(0, 23, 31)")
    fails({"meas": y, "mask": m * 0}, "all masks are zero", "--masks")
    for scale in (0.0, -1.0, float("nan")):
        with pytest.raises(InputError, match="--scale must be a positive number"):
            interpret({"meas": y, "mask": m}, "a.npz", scale=scale)


def test_integer_boolean_and_real_complex_arrays_become_float32():
    y, m, x = make()
    raw = {"meas": np.rint(y * 255).astype(np.uint16), "mask": m.astype(bool), "orig": np.rint(flat(x) * 255)}
    scene = interpret({**raw, "orig": raw["orig"].astype(np.uint8)}, "a.npz")
    same(scene, y, m, x)
    assert {t.dtype for t in (scene.measurement, scene.masks, scene.truth)} == {torch.float32}
    scene = interpret({"meas": y.astype(complex), "mask": m, "orig": flat(x)}, "a.npz")
    same(scene, y, m, x)
    assert "took the real part of 'meas', whose imaginary part is zero" in scene.meta["notes"]


def test_inputs_are_left_alone():
    y, m, x = (a.astype(np.float32) for a in make())
    arrays = {"meas": y * 255, "mask": m * 7, "orig": flat(x) * 255}
    copies = {name: a.copy() for name, a in arrays.items()}
    scene = interpret(arrays, "a.npz")
    scene.measurement.zero_(), scene.masks.zero_(), scene.truth.zero_()
    for name, a in arrays.items():
        np.testing.assert_array_equal(a, copies[name])


def test_negative_masks_are_legal_and_recorded():
    y, m, x = make()
    m = 2 * m - 1
    y = (m * x).sum(-3)
    scene = interpret({"meas": y, "mask": m, "orig": flat(x)}, "a.npz")
    same(scene, y, m, x)
    assert any("negative" in note for note in scene.meta["notes"])


# ---- units ----


@pytest.mark.parametrize("mask_scale", [1, 255, 113])
@pytest.mark.parametrize("white", [1, 255, 1023, 65535])
@pytest.mark.parametrize("convention", ["both", "white", "masks", "none", "mean"])
def test_truth_reveals_the_units_of_the_measurement(mask_scale, white, convention):
    y, m, x = make(grey=True)
    m.flat[0] = 1.0
    y = (m * x).sum(-3)
    factor = {
        "both": white * mask_scale,
        "white": white,
        "masks": mask_scale,
        "none": 1,
        "mean": white * mask_scale / T,
    }[convention]
    scene = interpret({"meas": y * factor, "mask": m * mask_scale, "orig": flat(x) * white}, "a.npz")
    same(scene, y, m, x)
    assert scene.meta["mask_scale"] == pytest.approx(mask_scale)
    assert scene.meta["white"] == white
    assert scene.meta["measurement_factor"] == pytest.approx(factor)


def test_noise_does_not_hide_the_units_and_nonsense_leaves_the_default():
    y, m, x = make()
    rng = np.random.default_rng(5)
    noisy = y + 0.05 * y.mean() * rng.standard_normal(y.shape)
    assert interpret({"meas": noisy, "mask": m, "orig": flat(x) * 255}, "a.npz").meta["measurement_factor"] == 1
    nonsense = interpret({"meas": y[:, ::-1, ::-1] * 40, "mask": m, "orig": flat(x) * 255}, "a.npz")
    assert nonsense.meta["measurement_factor"] == 255


@pytest.mark.parametrize("gain", [1.3, 40.0, 499.0, 3e5])
@pytest.mark.parametrize("white", [1, 255])
def test_truth_tells_any_factor_of_the_measurement(gain, white):
    y, m, x = make(grey=True)
    scene = interpret({"meas": y * gain, "mask": m, "orig": flat(x) * white}, "a.npz")
    same(scene, y, m, x)
    assert scene.meta["measurement_factor"] == pytest.approx(gain)
    assert scene.meta["white"] == white
    assert f"divided the truth by {white} and the measurement by {gain:g}" in scene.meta["notes"]
    noisy = y + 0.05 * y.mean() * np.random.default_rng(5).standard_normal(y.shape)
    near = interpret({"meas": noisy * gain, "mask": m, "orig": flat(x) * white}, "a.npz")
    assert near.meta["measurement_factor"] == pytest.approx(gain, rel=0.01)


@pytest.mark.parametrize("white", [1.0, 255.0])
def test_without_truth_binary_masks_reveal_usual_units(white):
    y, m, _ = make()
    scene = interpret({"meas": y * white, "mask": m}, "a.npz")
    same(scene, y, m)
    assert scene.meta["measurement_factor"] == white


@pytest.mark.parametrize("gain", [1e-6, 40.0, 3e5])
def test_unknown_units_are_exposed_so_that_the_bright_end_lies_at_0_9(gain):
    y, m, _ = make(grey=True)
    scene = interpret({"meas": y * gain, "mask": m * 113}, "a.npz")
    level = scene.measurement / scene.masks.sum(0)
    assert np.percentile(level, 99.9) == pytest.approx(0.9, rel=1e-3)
    assert any("--scale" in note for note in scene.meta["notes"])


def test_scale_overrides_the_guess_with_and_without_truth():
    y, m, x = make()
    without = interpret({"meas": y * 255, "mask": m}, "a.npz", scale=510.0)
    same(without, y / 2, m)
    gain = interpret({"meas": y * 255 * 1.3, "mask": m, "orig": flat(x) * 255}, "a.npz", scale=255 * 1.3)
    same(gain, y, m, x)
    dim = interpret({"meas": y * 200, "mask": m, "orig": flat(x) * 200}, "a.npz", scale=1023)
    same(dim, y * 200 / 1023, m, x * 200 / 1023)


# ---- round trips ----


@pytest.mark.parametrize("suffix", [".mat", ".npz", ".h5"])
@pytest.mark.parametrize(
    "shape",
    [
        {"n": 2, "t": 5, "h": 23, "w": 31},
        {"n": 1, "t": 5, "h": 23, "w": 31, "per_sample": True},
        {"n": 7, "t": 7, "h": 7, "w": 7},
        {"n": 4, "t": 4, "h": 4, "w": 4, "per_sample": True},
        {"n": 1, "t": 1, "h": 5, "w": 9},
        {"n": 1, "t": 1, "h": 1, "w": 1},
        {"n": 2, "t": 3, "h": 1, "w": 4},
        {"n": 3, "t": 30, "h": 9, "w": 4, "grey": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("truths", [0, 1])
def test_saved_scenes_come_back_bit_for_bit(tmp_path, suffix, shape, truths):
    rng = np.random.default_rng(3)
    y, m, x = (torch.from_numpy((a * 37.7 - 3).astype(np.float32)) for a in make(**shape))
    scene = Scene(y * float(rng.random()), m, x[:truths] if truths else None)
    path = save_scene(tmp_path / f"scene{suffix}", scene)
    back = load_scene(path)
    assert torch.equal(back.measurement, scene.measurement)
    assert torch.equal(back.masks, scene.masks)
    assert (back.truth is None) == (scene.truth is None)
    assert scene.truth is None or torch.equal(back.truth, scene.truth)


def test_matlab_files_are_written_in_matlab_order(tmp_path):
    import scipy.io

    y, m, x = (torch.from_numpy(a.astype(np.float32)) for a in make())
    content = scipy.io.loadmat(save_scene(tmp_path / "s.mat", Scene(y, m, x)))
    assert content["meas"].shape == (H, W, N)
    assert content["mask"].shape == (H, W, T)
    np.testing.assert_array_equal(content["orig"][:, :, T + 1], x[1, 1])


def test_an_unknown_format_number_is_refused():
    y, m, _ = make()
    for number in (np.array([9]), np.array([]), np.array([np.nan]), np.array([1, 1])):
        fails({"meas": y, "mask": m, "unsnap_format": number}, "unsnap_format", "must be 1 or 2")


@pytest.mark.parametrize("suffix", [".mat", ".npz", ".h5"])
def test_foreign_files_are_read_from_disk(tmp_path, suffix):
    y, m, x = make()
    order = matlab if suffix == ".mat" else np.asarray
    path, masks = tmp_path / f"cap{suffix}", tmp_path / "m.npz"
    save_arrays(path, meas=order(y) * 255, mask=order(m), orig=np.rint(order(flat(x)) * 255).astype(np.uint8))
    scene = load_scene(path)
    same(scene, y, m, x)
    assert scene.meta["name"] == "cap"
    assert scene.meta["file"] == path.name
    assert scene.meta["arrays"]["orig"] == {"shape": list(order(flat(x)).shape), "dtype": "uint8"}
    save_arrays(masks, mask=m[::-1])
    assert torch.equal(load_scene(path, masks=masks).masks, torch.from_numpy(m[::-1].astype(np.float32).copy()))
    with pytest.raises(InputError, match="nowhere"):
        load_scene(tmp_path / "nowhere.npz")


# ---- the field's own files ----


@pytest.mark.skipif(not (DATA / "scenes").is_dir(), reason="the shared data is not here")
@pytest.mark.parametrize(
    ("name", "snapshots", "truths"), [("drop8", 5, 1), ("traffic", 6, 6), ("crash8", 1, 1)], ids=lambda v: str(v)
)
def test_published_scenes(name, snapshots, truths):
    scene = load_scene(DATA / f"scenes/{name}_cacti.mat")
    assert scene.measurement.shape == (snapshots, 256, 256)
    assert scene.masks.shape == (8, 256, 256)
    assert scene.truth is not None
    assert scene.truth.shape == (truths, 8, 256, 256)
    assert int((scene.masks.square().sum(0) == 0).sum()) == 235
    torch.testing.assert_close((scene.masks * scene.truth).sum(1), scene.measurement[:truths], rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(not (DATA / "real").is_dir(), reason="the shared data is not here")
def test_real_capture():
    scene = load_scene(DATA / "real/fan14_cacti.mat")
    assert scene.masks.shape == (14, 256, 256)
    assert scene.truth is None
    assert scene.meta["mask_scale"] == 113
    assert float(scene.masks.max()) == 1


@pytest.mark.skipif(not (DATA / "colour").is_dir(), reason="the shared data is not here")
def test_colour_scene_with_masks_of_its_own():
    with pytest.raises(InputError, match="--masks FILE"):
        load_scene(DATA / "colour/hotdog_rgb.mat")
    scene = load_scene(DATA / "colour/hotdog_rgb.mat", masks=DATA / "colour/hotdog_mask.mat")
    assert scene.truth is not None
    assert (scene.camera, scene.truth.shape) == ("rgb", (1, 24, 400, 400))
    torch.testing.assert_close(scene.coded, scene.measurement, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("letter", [np.nan, np.inf, -1.0, 0.0, 1e300])
def test_a_camera_that_is_no_name_is_refused_without_a_warning(letter, recwarn):
    y, m, _ = make()
    with pytest.raises(InputError, match="bytes of a camera's name"):
        interpret({"meas": y, "mask": m, "unsnap_camera": np.array([letter])}, "a.npz")
    assert not recwarn.list


def test_a_measurement_that_is_no_picture_is_named() -> None:
    """Not as missing: it is there."""
    with pytest.raises(InputError, match=r"meas \(1, 9\) is no picture, which has at least two rows and columns"):
        interpret({"meas": np.ones((1, 9)), "mask": np.ones((1, 9, 4)), "orig": np.ones((1, 9, 4))}, "a.npz")
    with pytest.raises(InputError, match="text, cells and sparse matrices are not read"):
        interpret({"mask": np.ones((6, 9, 4))}, "a.mat")


@pytest.mark.parametrize("other", [np.ones((3, 4)), np.full((2, 6, 8), np.nan)])
def test_what_may_be_no_truth_is_left_out_with_a_note(other: np.ndarray) -> None:
    arrays = {"meas": np.ones((6, 8)), "mask": np.ones((2, 6, 8))}
    scene = interpret({**arrays, "x": other}, "scene.npz")
    assert scene.truth is None
    assert scene.meta["roles"]["truth"] == []
    assert any(note.startswith("left 'x' out: ") for note in scene.meta["notes"])
    with pytest.raises(InputError, match=r"truth|finite"):
        interpret({**arrays, "orig": other}, "scene.npz")


def test_the_outer_of_two_names_wins() -> None:
    arrays = {"meas": np.ones((6, 8)), "mask": np.ones((2, 6, 8)), "info/mask": np.ones((3, 4))}
    assert interpret(arrays, "scene.mat").meta["roles"]["masks"] == "mask"


def test_a_grey_file_of_unsnaps_is_no_other_camera(tmp_path: Path) -> None:
    path = save_scene(tmp_path / "s.npz", Scene.of(torch.rand(1, 2, 8, 8), torch.rand(2, 8, 8)))
    with pytest.raises(InputError, match="was recorded by a snapshot, not by a bayer:rggb; leave out --kind"):
        load_scene(path, camera="bayer:rggb")
