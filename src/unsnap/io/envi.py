"""ENVI: a text header (.hdr) beside the numbers (.raw), band by band, as remote sensing keeps its cubes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from unsnap.io.checks import Array

SUFFIX, DATA = ".hdr", ".raw"


def write_data(path: Path, cube: Array) -> None:
    """(L, H, W) float32, little-endian, bands one after the other."""
    path.write_bytes(cube.astype("<f4").tobytes())


def write_header(path: Path, cube: Array, fps: float, wavelengths: Sequence[float] | None = None) -> None:
    bands, lines, samples = cube.shape[:3]
    facts = {
        "samples": samples,
        "lines": lines,
        "bands": bands,
        "header offset": 0,
        "file type": "ENVI Standard",
        "data type": 4,
        "interleave": "bsq",
        "byte order": 0,
    }
    text = ["ENVI", *(f"{key} = {value}" for key, value in facts.items())]
    if wavelengths is not None:
        text += ["wavelength units = Nanometers", f"wavelength = {{{', '.join(f'{nm:g}' for nm in wavelengths)}}}"]
    path.write_text("\n".join(text) + "\n", encoding="ascii")
