"""Colour and spectral captures through the commands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from unsnap.io import read_arrays, read_video


@pytest.mark.parametrize(
    ("kind", "film"), [("bayer:quad-gbrg", "v.gif"), ("rgb", "v.png"), ("dispersed:-1,0", "v.hdr")]
)
def test_simulated_and_reconstructed(unsnap: Callable, kind: str, film: str) -> None:
    frames = [] if "dispersed" in kind else ["-T", "4"]
    run = unsnap("simulate", "-o", "s.npz", "--kind", kind, "--size", "32x32", *frames, "--dead", "0.01", "-q")
    assert run.code == 0, run.err
    report = unsnap("inspect", "s.npz", "--json").json()
    assert not [f for f in report["findings"] if f["level"] == "fatal"]
    result = unsnap("reconstruct", "s.npz", "-m", "gap-tv3d", "-o", film, "--json", "-q").json()
    assert result["frames"] == (28 if "dispersed" in kind else 4)
    assert result["psnr"] > 15
    assert Path(film).stat().st_size > 0
    compared = unsnap("compare", "s.npz", "--methods", "gap-tv", "--iterations", 10, "--tol", 1, "-q")
    assert compared.code == 0, compared.err
    film = read_video("s-compare/side-by-side.gif", colour=True)
    coloured = float((film.amax(0) - film.amin(0)).max()) > 0.2
    assert coloured == ("dispersed" not in kind)


def test_spectra_of_points_and_what_is_refused(unsnap: Callable) -> None:
    unsnap("simulate", "-o", "s.npz", "--kind", "dispersed", "--size", "20x20", "-q")
    command = ("reconstruct", "s.npz", "-m", "gap-tv3d", "--iterations", 3, "--tol", 1, "-q")
    assert unsnap(*command, "-o", "c.npz", "--points", "3,4", "--points", "19,0").code == 0
    assert Path("c-spectra.png").read_bytes().startswith(b"\x89PNG")
    command = command[:-3]
    assert unsnap(*command, "-q", "-o", "u.npz", "--points", "3,4").code == 3
    assert [path.name for path in sorted(Path().glob("u*"))] == ["u-unconverged-spectra.png", "u-unconverged.npz"]
    for words in (["--points", "3,20"], ["--points", "x"], ["--kind", "bayer"], ["--kind", "disperse"]):
        run = unsnap(*command, "-o", "d.npz", *words)
        assert (run.code, run.err.count("\n")) == (2, 1), run.err
    assert unsnap("simulate", "-o", "t.npz", "--kind", "bayer:rgbg", "-q").code == 2


def test_unknown_wavelengths_reach_no_file_and_stop_nothing(unsnap: Callable) -> None:
    np.save("cube.npy", np.random.default_rng(0).random((10, 40, 40)))
    assert unsnap("simulate", "cube.npy", "-o", "s.npz", "--kind", "dispersed:2", "-q").code == 0
    command = ("reconstruct", "s.npz", "-m", "gap-tv3d", "--iterations", 3, "--tol", 1, "-q")
    assert unsnap(*command, "-o", "c.npz", "--points", "3,4").code == 0
    assert unsnap(*command, "-o", "t.h5", "--tile", 32).code == 0
    assert [list(read_arrays(name)) for name in ("c.npz", "t.h5")] == [["video"], ["video"]]
    assert Path("c-spectra.png").read_bytes().startswith(b"\x89PNG")
    assert unsnap(*command, "-o", "f.npz", "--frames", 2).code == 2
