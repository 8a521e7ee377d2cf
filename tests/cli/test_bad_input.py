"""Every bad input is one sentence on stderr, exit code 2, no traceback, nothing written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.io


def _nan(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    meas = arrays["meas"].copy()
    meas[3, 5, 0] = np.nan
    return {**arrays, "meas": meas}


# name -> (what is wrong with the arrays, words the sentence must contain)
WRONG_ARRAYS: dict[str, tuple[Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]], list[str]]] = {
    "nan": (_nan, ["meas", "NaN"]),
    "infinite masks": (lambda a: {**a, "mask": np.where(a["mask"] > 0, np.inf, 0.0)}, ["mask", "nf"]),
    "zero masks": (lambda a: {**a, "mask": np.zeros_like(a["mask"])}, ["mask", "zero"]),
    "complex": (lambda a: {**a, "meas": a["meas"] + 1j}, ["meas", "complex"]),
    "no masks": (lambda a: {k: v for k, v in a.items() if k != "mask"}, ["mask", "--masks"]),
    "no measurement": (lambda a: {k: v for k, v in a.items() if k != "meas"}, ["meas", "simulate"]),
    "transposed masks": (lambda a: {**a, "mask": a["mask"].transpose(1, 0, 2)}, ["mask", "--transpose-masks"]),
    "other size": (lambda a: {**a, "mask": a["mask"][:-3]}, ["mask", "37"]),
    "mismatched T": (lambda a: {**a, "orig": a["orig"][..., :3]}, ["truth", "3 frames"]),
    "empty": (lambda a: {**a, "meas": np.zeros((0, 0))}, ["meas", "empty"]),
    "strangers": (lambda a: {"foo": np.ones((3, 3)), "bar": np.ones(7)}, ["foo", "mask"]),
}


@pytest.mark.parametrize("name", WRONG_ARRAYS)
@pytest.mark.parametrize("command", ["reconstruct", "inspect"])
def test_wrong_arrays(unsnap: Callable, tmp_path: Path, arrays: dict[str, np.ndarray], name: str, command: str) -> None:
    spoil, words = WRONG_ARRAYS[name]
    scipy.io.savemat(tmp_path / "bad.mat", spoil(arrays))
    run = unsnap(command, tmp_path / "bad.mat")
    said = run.err + run.out
    assert run.code == 2, said
    assert "bad.mat" in said
    flat = " ".join(said.split())
    assert all(word in flat for word in words), flat
    assert "Traceback" not in said
    assert [p.name for p in tmp_path.iterdir()] == ["bad.mat"]


WRONG_FILES: dict[str, tuple[str, bytes, list[str]]] = {
    "empty file": ("bad.mat", b"", ["bad.mat", "empty"]),
    "not what it says": ("bad.mat", b"hello, this is not a MATLAB file at all" * 9, ["bad.mat"]),
    "broken zip": ("bad.npz", b"PK\x03\x04" + b"\0" * 99, ["bad.npz"]),
    "broken hdf5": ("bad.h5", b"\x89HDF\r\n\x1a\n" + b"\xff" * 99, ["bad.h5"]),
    "broken tiff": ("bad.tif", b"II*\0\xff\xff\xff\xff", ["bad.tif"]),
    "unknown extension": ("bad.xyz", b"1 2 3", ["bad.xyz", ".mat"]),
}


@pytest.mark.parametrize("name", WRONG_FILES)
@pytest.mark.parametrize("command", [["reconstruct"], ["inspect"], ["compare"], ["bench"], ["simulate", "-o", "s.npz"]])
def test_wrong_files(unsnap: Callable, tmp_path: Path, name: str, command: list[str]) -> None:
    filename, content, words = WRONG_FILES[name]
    (tmp_path / filename).write_bytes(content)
    run = unsnap(*command, tmp_path / filename)
    said = run.err + run.out
    assert run.code == 2, said
    assert all(word in said for word in words), said
    assert "Traceback" not in said
    assert [p.name for p in tmp_path.iterdir()] == [filename]


def test_a_truncated_file(unsnap: Callable, scene: Path, tmp_path: Path) -> None:
    scene.write_bytes(scene.read_bytes()[:-2000])
    run = unsnap("reconstruct", scene)
    assert run.code == 2
    assert "scene.mat" in run.err
    assert len(list(tmp_path.iterdir())) == 1


def test_a_missing_file_suggests_its_neighbour(unsnap: Callable, scene: Path) -> None:
    run = unsnap("reconstruct", scene.with_name("scena.mat"))
    assert run.code == 2
    assert "scene.mat" in run.err


@pytest.mark.parametrize("output", ["video.xyz", "scene.mat/video.mp4", "."])
def test_an_output_that_cannot_work_is_refused_before_the_work(
    unsnap: Callable, scene: Path, tmp_path: Path, output: str
) -> None:
    run = unsnap("reconstruct", scene, "-o", tmp_path / output)
    assert run.code == 2, run.err
    assert [p.name for p in tmp_path.iterdir()] == ["scene.mat"]


def test_a_full_disk_leaves_no_partial_output(
    unsnap: Callable, scene: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import errno

    import numpy

    def full(*args: object, **kwargs: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(numpy, "savez_compressed", full)
    monkeypatch.setattr(numpy, "savez", full)
    run = unsnap("reconstruct", scene, "-o", tmp_path / "v.npz")
    assert run.code == 2
    assert "disk is full" in run.err
    assert [p.name for p in tmp_path.iterdir()] == ["scene.mat"]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--method", "gap-tvv"], ["gap-tvv", "gap-tv"]),
        (["--iterations", "0"], ["iterations"]),
        (["--tol", "-1"], ["tol"]),
        (["--tol", "nan"], ["tol"]),
        (["--snapshots", "0"], ["snapshots"]),
        (["--scale", "-3"], ["scale"]),
        (["--time-axis", "9"], ["time"]),
    ],
)
def test_wrong_options(unsnap: Callable, scene: Path, tmp_path: Path, args: list[str], words: list[str]) -> None:
    run = unsnap("reconstruct", scene, *args)
    assert run.code == 2, run.err + run.out
    assert all(word in run.err for word in words), run.err
    assert [p.name for p in tmp_path.iterdir()] == ["scene.mat"]


def test_integers_and_bools_are_fine(unsnap: Callable, tmp_path: Path, arrays: dict[str, np.ndarray]) -> None:
    np.savez(
        tmp_path / "ok.npz",
        mask=arrays["mask"].transpose(2, 0, 1).astype(bool),
        meas=arrays["meas"].transpose(2, 0, 1).astype(np.int32),
        orig=arrays["orig"].transpose(2, 0, 1),
    )
    run = unsnap("reconstruct", tmp_path / "ok.npz", "--json")
    assert run.code == 0
    assert run.json()["psnr"] > 18
