"""A format is one line: with it, all that reads or writes files knows the extension; without it, nothing does."""

from __future__ import annotations

import errno
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from unsnap.errors import InputError
from unsnap.io import claim_output, formats, load_scene, read_arrays, read_video, save_arrays, save_scene, save_video
from unsnap.io.files import scene_files
from unsnap.io.formats import FORMATS, Format
from unsnap.scene import Scene
from unsnap.training.clips import read_clips

VIDEO = torch.rand(4, 24, 32, generator=torch.Generator().manual_seed(0))


def read_toy(path: Path) -> dict[str, np.ndarray]:
    return {name: np.array(values, np.float32) for name, values in json.loads(path.read_text()).items()}


def write_toy(path: Path, arrays: dict[str, np.ndarray]) -> None:
    path.write_text(json.dumps({name: array.tolist() for name, array in arrays.items()}))
    if any(array.shape == (99, 99) for array in arrays.values()):
        raise OSError(errno.EFBIG, "too large for a toy")


def read_digits(path: Path) -> np.ndarray:
    return np.array([[int(digit) for digit in line] for line in path.read_text().split()], np.uint8)


TOY = Format((".toy",), read_arrays=read_toy, write_arrays=write_toy)
PICTURE = Format((".digits",), read_frame=read_digits)


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "FORMATS", (TOY, PICTURE, *FORMATS))


@pytest.mark.usefixtures("toy")
def test_one_line_is_enough(tmp_path: Path) -> None:
    masks = (VIDEO > 0.5).float()
    scene = Scene((masks * VIDEO).sum(0, keepdim=True), masks, VIDEO[None])
    path = save_scene(tmp_path / "scenes/scene.toy", scene)
    torch.testing.assert_close(load_scene(path).measurement, scene.measurement, rtol=0, atol=0)
    assert scene_files([tmp_path / "scenes"]) == [path], "what bench finds in a folder"
    clip = save_video(tmp_path / "clips/clip.TOY", VIDEO)
    torch.testing.assert_close(read_video(clip, max_frames=3), VIDEO[:3])
    clips = read_clips(tmp_path / "clips")
    assert (clips.names, clips.skipped) == (["clip.TOY"], {})
    claim_output(tmp_path / "new.toy")
    with pytest.raises(InputError, match=r"known are \.toy, \.mat"):
        claim_output(tmp_path / "new.xyz")
    with pytest.raises(InputError, match=r"use one of \.toy, \.mat"):
        save_arrays(tmp_path / "new.xyz", a=np.eye(2))
    (tmp_path / "new.xyz").write_text("x")
    with pytest.raises(InputError, match=r"known are \.toy, \.digits, \.mat"):
        read_arrays(tmp_path / "new.xyz")


@pytest.mark.usefixtures("toy")
def test_a_format_of_single_frames(tmp_path: Path) -> None:
    for k in range(3):
        (tmp_path / f"{k}.digits").write_text("0123456789012345\n" * 16)
    assert read_arrays(tmp_path)["array"].shape == (3, 16, 16)
    assert read_arrays(tmp_path / "0.digits")["array"].shape == (1, 16, 16)
    assert read_clips(tmp_path).names == ["."]
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"neither frames \(\.digits, \.tif"):
        read_arrays(tmp_path / "empty")


@pytest.mark.usefixtures("toy")
def test_a_writer_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a\.toy cannot be written, the file would be larger"):
        save_arrays(tmp_path / "a.toy", wave=np.ones((99, 99)))
    assert list(tmp_path.iterdir()) == []


def test_without_its_line_nobody_knows_it(tmp_path: Path) -> None:
    write_toy(tmp_path / "clip.toy", {"video": VIDEO.numpy()})
    assert scene_files([tmp_path]) == [tmp_path]
    for use in (load_scene, read_video, claim_output):
        with pytest.raises(InputError, match=r"unknown extension '\.toy'"):
            use(tmp_path / "clip.toy")
    with pytest.raises(InputError, match="nothing in it is a video"):
        read_clips(tmp_path)


def test_every_extension_belongs_to_one_format() -> None:
    every = Counter(suffix for kind in FORMATS for suffix in kind.suffixes)
    assert set(every.values()) == {1}
    assert all(suffix == suffix.lower() and (suffix.startswith(".") or not suffix) for suffix in every)
    assert all(kind.is_readable or kind.takes_video for kind in FORMATS), "a line that can do something"
