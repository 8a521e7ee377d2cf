"""Pictures show the right pixels in the right place, for any shape, and are written completely or not at all."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor

from bench.results import RESULTS
from unsnap.bench.anchors import anchors
from unsnap.bench.pictures import convergence_plot, psnr_time_plot, side_by_side
from unsnap.bench.sheet import contact_sheet
from unsnap.errors import InputError


def read(path: Path) -> npt.NDArray[Any]:
    from PIL import Image

    with Image.open(path) as image:
        return np.asarray(image.convert("RGB")).astype(int)


def ramp(frames: int = 8, height: int = 256, width: int = 256) -> Tensor:
    """Frame t is a horizontal ramp, brighter from frame to frame."""
    across = torch.linspace(0, 0.5, width).expand(frames, height, width)
    return across + torch.linspace(0, 0.5, frames)[:, None, None]


def holds(sheet: npt.NDArray[Any], frame: Tensor) -> bool:
    """Is the frame somewhere on the sheet, up to rounding? (Frames differ by 18 grey levels; one row tells.)"""
    row = np.rint(frame[0].numpy() * 255)
    windows = np.lib.stride_tricks.sliding_window_view(sheet[::40, :, 0], len(row), axis=1)
    return bool((abs(windows - row).max(-1) <= 3).any())


def test_sheet_shows_the_chosen_frames_pixel_by_pixel(tmp_path: Path) -> None:
    video = ramp()
    sheet = read(contact_sheet({"a": video}, tmp_path / "a.png", frames=[1, 6]))
    assert [holds(sheet, video[t]) for t in range(8)] == [t in (1, 6) for t in range(8)]
    everything = read(contact_sheet({"a": video}, tmp_path / "a.png"))
    assert [holds(everything, video[t]) for t in range(8)] == [t in (0, 2, 5, 7) for t in range(8)]


def test_sheet_has_room_for_truth_snapshot_and_errors(tmp_path: Path) -> None:
    video, snapshot = ramp(), ramp()[0] * 2
    plain = read(contact_sheet({"a": video}, tmp_path / "a.png"))
    assert (plain == plain[..., :1]).all()  # no colour without error maps
    full = read(
        contact_sheet({"a": video}, tmp_path / "b.png", truth=video * 0.9, measurement=snapshot, errors=True),
    )
    assert full.shape[0] >= plain.shape[0] + 256  # a row for the truth
    assert full.shape[1] >= plain.shape[1] + 4 * 256  # a column of errors for every frame
    beside = read(contact_sheet({"a": video}, tmp_path / "c.png", measurement=snapshot))
    assert beside.shape[1] >= plain.shape[1] + 256  # without errors, a column for the snapshot
    assert holds(beside, snapshot)
    assert (full.max(-1) - full.min(-1)).max() > 100  # error maps are coloured
    assert holds(full, ramp()[0] * 2)  # the snapshot spans its own range


@pytest.mark.parametrize(("height", "width"), [(40, 200), (200, 12), (3, 5), (90, 300)])
def test_any_shape_is_small_and_unclipped(tmp_path: Path, height: int, width: int) -> None:
    generator = torch.Generator().manual_seed(0)
    truth = torch.rand(8, height, width, generator=generator)
    video = (truth + 0.1 * torch.randn(truth.shape, generator=generator)).clamp(0, 1)
    path = contact_sheet(
        {"gap-tv": video}, tmp_path / "a.png", truth=truth, measurement=truth.sum(0), errors=True, frames=[0, 3, 5, 7]
    )
    assert path.stat().st_size < 2_000_000  # this is noise, the worst there is
    sheet = read(path)
    for edge in (sheet[:2], sheet[:, :4], sheet[-2:], sheet[:, -2:]):
        assert (edge >= 250).all()  # nothing touches the edge


def test_a_natural_sheet_is_under_a_megabyte(tmp_path: Path) -> None:
    from unsnap.simulate import render

    video = render(8, 256, 256, supersample=1)
    rough = video + 0.02 * torch.randn(video.shape, generator=torch.Generator().manual_seed(0))
    path = contact_sheet({"a": rough, "b": rough}, tmp_path / "a.png", truth=video, measurement=video.sum(0))
    assert path.stat().st_size < 1_000_000


def test_a_sheet_in_colour_shows_its_colours(tmp_path: Path) -> None:
    """The first frame is red, the second blue; errors are means over the colours."""
    red, blue = torch.tensor([1.0, 0.2, 0.0, 0.4, 0.0, 0.8]).reshape(3, 2, 1, 1).unbind(1)
    video = torch.stack([red, blue], 1).expand(3, 2, 64, 64).flatten(0, 1)
    look: dict[str, Any] = {"measurement": red.expand(3, 64, 64), "errors": True, "colour": True}
    sheet = read(contact_sheet({"a": video}, tmp_path / "a.png", truth=video / 2, **look))
    for colour in ((255, 0, 0), (51, 102, 204), (128, 0, 0), (26, 51, 102)):
        assert (abs(sheet - colour).max(-1) <= 1).sum() > 64**2


def test_a_diverged_video_is_drawn_too(tmp_path: Path) -> None:
    video = ramp(2, 16, 16)
    broken = torch.full_like(video, math.nan)
    assert contact_sheet({"a": broken}, tmp_path / "a.png", truth=video, errors=True).exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"videos": {}}, "at least one video"),
        ({"videos": {"a": ramp(2, 8, 8), "b": ramp(2, 8, 9)}}, r"one shape .* for b"),
        ({"videos": {"a": ramp(2, 8, 8)[0]}}, "one shape"),
        ({"videos": {"a": ramp(2, 8, 8)}, "frames": [2]}, "frames must be numbers from 0 to 1"),
        ({"videos": {"a": ramp(2, 8, 8)}, "measurement": torch.ones(2, 8, 8)}, "measurement must be"),
        ({"videos": {"a": ramp(2, 8, 8)}, "errors": True}, "errors needs the truth"),
    ],
)
def test_wrong_arguments_are_one_sentence(tmp_path: Path, arguments: dict[str, Any], message: str) -> None:
    videos = arguments.pop("videos")
    with pytest.raises(InputError, match=message):
        contact_sheet(videos, tmp_path / "a.png", **arguments)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("count", [1, 2, 4, 5, 9])
def test_film_shows_every_video_untouched(count: int) -> None:
    videos = {f"video {k}": torch.rand(3, 13, 17, generator=torch.Generator().manual_seed(k)) for k in range(count)}
    film = side_by_side(videos)
    assert film.shape[0] == 3
    assert film.shape[1] % 2 == film.shape[2] % 2 == 0
    assert 0 <= film.min() <= film.max() <= 1
    patches = film.unfold(1, 13, 1).unfold(2, 17, 1)
    for video in videos.values():
        assert ((patches - video[:, None, None]).abs().amax((0, -2, -1)) == 0).sum() == 1


def test_film_captions_differ_and_fit() -> None:
    video = torch.zeros(1, 32, 64)
    short, long = (side_by_side({name: video})[0, :14, :64] for name in ("a", "a name far too long for its pane"))
    assert not torch.equal(short, long)
    for caption in (short, long):
        assert caption.min() < 0.6  # something is written
        assert (caption[:, [0, -1]] == 1).all()  # and it is not cut off


def test_psnr_time_plot_survives_every_kind_of_result(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    blank = read(psnr_time_plot([replace(RESULTS[0], psnr=None)], path))
    one = read(psnr_time_plot(RESULTS[:1], path))
    diverged = read(psnr_time_plot([*RESULTS[:1], replace(RESULTS[1], psnr=math.nan)], path))
    assert (abs(one - blank).max(), abs(one - diverged).max()) == (pytest.approx(255, abs=100), 0)
    crowded = [replace(RESULTS[0], method=f"method-{k}", psnr=30 + 0.01 * k) for k in range(9)]
    assert read(psnr_time_plot(crowded, path)).shape == one.shape


def test_published_figures_are_drawn_beside_the_fields_own_scenes_only(tmp_path: Path) -> None:
    assert anchors(["drop8_cacti", "traffic_cacti"])["BIRNAT"] == pytest.approx((42.28 + 29.33) / 2, abs=0.01)
    assert anchors(["drop8", "mine"]) == anchors([]) == anchors(["drop8", "drop9"]) == {}
    known, foreign = (
        read(psnr_time_plot([replace(RESULTS[0], scene=name)], tmp_path / "a.png")) for name in ("drop", "mine")
    )
    assert not np.array_equal(known, foreign)


def test_convergence_plot_takes_batches_zeros_and_nan(tmp_path: Path) -> None:
    history = torch.logspace(0, -3, 20)[:, None] * torch.tensor([1.0, 0.5])
    bad = torch.tensor([1.0, 0.0, math.nan, math.inf])
    path = tmp_path / "a.png"
    assert not np.array_equal(
        read(convergence_plot({"a": history, "b": bad}, path)), read(convergence_plot({"a": history[:, 0]}, path))
    )
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.png"]
