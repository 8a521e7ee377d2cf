"""Each finding appears on a file that has the trouble, and stays away from one that has not."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from unsnap.doctor import Finding, Report, diagnose, examine
from unsnap.io.files import save_arrays
from unsnap.io.raw import Raw
from unsnap.io.scene_file import interpret
from unsnap.masks import shift_per_frame
from unsnap.scene import Scene
from unsnap.simulate.recording import Recording

DATA = Path(__file__).parents[2] / "../shared/data"
T, H, W = 5, 24, 24


def make(seed=0, n=2, t=T, h=H, w=W):
    """A bright-to-dark moving texture, Bernoulli masks with every pixel open once, and y = Σ m x (float64)."""
    rng = np.random.default_rng(seed)
    x = np.rint(255 * (0.2 + 0.6 * rng.random((n, t, h, w)))) / 255
    m = (rng.random((t, h, w)) < 0.5).astype(np.float64)
    m[0][m.sum(0) == 0] = 1
    return (m * x).sum(-3), m, x


def build(y, m, x=None, **meta):
    tensors = [None if a is None else torch.from_numpy(np.ascontiguousarray(a, dtype=np.float32)) for a in (y, m, x)]
    return Scene(*tensors, {"measurement_factor": 255.0, **meta})


def about(subject, scene):
    return [f for f in diagnose(scene) if f.subject == subject]


def only(subject, scene):
    (finding,) = about(subject, scene)
    return finding


def model(y, m, x, **meta):
    """The verdict on y against Φx."""
    return only("forward model", build(y, m, x, **meta))


def test_a_sound_scene_raises_no_warning():
    findings = diagnose(build(*make()))
    assert {f.level for f in findings} == {"ok"}
    assert {f.subject for f in findings} == {"masks", "gram", "dead pixels", "alignment", "forward model"}


# ---- masks ----


def test_mask_range_density_and_kind():
    y, m, _ = make()
    assert only("masks", build(y, m)).text == f"binary masks, 0 to 1, mean {m.mean():.3g}"
    grey = 0.1 + 0.8 * m
    assert only("masks", build(y, grey)).text == f"grey masks, 0.1 to 0.9, mean {grey.mean():.3g}"
    signed = about("masks", build(y, 2 * m - 1))
    assert [f.level for f in signed] == ["ok", "note"]
    assert "negative" in signed[1].text


def test_gram_names_the_worst_ratio_of_sum_to_sum_of_squares():
    y, m, _ = make()
    assert only("gram", build(y, m)).level == "ok"
    half = only("gram", build(y, m / 2))
    assert half.level == "note"
    assert "up to ×2;" in half.text
    assert "fails" in only("gram", build(y, 2 * m - 1)).text


def test_masks_that_do_not_tell_frames_apart():
    y, m, _ = make()
    same = only("frames", build(y, np.repeat(m[:1], T, 0)))
    assert same.level == "fatal"
    assert "all 5 masks are identical" in same.text
    twin = only("frames", build(y, m[[0, 1, 2, 1, 4]]))
    assert twin.level == "warning"
    assert "frames 1 and 3" in twin.text
    assert not about("frames", build(y, m))
    (one,) = about("frames", build(y, m[:1]))
    assert one.level == "note"
    assert "--motion" in one.remedy


@pytest.mark.parametrize("shift", [(0, 1), (1, 0), (-1, 2), (3, -2)])
def test_a_shifted_mask_is_recognised(shift):
    rng = np.random.default_rng(1)
    big = (rng.random((H + 40, W + 40)) < 0.5).astype(np.float32)
    dy, dx = shift
    masks = np.stack([big[20 - t * dy :, 20 - t * dx :][:H, :W] for t in range(T)])
    assert shift_per_frame(torch.from_numpy(masks)) == shift
    note = only("frames", build(np.ones((1, H, W)), masks))
    assert note.level == "note"
    assert f"{dy} rows and {dx} columns" in note.text
    dust = 0.15 * rng.standard_normal((T, *big.shape)).cumsum(0)  # of a plate that was photographed frame by frame
    dusty = np.stack([(big + dust[t])[20 - t * dy :, 20 - t * dx :][:H, :W] for t in range(T)])
    assert shift_per_frame(torch.from_numpy(dusty)) == shift
    scrambled = masks[[0, 2, 1, 4, 3]]
    assert shift_per_frame(torch.from_numpy(scrambled)) is None


# ---- pixels ----


@pytest.mark.parametrize(("rows", "level"), [(0, "ok"), (1, "warning"), (H, "fatal")])
def test_dead_pixels_are_counted(rows, level):
    y, m, _ = make()
    m = m.copy()
    m[:, :rows] = 0
    finding = only("dead pixels", build(y * (m.sum(0) > 0), m))
    assert finding.level == level
    assert rows == 0 or f"{rows * W} pixels ({rows / H:.2%})" in finding.text


def test_few_dead_pixels_are_a_note_and_weak_ones_too():
    y, m, _ = make()
    m = m.copy()
    m[:, 0, 0] = 0
    assert only("dead pixels", build(y * (m.sum(0) > 0), m)).level == "note"
    m[:, 1, 1:4] *= 0.01
    weak = only("weak pixels", build(y, m))
    assert weak.text.startswith("3 pixels")


def test_light_behind_closed_masks_is_an_offset_in_file_units():
    y, m, _ = make()
    m = m.copy()
    m[:, 0] = 0
    y[:, 0] = 0
    assert not about("offset", build(y, m))
    offset = only("offset", build(y + 0.1, m))
    assert offset.level == "warning"
    assert "25.5" in offset.text
    assert "dark frame" in offset.remedy


@pytest.mark.parametrize("dark", [0.0, 30.0])
@pytest.mark.parametrize("before", [0.0, 60.0, 130.0])
def test_the_offset_to_give_counts_what_is_subtracted_already(before, dark):
    """Of pixels that no mask opens, and of the truth; as `--offset` is an absolute number, and a dark frame is not."""
    y, m, x = make()
    m[:, 0] = 0
    arrays = {"meas": 100 + dark + 255 * coded(m, x), "mask": m}

    def read(offset, **more):
        raw = Raw(dark=np.full(y.shape[1:], dark) if dark else None, offset=offset)
        return interpret({**arrays, **more}, "a.npz", raw=raw)

    blind = only("offset", read(before))
    assert re.search(r"--offset ([\d.]+)", blind.remedy)[1] == "100"
    assert ("instead of" in blind.remedy) == (before > 0)
    told = only("forward model", read(before, orig=x.reshape(-1, H, W)))
    assert re.search(r"--offset ([\d.]+)", told.remedy)[1] == "100"
    assert not about("offset", read(100.0))


def test_empty_dark_and_negative_measurements():
    y, m, x = make()
    assert only("measurement", build(0 * y, m)).level == "warning"
    dark = y.copy()
    dark[:, :2] = 0
    assert f"{2 * 2 * W} measured pixels" in only("dark pixels", build(dark, m)).text
    assert not about("dark pixels", build(y, m))
    noise = y.copy()
    noise[0, 0, 0] = -0.01
    assert only("negative", build(noise, m)).level == "note"
    assert only("negative", build(y - 1, m)).level == "warning"
    assert not about("negative", build(y, m))
    signed = 2 * m - 1
    assert not about("negative", build((signed * x).sum(-3), signed))


def test_saturation_is_a_pile_up_at_the_maximum():
    y, m, _ = make()
    clip = 561.5 / 255
    finding = only("saturation", build(np.minimum(y, clip), m))
    assert finding.level == "warning"
    assert f"{(y > clip).sum()} pixels" in finding.text
    assert "maximum 561.5:" in finding.text, "in the file's units, as --saturated wants it"
    assert not about("saturation", build(y, m))
    assert not about("saturation", build(np.round(y * 4) / 4, m)), "coarse steps are not saturation"
    steps = np.minimum(np.round(y * 32) / 32, 1.5)
    assert about("saturation", build(steps, m))


def test_a_scene_that_is_truly_white_is_not_called_saturated():
    rng = np.random.default_rng(2)
    x = np.where(np.arange(W) < 9, 1.0, 0.8 * rng.random((1, 4, H, W)))
    order = rng.permuted(np.tile([1.0, 1, 0, 0], (H, W, 1)), axis=-1)
    m = np.moveaxis(order, -1, 0)
    y = (m * x).sum(-3)
    assert not about("saturation", build(y, m, x))
    assert about("saturation", build(y, m))


# ---- y against Φx ----


def test_matching_measurement_and_noise():
    y, m, x = make()
    assert model(y, m, x).level == "ok"
    rng = np.random.default_rng(3)
    noise = rng.standard_normal(y.shape) * np.sqrt((y**2).mean())
    slight = model(y + 0.01 * noise, m, x)
    assert slight.level == "ok"
    assert "40." in slight.text or "39." in slight.text
    assert model(y + 0.08 * noise, m, x).level == "note"
    other = make(seed=9)[1]
    stranger = model((other * x).sum(-3), m, x)
    assert stranger.level == "warning"
    assert "--masks FILE" in stranger.remedy
    assert not about("forward model", build(y, m))


def coded(masks, x):
    return (masks * x).sum(-3)


TROUBLES = {
    "y ≈ 1.3·Φx": (lambda y, m, x: (1.3 * y, m, x), "--scale 331.5"),
    "y ≈ 1·Φx plus an offset of 12.75": (lambda y, m, x: (y + 0.05, m, x), "subtract the dark level 12.75"),
    "y ≈ 0.5·Φx plus an offset of 51": (lambda y, m, x: (y / 2 + 0.2, m, x), "then divide it by 0.5"),
    "it is clipped": (lambda y, m, x: (np.minimum(y, 1.3), m, x), "exposure"),
    "it wrapped around at 2^8": (lambda y, m, x: (np.rint(y * 255) % 256 / 255, m, x), "wider than uint8"),
    "it was divided by Σm": (lambda y, m, x: (y / m.sum(0), m, x), "multiply the measurement"),
    "it was coded with 1 − mask": (lambda y, m, x: (coded(1 - m, x), m, x), "complement"),
    "the masks are transposed": (lambda y, m, x: (y, m.swapaxes(1, 2), x), "--transpose-masks"),
    "the truth is transposed": (lambda y, m, x: (y, m, x.swapaxes(-1, -2)), "store the truth transposed"),
    "the measurement is transposed": (lambda y, m, x: (y.swapaxes(1, 2), m, x), "store the measurement transposed"),
    "the masks are upside down": (lambda y, m, x: (y, m[:, ::-1], x), "--masks"),
    "the masks are mirrored left to right": (lambda y, m, x: (y, m[:, :, ::-1], x), "--masks"),
    "the masks are turned by 180°": (lambda y, m, x: (y, m[:, ::-1, ::-1], x), "--masks"),
    "the masks run backwards in time": (lambda y, m, x: (y, m[::-1], x), "--masks"),
    "the masks are one frame early": (lambda y, m, x: (y, np.roll(m, -1, 0), x), "--masks"),
    "the masks are one frame late": (lambda y, m, x: (y, np.roll(m, 1, 0), x), "--masks"),
}


@pytest.mark.parametrize("text", TROUBLES)
def test_everyday_mistakes_are_named_with_their_remedy(text):
    spoil, remedy = TROUBLES[text]
    finding = model(*spoil(*make()))
    assert finding.level == "warning"
    assert text in finding.text
    assert remedy in finding.remedy


@pytest.mark.parametrize("text", [text for text in TROUBLES if text.startswith(("the ", "it was"))])
def test_noise_does_not_hide_a_mistake(text):
    y, m, x = TROUBLES[text][0](*make())
    noise = 0.02 * y.mean() * np.random.default_rng(4).standard_normal(y.shape)
    assert text in model(y + noise, m, x).text


def test_an_order_mistake_with_a_gain_is_still_named():
    y, m, x = make()
    finding = model(0.4 * y, m[::-1], x)
    assert "the masks run backwards in time, with a gain of 0.4" in finding.text


def test_the_snapshot_that_is_wrong_is_the_one_explained():
    y, m, x = make(n=3)
    y[2] *= 1.5
    assert "y ≈ 1.5·Φx" in model(y, m, x).text


def test_the_wrong_time_axis_is_named_with_the_flag():
    y, m, x = make(n=1, t=7, h=7, w=7)
    arrays = {"meas": y[0], "mask": m.transpose(1, 2, 0), "orig": x[0].transpose(1, 2, 0)}
    finding = only("forward model", interpret(arrays, "a.npz"))
    assert "time is axis 2, not 0" in finding.text
    assert "--time-axis 2" in finding.remedy
    assert only("forward model", interpret(arrays, "a.npz", time_axis=2)).level == "ok"


def test_the_remedies_with_flags_cure():
    y, m, x = make()
    flat = 255 * x.reshape(-1, H, W)
    gain = {"meas": 255 * 1.1 * y, "mask": m, "orig": flat}
    assert only("forward model", interpret(gain, "a.npz")).level == "warning"
    assert only("forward model", interpret(gain, "a.npz", scale=280.5)).level == "ok"
    turned = {"meas": 255 * y, "mask": m.swapaxes(1, 2), "orig": flat}
    assert only("forward model", interpret(turned, "a.npz")).remedy == "give --transpose-masks"
    assert only("forward model", interpret(turned, "a.npz", transpose_masks=True)).level == "ok"


def test_masks_per_snapshot_are_examined_too():
    rng = np.random.default_rng(6)
    _, _, x = make()
    m = (rng.random((2, T, H, W)) < 0.5).astype(float)
    m[1, :, :3] = 0
    scene = build(coded(m, x), m, x)
    assert f"{int((m.sum(1) == 0).sum())} pixels" in only("dead pixels", scene).text
    assert only("forward model", scene).level == "ok"
    assert "backwards" in only("forward model", build(coded(m, x), m[:, ::-1], x)).text


# ---- reports ----


def test_examine_reports_what_was_read_and_decided(tmp_path):
    y, m, x = make()
    path = tmp_path / "a.npz"
    save_arrays(path, meas=255 * y, mask=m, orig=np.rint(255 * x.reshape(-1, H, W)).astype(np.uint8))
    report = examine(path)
    assert not report.fatal
    texts = {f.subject: f.text for f in report.findings if f.level == "ok"}
    assert texts["file"] == "measurement 'meas', masks 'mask'"
    assert texts["axes"] == "time is axis 0 of the masks"
    assert texts["size"] == "2 snapshots of 5 frames, 24×24; truth orig for 2 of them"
    assert Finding("note", "reading", "divided the truth by 255 and the measurement by 255") in report.findings
    one = examine(path, snapshots=slice(0, 1))
    assert one.scene is not None
    assert one.scene.snapshots == 1


def test_reports_are_ready_for_json(tmp_path):
    y, m, _ = make()
    path = tmp_path / "a.npz"
    save_arrays(path, meas=y, mask=m)
    told = json.loads(json.dumps(examine(path).to_dict(), allow_nan=False))
    assert told["arrays"] == {
        "meas": {"shape": [2, 24, 24], "dtype": "float64"},
        "mask": {"shape": [5, 24, 24], "dtype": "float64"},
    }
    assert told["size"] == {"snapshots": 2, "frames": 5, "height": 24, "width": 24}
    assert told["fatal"] is False
    assert {"level", "subject", "text", "remedy"} == set(told["findings"][0])


def test_bad_content_is_a_fatal_finding_not_an_exception(tmp_path):
    y, m, _ = make()
    path = tmp_path / "a.npz"
    save_arrays(path, meas=np.where(y > 1, np.nan, y), mask=m)
    report = examine(path)
    assert report.fatal
    assert report.scene is None
    assert "NaN" in report.findings[0].text
    assert "mask" in report.arrays
    json.dumps(report.to_dict(), allow_nan=False)
    path.write_bytes(b"PK\x03\x04 cut short")
    assert examine(path).fatal
    missing = examine(tmp_path / "none.mat")
    assert missing.fatal
    assert missing.arrays == {}
    save_arrays(path, meas=y, mask=np.repeat(m[:1], T, 0))
    identical = examine(path)
    assert identical.fatal
    assert identical.scene is not None


def test_only_fatal_findings_make_a_report_fatal():
    assert not Report("a", {}, None, [Finding("warning", "s", "t")]).fatal
    assert Report("a", {}, None, [Finding("warning", "s", "t"), Finding("fatal", "s", "t")]).fatal


@pytest.mark.skipif(not (DATA / "scenes").is_dir(), reason="the shared data is not here")
@pytest.mark.parametrize("name", ["drop8", "traffic", "crash8"])
def test_published_scenes_are_sound(name):
    report = examine(DATA / f"scenes/{name}_cacti.mat")
    assert {f.level for f in report.findings} == {"ok", "note"}
    texts = [f.text for f in report.findings]
    assert any(text.startswith("235 pixels (0.36%)") for text in texts)
    assert any("equals Σ mask·truth" in text for text in texts)
    assert "one mask shifted by 0 rows and 1 columns per frame" in texts


@pytest.mark.skipif(not (DATA / "real").is_dir(), reason="the shared data is not here")
def test_real_capture_has_grey_masks_and_unknown_units():
    report = examine(DATA / "real/fan14_cacti.mat")
    assert not report.fatal
    texts = [f.text for f in report.findings]
    assert any(text.startswith("grey masks, 0 to 1") for text in texts)
    assert any("units unknown" in text for text in texts)
    assert any("code that divides by Σm would be wrong" in text for text in texts)


def test_closed_pixels_at_the_ends_of_a_spectrum_are_no_warning():
    finding = only("dead pixels", Recording(kind="dispersed:2", size="32x32").of())
    assert "Σm² = 0" in finding.text
    assert finding.level == "note"


@pytest.mark.parametrize("factor", [1.0, 2.0])
def test_a_dispersed_scene_that_does_not_fit_is_looked_at(factor):
    """Its snapshot is wider than its square mask."""
    scene = Recording(kind="dispersed:2", size="24x24", noise=0.1).of()
    assert scene.masks.shape[-1] == scene.masks.shape[-2] < scene.measurement.shape[-1]
    y = factor * scene.measurement
    assert [f.level for f in diagnose(replace(scene, measurement=y)) if f.subject == "forward model"] != ["ok"]
