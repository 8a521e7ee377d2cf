"""What hands expect of reconstruct: names, regions, ranges, looks, several files; and a bar that tells the truth."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import torch

from campaign.test_campaign import Here
from cli.contract import stored
from unsnap.cli.calibrate import _read
from unsnap.cli.common import Reading, read_checked
from unsnap.cli.film_options import Film
from unsnap.io import load_scene
from unsnap.methods import METHODS

FAST = ("-m", "gap-tv3d", "--iterations", 5, "--tol", 1, "-q")


@pytest.fixture
def folder(scene: Path, tmp_path: Path, arrays: dict[str, np.ndarray]) -> Path:
    """Two captures without masks, the masks beside them, and a broken file."""
    place = tmp_path / "captures"
    place.mkdir()
    for name in ("a", "b"):
        scipy.io.savemat(place / f"{name}.mat", {"meas": arrays["meas"]})
    scipy.io.savemat(place / "mask.mat", {"mask": arrays["mask"]})
    (place / "broken.mat").write_bytes(b"MATLAB 5.0")
    return place


def video(path: object) -> np.ndarray:
    return stored(str(path))["video"]


def test_a_folder_is_reconstructed_file_by_file_and_a_bad_one_does_not_stop_it(unsnap: Callable, folder: Path) -> None:
    arguments = (folder, "--masks", folder / "mask.mat", "-o", "out/", "--format", "npz", *FAST)
    run = unsnap("reconstruct", *arguments, "--json")
    assert run.code == 2
    assert "broken.mat" in run.err
    assert {Path(entry["file"]).stem: "error" in entry for entry in run.json()} == {
        "a": False,
        "b": False,
        "broken": True,
    }
    assert sorted(p.name for p in Path("out").iterdir()) == ["a.npz", "b.npz"]
    assert video("out/a.npz").shape == (8, 40, 48)
    again = unsnap("reconstruct", *arguments)
    assert again.code == 2
    assert "--force" in again.err


def test_a_file_that_may_not_be_read_does_not_stop_the_others(
    unsnap: Callable, scene: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked, asked = tmp_path / "locked.mat", os.access
    locked.write_bytes(scene.read_bytes())
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != locked.name and asked(path, mode))
    run = unsnap("reconstruct", locked, scene, "-o", "out/", "--json", *FAST)
    assert run.code == 2
    assert "chmod +r" in run.err
    assert ["error" in entry for entry in run.json()] == [True, False]


def test_several_files_need_a_folder_and_names_of_their_own(unsnap: Callable, scene: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    twin = tmp_path / "other" / "scene.mat"
    twin.write_bytes(scene.read_bytes())
    assert "give one with -o FOLDER/" in unsnap("reconstruct", scene, twin, *FAST).err
    assert "same name" in unsnap("reconstruct", scene, twin, "-o", "out/", *FAST).err
    assert not Path("out").exists()
    run = unsnap("reconstruct", scene, scene, "-o", "out/", *FAST)
    assert run.code == 0, run.err
    assert "of the first 1 of 2 snapshots" in " ".join(run.out.split())
    assert [p.name for p in Path("out").iterdir()] == ["scene.mp4"]
    for options in ((twin,), ("--workers", 1)):
        run = unsnap("reconstruct", scene, *options, "-o", "film.mp4", *FAST)
        assert run.code == 2
        assert "film.mp4 is the name of a video" in run.err
    assert not Path("film.mp4").exists()


def test_region_and_snapshots_are_those_of_the_whole(unsnap: Callable, scene: Path) -> None:
    run = unsnap("reconstruct", scene, "--roi", "8:24,:16", "--snapshots", "1:2", "-o", "v.npz", "--json", *FAST)
    assert run.code == 0, run.err
    assert (run.json()["snapshots"], run.json()["height"], run.json()["width"]) == (1, 16, 16)
    assert run.json()["psnr"] is None, "truth is known of the first snapshot only"
    part = load_scene(scene, roi=(slice(8, 24), slice(0, 16)), snapshots=slice(1, 2))
    whole = load_scene(scene)
    assert torch.equal(part.measurement[0], whole.measurement[1, 8:24, :16])
    for roi, frames in (("0:40,0:48", "0:8"), ("39:,47:", "7:")):
        assert unsnap("reconstruct", scene, "--roi", roi, "--frames", frames, "-o", "v.npz", "--force", *FAST).code == 0


@pytest.mark.parametrize(
    "wrong",
    [("--roi", "8:24"), ("--roi", "40:50,:"), ("--roi", "9:9,:"), ("--roi", "8:41,:"), ("--roi", ":,:49"),
     ("--snapshots", "0"), ("--snapshots", "2:"), ("--frames", "8:"), ("--frames", "0:9"), ("--frames", "9"),
     ("--contrast", "0.5,0.5"), ("--motion", "1,0,4"), ("--motion", "x"), ("--format", "doc"),
     ("--saturated", "maybe"), ("--bad-pixels", "40,0"), ("--dark", "none.tif"), ("--measurement-key", "shots")],
    ids=" ".join,
)  # fmt: skip
def test_what_cannot_be_meant_is_one_sentence(unsnap: Callable, scene: Path, wrong: tuple[str, str]) -> None:
    files = (scene, scene.parent / "x.mat") if wrong[0] == "--format" else (scene,)
    run = unsnap("reconstruct", *files, *wrong, "-o", "out.npz" if len(files) == 1 else "out", *FAST)
    assert run.code == 2
    assert wrong[0] in run.err or wrong[1] in run.err
    assert len(run.err.splitlines()) == 1
    assert not list(Path().glob("out*"))


def test_frames_that_are_not_there_are_refused_before_the_work(
    unsnap: Callable, scene: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unsnap.cli.work.run_with_bar", lambda *_: pytest.fail("it was reconstructed"))
    for options in ((), ("--tile", "32")):
        run = unsnap("reconstruct", scene, "--frames", "100:110", "-o", "out.npz", *options, *FAST)
        assert run.code == 2
        assert "some of the 8 frames" in run.err
        assert "tiles of" not in run.err


def test_a_list_of_pixels_may_be_longer_than_a_path(
    unsnap: Callable, scene: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unsnap.cli.many.processes", lambda work, count: nullcontext(Here(work)))
    pixels = ";".join(f"{y},{x}" for y in range(10) for x in range(10))
    for options in (("-o", "out.npz", "--force"), ("-o", "many", "--workers", 1)):
        run = unsnap("reconstruct", scene, "--bad-pixels", pixels, *options, *FAST)
        assert run.code == 0, run.err


def test_a_coded_white_is_developed_and_cut_like_the_snapshots(scene: Path, arrays: dict[str, Any]) -> None:
    total = arrays["mask"].sum(-1).astype(float)
    folder = scene.parent
    np.save(folder / "dark.npy", np.full(total.shape, 50.0))
    np.save(folder / "white.npy", 255 * total + 57)
    reading = Reading(dark=folder / "dark.npy", offset=7.0, roi="8:24,:16")
    found = _read(folder / "white.npy", read_checked(scene, Reading(roi="8:24,:16"), True), reading)
    np.testing.assert_allclose(found, total[8:24, :16], rtol=1e-5)


def test_one_mask_that_does_not_fit_is_perhaps_one_that_moves(unsnap: Callable, scene: Path) -> None:
    np.save("plate.npy", np.ones((60, 48)))
    run = unsnap("reconstruct", scene, "--masks", "plate.npy", "-o", "out.npz", *FAST)
    assert run.code == 2
    assert "--motion" in run.err


def test_raw_options_reach_the_scene_and_inspect_tells(unsnap: Callable, scene: Path, arrays: dict[str, Any]) -> None:
    dark = np.full((40, 48), 50.0)
    scipy.io.savemat("dark.mat", {"dark": dark})
    scipy.io.savemat("raw.mat", {**arrays, "meas": arrays["meas"] + dark[..., None]})
    options = ("--dark", "dark.mat", "--bad-pixels", "0,0;1,1")
    raw = unsnap("reconstruct", "raw.mat", "--dark", "dark.mat", "--json", *FAST).json()
    assert raw["psnr"] == pytest.approx(unsnap("reconstruct", scene, "--json", *FAST).json()["psnr"], abs=1e-3)
    notes = unsnap("inspect", "raw.mat", *options, "--json").json()["meta"]["notes"]
    assert any(note.startswith("left out 4 pixels") for note in notes)
    run = unsnap("reconstruct", "raw.mat", "--dark", "dark.mat", "-o", "dark.mat", "--force", *FAST)
    assert run.code == 2, "an input is never replaced"
    assert "dark.mat" in run.err


def test_looks_of_the_film() -> None:
    video = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    video[1] /= 2
    even = Film(equalise=True).of(video).mean((-2, -1))
    torch.testing.assert_close(even, even[:1].expand(6))
    stretched = Film(contrast="0.25,0.75").of(video)
    torch.testing.assert_close(stretched, (video.flatten(0, 1) - 0.25) * 2)
    dull = Film(contrast="auto").of(0.4 + 0.1 * video)
    assert dull.min() < 0.01
    assert dull.max() > 0.99
    assert torch.equal(Film(frames="2:4").of(video), video.flatten(0, 1)[2:4])


@pytest.mark.parametrize("method", ["gap-wnnm", "de-gap"])
def test_the_bar_moves_while_a_start_runs(scene: Path, method: str) -> None:
    """Something is told of every part of the work, in order, and never that there is less to do than there is."""
    loaded, seen = load_scene(scene), []
    watch = {"callback": lambda k, x, r: seen.append((k, x.shape, r.shape))}
    METHODS[method](loaded.measurement, loaded.operator, iterations=2, **watch)
    counts = [k for k, _, _ in seen]
    assert counts == sorted(set(counts))
    assert counts[0] <= -8
    assert 1 in counts
    assert {shape for _, *shapes in seen for shape in [tuple(map(tuple, shapes))]} == {((2, 4, 40, 48), (2,))}


def test_one_array_is_not_the_measurement_and_the_masks(unsnap: Callable) -> None:
    unsnap("simulate", "-o", "c.mat", "--size", "20x20", "-T", "4", "-q")
    for words in (["--measurement-key", "mask"], ["--measurement-key", "mask", "--masks-key", "mask"]):
        run = unsnap("reconstruct", "c.mat", "-m", "gap-tv", "-o", "v.npz", *words)
        assert (run.code, run.err.count("Error:")) == (2, 1), run.err
        assert not Path("v.npz").exists()
