"""save_video and read_video: what goes out comes back, at any size; what cannot be written is refused in time."""

from __future__ import annotations

import os
from pathlib import Path

import av
import numpy as np
import pytest
import scipy.io
import torch
from PIL import Image

from unsnap.errors import InputError
from unsnap.io import ARRAY_OUTPUTS, VIDEO_OUTPUTS, claim_output, read_arrays, read_video, save_video, zarr

EIGHT_BITS = [".gif", ""]
LOSSLESS = [suffix for suffix in VIDEO_OUTPUTS if suffix not in {*EIGHT_BITS, ".mp4", ".png", ".hdr"}] + [".TIFF"]
SHAPES = [(1, 1, 1), (1, 5, 7), (3, 6, 3), (4, 2, 5, 7), (2, 3, 2, 8, 6)]


def smooth(*shape: int) -> torch.Tensor:
    """A moving ramp: video codecs keep it to a few grey levels."""
    t, h, w = (torch.linspace(0, 1, n) for n in shape[-3:])
    frames = (t[:, None, None] + h[:, None] + w) / 3
    return frames.expand(shape).contiguous()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("suffix", LOSSLESS + EIGHT_BITS + [".mp4"])
def test_round_trip(tmp_path: Path, suffix: str, shape: tuple[int, ...]) -> None:
    video = smooth(*shape)
    path = save_video(tmp_path / f"new/clip{suffix}", video)
    assert path == tmp_path / f"new/clip{suffix}"
    back = read_video(path)
    expected = video.reshape(-1, *shape[-2:])
    assert back.dtype == torch.float32
    if suffix == ".mp4":
        even = [n + n % 2 for n in shape[-2:]]
        assert back.shape == (len(expected), *even)
        torch.testing.assert_close(back[:, : shape[-2], : shape[-1]], expected, atol=6 / 255, rtol=0)
    else:
        tolerance = 0 if suffix in LOSSLESS else 0.5001 / 255
        torch.testing.assert_close(back, expected, atol=tolerance, rtol=0)


@pytest.mark.parametrize("suffix", [".mp4", ".gif", ""])
def test_frames_that_do_not_change_are_all_kept(tmp_path: Path, suffix: str) -> None:
    path = save_video(tmp_path / f"still{suffix}", torch.full((6, 16, 16), 0.5))
    assert len(read_video(path)) == 6


def test_mp4_plays_everywhere(tmp_path: Path) -> None:
    """Studio range, 4:2:0, the rate asked for, and colourless: what players expect."""
    video = torch.stack([torch.zeros(32, 32), torch.ones(32, 32)])
    with av.open(str(save_video(tmp_path / "a.mp4", video, fps=24))) as container:
        stream = container.streams.video[0]
        assert (stream.average_rate, stream.pix_fmt) == (24, "yuv420p")
        black, white = (frame.to_ndarray() for frame in container.decode(stream))
    assert abs(int(np.median(black[:32])) - 16) <= 1
    assert abs(int(np.median(white[:32])) - 235) <= 1
    assert np.abs(white[32:].astype(int) - 128).max() <= 1


