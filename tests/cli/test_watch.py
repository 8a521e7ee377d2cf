"""Files that arrive slowly, damaged or under a name that is taken: none is lost without a word."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from unsnap.cli.watch import Arrivals

WATCH = ("watch", "incoming", "-o", "videos", "-m", "gap-tv", "--poll", "0.02", "--idle", "0.5", "--order", "oldest")


def test_a_copy_that_stalls_is_taken_when_it_goes_on(
    unsnap: Callable, scene: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = tmp_path / "incoming" / "slow.mat"
    slow.parent.mkdir()
    whole = scene.read_bytes()
    slow.write_bytes(whole[:3000])

    failed, note = threading.Event(), Arrivals.note

    def noted(self: Arrivals, file: Path, **facts: bool) -> None:
        note(self, file, **facts)
        failed.set()

    monkeypatch.setattr(Arrivals, "note", noted)

    def go_on() -> None:
        assert failed.wait(60)  # the watch has taken it for complete
        with slow.open("ab") as file:
            file.write(whole[3000:])

    thread = threading.Thread(target=go_on)
    thread.start()
    run = unsnap(*WATCH)
    thread.join()
    assert run.code == 0, run.err
    assert "cannot be read" in run.err
    assert (tmp_path / "videos" / "slow.mp4").exists()


def test_a_second_file_of_one_name_is_an_error(unsnap: Callable, scene: Path, tmp_path: Path) -> None:
    (tmp_path / "incoming").mkdir()
    shutil.copy(scene, tmp_path / "incoming" / "a.mat")
    time.sleep(0.02)
    (tmp_path / "incoming" / "a.npz").write_bytes(b"whatever it is")
    run = unsnap(*WATCH)
    assert run.code == 2
    assert "incoming/a.mat has given a video of the same name as incoming/a.npz would; rename one" in run.err
    assert unsnap(*WATCH).code == 0, "when it is started again, both have a video"


def test_few_iterations_are_for_those_that_follow(unsnap: Callable, scene: Path, tmp_path: Path) -> None:
    (tmp_path / "incoming").mkdir()
    shutil.copy(scene, tmp_path / "incoming" / "a.mat")
    few = [word if word != "gap-tv" else "gap-tv3d" for word in WATCH]
    run = unsnap(*few, "--iterations", "3", "--json")
    assert run.json()["iterations"] == 40
    shutil.rmtree(tmp_path / "videos")
    assert unsnap(*few, "--iterations", "3", "--cold", "--json").json()["iterations"] == 3


def test_pictures_are_taken_with_masks_and_named_without(
    unsnap: Callable, scene: Path, tmp_path: Path, arrays: dict[str, np.ndarray]
) -> None:
    """A name such as snapshot.npz makes no scene of the folder."""
    (tmp_path / "incoming").mkdir()
    shutil.copy(scene, tmp_path / "incoming" / "b.mat")
    np.savez(tmp_path / "incoming" / "snapshot.npz", meas=arrays["meas"][..., 0], mask=arrays["mask"])
    np.save(tmp_path / "incoming" / "c.npy", arrays["meas"][..., 0])
    run = unsnap(*WATCH)
    assert sorted(path.stem for path in (tmp_path / "videos").iterdir()) == ["b", "snapshot"]
    assert run.err.count("c.npy is left alone") == 1
    unsnap(*WATCH, "--masks", scene)
    assert sorted(path.stem for path in (tmp_path / "videos").iterdir()) == ["b", "c", "snapshot"]


def test_many_files_take_no_more_memory_than_one(unsnap: Callable, scene: Path, tmp_path: Path) -> None:
    (tmp_path / "incoming").mkdir()
    for k in range(6):
        shutil.copy(scene, tmp_path / "incoming" / f"{k}.mat")
    run = unsnap(*WATCH, "--memory", "1M")
    assert run.code == 0, run.err
    assert len(list((tmp_path / "videos").iterdir())) == 6


def test_what_follows_several_snapshots_is_one_video(
    unsnap: Callable, tmp_path: Path, arrays: dict[str, np.ndarray]
) -> None:
    (tmp_path / "incoming").mkdir()
    several = np.stack([arrays["meas"][..., 0]] * 3, -1)
    for name, meas in (("a", several), ("b", arrays["meas"][..., 0]), ("c", arrays["meas"][..., 0])):
        np.savez(tmp_path / "incoming" / f"{name}.npz", meas=meas, mask=arrays["mask"])
        time.sleep(0.02)
    few = [word if word != "gap-tv" else "gap-tv3d" for word in WATCH]
    run = unsnap(*few, "--iterations", "3", "--format", "npz", "--json")
    counts = [json.loads(line)["iterations"] for line in run.out.splitlines() if line.startswith("{")]
    assert counts == [40, 3, 3], run.err
    frames = arrays["mask"].shape[-1]
    shapes = [len(np.load(path)["video"]) for path in sorted((tmp_path / "videos").iterdir())]
    assert shapes == [3 * frames, frames, frames]
