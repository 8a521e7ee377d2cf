"""Files that arrive slowly, damaged or under a name that is taken: none is lost without a word."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

WATCH = ("watch", "incoming", "-o", "videos", "-m", "gap-tv", "--poll", "0.02", "--idle", "1.5", "--order", "oldest")


def test_a_copy_that_stalls_is_taken_when_it_goes_on(unsnap: Callable, scene: Path, tmp_path: Path) -> None:
    slow = tmp_path / "incoming" / "slow.mat"
    slow.parent.mkdir()
    whole = scene.read_bytes()
    slow.write_bytes(whole[:3000])

    def go_on() -> None:
        time.sleep(0.7)  # the watch has taken it for complete, and failed
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