def test_mp4_without_h264(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(av, "codecs_available", {"mpeg4"})
    video = smooth(5, 33, 47)
    back = read_video(save_video(tmp_path / "a.mp4", video))[:, :33, :47]
    torch.testing.assert_close(back, video, atol=8 / 255, rtol=0)


def test_gif_loops_at_the_rate_asked_for(tmp_path: Path) -> None:
    with Image.open(save_video(tmp_path / "a.gif", smooth(4, 9, 9), fps=20)) as image:
        assert (image.info["loop"], image.info["duration"], image.n_frames) == (0, 50, 4)


def test_frame_names_and_depth(tmp_path: Path) -> None:
    folder = save_video(f"{tmp_path}/run.7/", smooth(2, 5, 7))
    assert sorted(p.name for p in folder.iterdir()) == ["frame_0001.png", "frame_0002.png"]
    with Image.open(folder / "frame_0001.png") as image:
        assert (image.mode, image.size) == ("L", (7, 5))
    save_video(folder, smooth(1, 5, 7))
    assert [p.name for p in folder.iterdir()] == ["frame_0001.png"]


def test_mat_is_height_width_time(tmp_path: Path) -> None:
    video = smooth(2, 5, 7)
    for given in (video, video.numpy()):
        stored = scipy.io.loadmat(save_video(tmp_path / "a.mat", given))["video"]
        np.testing.assert_array_equal(stored, video.permute(1, 2, 0))


@pytest.mark.parametrize("suffix", [*LOSSLESS, ".hdr"])
def test_numbers_keep_their_values_and_inputs_are_untouched(tmp_path: Path, suffix: str) -> None:
    values = np.array([-0.5, 0.25, 1.5], np.float32).reshape(1, 1, 3)
    video = torch.from_numpy(values).double().requires_grad_()
    path = save_video(tmp_path / f"a{suffix}", video)
    read = {".zarr": zarr.read, ".hdr": lambda path: np.fromfile(path.with_suffix(".raw"), "<f4")}
    back = read.get(suffix, lambda path: next(iter(read_arrays(path).values())))(path)
    np.testing.assert_array_equal(back.ravel(), values.ravel())
    assert float(video.detach().max()) == 1.5


@pytest.mark.parametrize("suffix", [*EIGHT_BITS, ".png", ".mp4"])
def test_eight_bits_are_cut_to_black_and_white(tmp_path: Path, suffix: str) -> None:
    video = smooth(2, 16, 16)
    wide = torch.where(video < 0.3, -0.7, torch.where(video > 0.6, 1.9, video))
    written = [read_video(save_video(tmp_path / f"{k}{suffix}", v)) for k, v in enumerate((wide, wide.clamp(0, 1)))]
    torch.testing.assert_close(*written, rtol=0, atol=0)


def test_sources_are_brought_to_unit_range(tmp_path: Path) -> None:
    levels = np.array([0, 51, 255]).reshape(3, 1, 1)
    unit = torch.tensor([0, 0.2, 1]).reshape(3, 1, 1)
    for number, array in enumerate(
        (levels.astype(np.uint8), (levels * 257).astype(np.uint16), levels.astype(float), levels / 255, levels)
    ):
        path = tmp_path / f"{number}.npy"
        np.save(path, array)
        torch.testing.assert_close(read_video(path), unit)
    np.save(tmp_path / "bool.npy", levels > 99)
    torch.testing.assert_close(read_video(tmp_path / "bool.npy"), torch.tensor([0.0, 0, 1]).reshape(3, 1, 1))


@pytest.mark.parametrize("white", [255, 1023, 4095, 16383, 65535])
def test_the_white_of_integers_is_that_of_a_camera(tmp_path: Path, white: int) -> None:
    """Of all that is stored: neither fewer frames nor grey instead of colour make it another."""
    levels = (white * smooth(4, 5, 7)).round()
    blue = torch.stack([0 * levels, 0 * levels, levels], -1)
    for name, stored in (("grey", levels), ("blue", blue)):
        np.save(tmp_path / f"{name}.npy", stored.numpy().astype(np.uint16))
    torch.testing.assert_close(read_video(tmp_path / "grey.npy"), levels / white)
    torch.testing.assert_close(read_video(tmp_path / "grey.npy", max_frames=1), levels[:1] / white)
    torch.testing.assert_close(read_video(tmp_path / "blue.npy", colour=True)[2], levels / white)
    torch.testing.assert_close(read_video(tmp_path / "blue.npy"), 0.114 * levels / white, rtol=0, atol=0.51 / white)


@pytest.mark.parametrize("channels", [3, 4])
def test_colour_becomes_luma(tmp_path: Path, channels: int) -> None:
    colour = np.random.default_rng(0).integers(0, 256, (3, 5, 6, channels), dtype=np.uint8)
    np.savez(tmp_path / "a.npz", frames=colour)
    np.savez(tmp_path / "b.npz", frames=colour.astype(np.float32) / 255)
    expected = torch.from_numpy(colour[..., :3] @ np.array([0.299, 0.587, 0.114]) / 255).float()
    assert (read_video(tmp_path / "a.npz") - expected).abs().max() <= 0.5001 / 255
    torch.testing.assert_close(read_video(tmp_path / "b.npz"), expected)


def test_keys_and_max_frames(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", mask=np.ones((2, 3)), orig=np.zeros((9, 4, 4)), frames=np.ones((5, 4, 4)))
    torch.testing.assert_close(read_video(tmp_path / "a.npz", max_frames=3), torch.ones(3, 4, 4))
    path = save_video(tmp_path / "a.mp4", smooth(9, 16, 16))
    torch.testing.assert_close(read_video(path, max_frames=2), read_video(path)[:2])
    assert read_arrays(path)["frames"].dtype == np.uint8
    np.savez(tmp_path / "b.npz", a=np.ones((2, 3, 3)), b=np.ones((2, 3, 3)))
    for source, frames in ((tmp_path / "b.npz", None), (path, 0)):
        with pytest.raises(InputError):
            read_video(source, max_frames=frames)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.full((2, 3, 3), np.nan), "NaN"),
        (np.full((2, 3, 3), 4000.0), "found 4000 to 4000"),
        (np.full((2, 3, 3), -3.0), "found -3"),
        (np.ones((2, 3, 3)) * 1j, "real intensities"),
        (np.ones((2, 3, 3, 5)), r"shape \(2, 3, 3, 5\)"),
        (np.ones((0, 3, 3)), r"shape \(0, 3, 3\)"),
    ],
)
def test_what_is_no_video_is_refused(tmp_path: Path, array: np.ndarray, message: str) -> None:
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(InputError, match=message):
        read_video(tmp_path / "a.npy")


