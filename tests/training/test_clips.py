"""Videos of every kind become crops in [0, 1]; those that cannot are named."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from laws import seeded, uniform
from unsnap.errors import InputError
from unsnap.io import save_video
from unsnap.training import clips as module
from unsnap.training.clips import Clips, bounce, read_clips, rendered_clips
from unsnap.training.validate import FRAMES, coded_views

VIDEO = uniform(6, 20, 24, dtype=torch.float32)


def colour_frames(folder: Path) -> None:
    folder.mkdir(parents=True)
    for k in range(4):
        Image.fromarray(np.full((18, 20, 3), (255, 0, 0), np.uint8)).save(folder / f"{k}.png")


def test_every_format(tmp_path: Path) -> None:
    for name in ("a.mp4", "b.gif", "c.npz", "d.npy", "deep/e.mat", "deep/f.tif", "frames/"):
        save_video(tmp_path / name if name != "frames/" else f"{tmp_path}/frames/", VIDEO)
    colour_frames(tmp_path / "deep" / "red")
    (tmp_path / "notes.txt").write_text("not a video")
    Image.fromarray(np.zeros((9, 9), np.uint8)).save(tmp_path / "poster.png")
    clips = read_clips(tmp_path)
    assert not clips.skipped
    assert sorted(clips.names) == ["a.mp4", "b.gif", "c.npz", "d.npy", "deep/e.mat", "deep/f.tif", "deep/red", "frames"]
    by_name = dict(zip(clips.names, clips.videos, strict=True))
    exact = (VIDEO * 255).round().to(torch.uint8)
    for name in ("b.gif", "c.npz", "d.npy", "deep/e.mat", "deep/f.tif", "frames"):
        assert torch.equal(by_name[name], exact), name
    assert float((by_name["a.mp4"].float() - exact.float()).abs().mean()) < 12
    assert set(by_name["deep/red"].unique().tolist()) <= {76}, "red is this grey"
    crops = clips.draw(40, 4, 16, seeded())
    assert crops.shape == (40, 4, 16, 16)


def test_a_folder_of_frames_alone(tmp_path: Path) -> None:
    colour_frames(tmp_path / "red")
    assert read_clips(tmp_path / "red").names == ["."]


def test_colour_video(tmp_path: Path) -> None:
    import av

    with av.open(str(tmp_path / "colour.mp4"), "w") as file:
        stream = file.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt = 32, 32, "yuv420p"
        for _ in range(4):
            frame = av.VideoFrame.from_ndarray(np.full((32, 32, 3), (0, 255, 0), np.uint8), format="rgb24")
            file.mux(stream.encode(frame))
        file.mux(stream.encode())
    (video,) = read_clips(tmp_path).videos
    assert abs(float(video.float().mean()) - 150) < 12, "green is this grey"


def test_what_cannot_be_used_is_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "good.npz", frames=np.zeros((4, 16, 16), np.uint8))
    np.savez(tmp_path / "short.npz", frames=np.zeros((1, 16, 16), np.uint8))
    np.savez(tmp_path / "small.npz", frames=np.zeros((4, 15, 40), np.uint8))
    np.savez(tmp_path / "nan.npz", frames=np.full((4, 16, 16), np.nan))
    (tmp_path / "broken.mp4").write_bytes(b"\0\0\0\x18ftypmp42" + b"\xff" * 300)
    (tmp_path / "empty.gif").write_bytes(b"")
    told: list[tuple[int, int]] = []
    clips = read_clips(tmp_path, progress=lambda k, n: told.append((k, n)))
    assert clips.names == ["good.npz"]
    names = {Path(path).name: reason for path, reason in clips.skipped.items()}
    assert set(names) == {"short.npz", "small.npz", "nan.npz", "broken.mp4", "empty.gif"}
    assert "2 frames of 16 × 16" in names["short.npz"]
    assert all(reason.count(". ") == 0 for reason in names.values()), "one sentence each"
    assert told == [(k, 6) for k in range(6)]


@pytest.mark.parametrize("content", ["missing", "empty", "hopeless"])
def test_a_folder_without_a_video(tmp_path: Path, content: str) -> None:
    folder = tmp_path / "clips"
    if content != "missing":
        folder.mkdir()
    if content == "hopeless":
        (folder / "bad.gif").write_bytes(b"GIF89a")
    words = {"missing": "is not a folder", "empty": "nothing in it is a video", "hopeless": "bad.gif"}[content]
    with pytest.raises(InputError, match=words) as caught:
        read_clips(folder)
    assert str(folder) in str(caught.value)


def test_large_videos_are_reduced_and_memory_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    video = uniform(2, 520, 1100, dtype=torch.float32)
    np.savez(tmp_path / "a.npz", frames=(video * 255).numpy().astype(np.uint8))
    np.savez(tmp_path / "b.npz", frames=(video * 255).numpy().astype(np.uint8))
    first, second = read_clips(tmp_path).videos
    assert first.shape == second.shape == (2, 260, 550)
    monkeypatch.setattr(module, "left", lambda: 3 * first.nbytes)
    clips = read_clips(tmp_path)
    assert clips.names == ["a.npz"]
    assert "half of the memory" in clips.skipped[str(tmp_path / "b.npz")]


def test_huge_frames_mean_fewer_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_video(tmp_path / "a.gif", VIDEO)
    monkeypatch.setattr(module, "_MAX_PIXELS", 3 * 20 * 24)
    assert len(read_clips(tmp_path).videos[0]) == 3


@pytest.mark.parametrize("shape", [(2, 16, 16), (3, 20, 90), (40, 70, 33)])
@pytest.mark.parametrize(("frames", "size"), [(1, 8), (8, 32), (24, 16)])
def test_crops_of_any_video(shape: tuple[int, int, int], frames: int, size: int) -> None:
    clips = Clips([(uniform(*shape) * 255).to(torch.uint8)], ["noise"])
    crops = clips.draw(30, frames, size, seeded())
    assert crops.shape == (30, frames, size, size)
    assert crops.dtype == torch.float32
    assert float(crops.min()) >= 0
    assert float(crops.max()) <= 1


def test_augmentation_is_what_it_says() -> None:
    """A clip whose pixels tell time, row and column: crops are parts of it, turned, mirrored, strided, dimmed."""
    t, y, x = torch.meshgrid(torch.arange(12), torch.arange(8), torch.arange(8), indexing="ij")
    clips = Clips([(100 + 10 * t + (y + x) % 2).to(torch.uint8)], ["ramp"])
    rising = falling = strided = dimmed = 0
    for crop in clips.draw(200, 3, 4, seeded()) * 255:
        steps = crop.mean((-2, -1)).diff()
        rising, falling = rising + int(steps[0] > 0), falling + int(steps[0] < 0)
        ratio = float(steps[0].abs() / crop.mean((-2, -1)).min())
        strided += int(ratio > 0.13)
        dimmed += int(crop.min() < 99)
        assert abs(float(steps[0] - steps[1])) < 1e-3
    assert min(rising, falling) > 60
    assert 20 < strided < 180
    assert 20 < dimmed < 180


def test_longer_clips_are_drawn_more_often() -> None:
    clips = Clips([torch.zeros(2, 8, 8, dtype=torch.uint8), torch.full((18, 8, 8), 255, dtype=torch.uint8)], ["a", "b"])
    bright = float((clips.draw(400, 2, 8, seeded()).amax((1, 2, 3)) > 0).float().mean())
    assert abs(bright - 0.9) < 0.06


@pytest.mark.parametrize(("count", "held"), [(1, 1), (3, 1), (10, 1), (25, 2)])
def test_held_out_clips(count: int, held: int) -> None:
    names = [str(k) for k in range(count)]
    kept, out = Clips([torch.zeros(2, 8, 8, dtype=torch.uint8)] * count, names, {"bad": "why"}).split()
    assert len(out.names) == held
    assert set(kept.names) | set(out.names) == set(names)
    assert count == 1 or not set(kept.names) & set(out.names)
    assert kept.skipped == {"bad": "why"}


def test_views_to_validate_on() -> None:
    short = torch.tensor([0, 50, 100], dtype=torch.uint8)[:, None, None].expand(3, 20, 30)
    clips = Clips([short, torch.full((30, 64, 50), 255, dtype=torch.uint8)], ["short", "white"])
    views = coded_views(clips, 32)
    assert views.truth.shape == (2, FRAMES, 32, 32)
    torch.testing.assert_close(views.truth[0, :, 5, 5] * 255, torch.tensor([0.0, 50, 100, 50, 0, 50, 100, 50]))
    assert torch.equal(views.y, views.phi.A(views.truth))
    assert coded_views(clips, 96).truth.shape[-1] == 50, "no larger than the largest clip"
    assert torch.equal(coded_views(clips, 32).phi.masks, views.phi.masks)


@pytest.mark.parametrize("length", [1, 2, 5])
def test_bounce_stays_inside_and_is_continuous(length: int) -> None:
    path = [bounce(t, length) for t in range(-9, 20)]
    assert set(path) == set(range(length))
    assert all(abs(a - b) <= 1 for a, b in itertools.pairwise(path))


def test_rendered_clips_move() -> None:
    clips = rendered_clips(2, 4, 32)
    assert [v.shape for v in clips.videos] == [(4, 32, 32)] * 2
    assert not torch.equal(clips.videos[0], clips.videos[1])
    assert all(float(v.float().diff(dim=0).abs().mean()) > 0.5 for v in clips.videos)


def test_stacks_of_tiff_are_videos_and_pages_are_frames(tmp_path: Path) -> None:
    for k in range(3):
        save_video(tmp_path / "stacks" / f"{k}.tif", VIDEO)
        save_video(tmp_path / "pages" / f"{k}.tif", VIDEO[k : k + 1])
    clips = read_clips(tmp_path)
    assert sorted(clips.names) == ["pages", "stacks/0.tif", "stacks/1.tif", "stacks/2.tif"]
    assert {len(video) for name, video in zip(clips.names, clips.videos, strict=True) if name != "pages"} == {6}
    assert not clips.skipped


def test_a_long_video_whose_end_is_not_used_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_FRAMES", 6)
    save_video(tmp_path / "six.npz", VIDEO)
    save_video(tmp_path / "seven.npz", torch.cat([VIDEO, VIDEO[:1]]))
    clips = read_clips(tmp_path)
    assert [len(video) for video in clips.videos] == [6, 6]
    assert clips.shortened == ["seven.npz"]


@pytest.mark.parametrize("length", [200, 32, 31])
def test_of_a_single_clip_the_last_frames_are_held_out(length: int) -> None:
    video = torch.arange(length, dtype=torch.uint8)[:, None, None].expand(-1, 16, 16)
    kept, held = Clips([video], ["one"]).split()
    if length < 32:
        assert kept.videos[0] is held.videos[0] is video
    else:
        assert torch.equal(torch.cat([kept.videos[0], held.videos[0]]), video)
        assert len(held.videos[0]) == (20 if length == 200 else 8)
