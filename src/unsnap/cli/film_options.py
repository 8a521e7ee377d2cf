"""Options that say how a reconstructed film is to look, and what becomes of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from unsnap.io import film

Frames = Annotated[
    str | None, typer.Option(help="Write only these frames of the film: the first N, or A:B from 0.", metavar="N|A:B")
]
Contrast = Annotated[
    str | None,
    typer.Option(
        help="Stretch what is written: these two intensities, or auto, become black and white.", metavar="auto|LO,HI"
    ),
]
Equalise = Annotated[bool, typer.Option("--equalise", help="Write all frames equally bright on average.")]


@dataclass(frozen=True)
class Film(film.Film):
    """What is done to a video before it is written, as options."""

    frames: Frames = None
    contrast: Contrast = None
    equalise: Equalise = False