@pytest.mark.parametrize("suffix", VIDEO_OUTPUTS)
@pytest.mark.parametrize(
    ("video", "fps"),
    [
        (torch.full((2, 4, 4), float("nan")), 10),
        (torch.full((2, 4, 4), float("inf")), 10),
        (torch.full((2, 4, 4), 1e300, dtype=torch.float64), 10),
        (torch.ones(4, 4), 10),
        (torch.ones(0, 4, 4), 10),
        (torch.ones(2, 4, 4, dtype=torch.uint8), 10),
        (np.ones((2, 4, 4), np.uint8), 10),
        (None, 10),
        (torch.ones(2, 4, 4), 0),
        (torch.ones(2, 4, 4), float("nan")),
    ],
)
def test_what_cannot_be_saved_leaves_nothing(tmp_path: Path, suffix: str, video: torch.Tensor, fps: float) -> None:
    with pytest.raises(InputError, match="clip"):
        save_video(tmp_path / f"clip{suffix}", video, fps=fps)
    assert list(tmp_path.iterdir()) == []


def test_outputs_that_cannot_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "dir.mp4").mkdir()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.tex").write_text("x")
    for name, message in {
        "a.xyz": r"unknown extension '\.xyz'; known are .*\.mp4",
        "file/a.mp4": "is a file, not a folder",
        "file/b/a.mp4": "is a file, not a folder",
        "file": "is a file where a folder is",
        "dir.mp4": "is a folder where a file",
        "mine": r"holds thesis\.tex",
        "a\0.mp4": "cannot be written",
        "x" * 300 + "/a.mp4": "cannot be written",
    }.items():
        with pytest.raises(InputError, match=message):
            claim_output(tmp_path / name)
    before = sorted(tmp_path.rglob("*"))
    for name in ("a.mp4", "new/deep/a.GIF", "frames", "new.d/"):
        claim_output(f"{tmp_path}/{name}")
    claim_output(tmp_path / "a.h5", ARRAY_OUTPUTS)
    with pytest.raises(InputError, match=r"known are \.mat, \.npz"):
        claim_output(tmp_path / "a.mp4", ARRAY_OUTPUTS)
    assert sorted(tmp_path.rglob("*")) == before
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(InputError, match="write-protected"):
        claim_output(tmp_path / "a.mp4")
