"""Options that say what a capture is: its arrays, its moving mask, what the sensor adds, which part is wanted."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from unsnap.errors import InputError, short
from unsnap.io.film import part
from unsnap.io.raw import Raw

MOST_FRAMES = 65_536

MeasurementKey = Annotated[str | None, typer.Option(help="Name of the snapshots in FILE, if unusual.", metavar="NAME")]
MasksKey = Annotated[str | None, typer.Option(help="Name of the masks in their file, if unusual.", metavar="NAME")]
Motion = Annotated[
    str | None,
    typer.Option(
        help="The mask is one that moves: DY,DX,T for T frames with so many pixels from each to the next, or the place "
        "in every frame as y,x;y,x;… A mask as large as the snapshot goes round.",
        metavar="DY,DX,T",
    ),
]
Dark = Annotated[
    Path | None, typer.Option(help="Picture without light, to subtract: image or array; a stack is averaged.")
]
White = Annotated[
    Path | None,
    typer.Option(help="Picture of an evenly lit white surface, all masks open, for the gain of every pixel."),
]
BadPixels = Annotated[
    str | None,
    typer.Option(help="Pixels to leave out: y,x;y,x or a file (.txt or .csv of pairs, or a picture not 0 there)."),
]
Offset = Annotated[float, typer.Option(help="Subtract this from the snapshots, in the file's units.")]
Saturated = Annotated[
    str,
    typer.Option(
        help="exclude: leave out the pixels at the very maximum; a number: those from that level on.",
        metavar="keep|exclude|LEVEL",
    ),
]
Roi = Annotated[str | None, typer.Option(help="Only these rows and columns, from 0.", metavar="Y0:Y1,X0:X1")]
Snapshots = Annotated[
    str | None,
    typer.Option(help="Only the first N snapshots, or those from A (the first is 0) up to but not B.", metavar="N|A:B"),
]


@dataclass(frozen=True)
class Capture:
    """What `load_scene` has to be told of an unusual file or camera."""

    measurement_key: MeasurementKey = None
    masks_key: MasksKey = None
    motion: Motion = None
    dark: Dark = None
    white: White = None
    bad_pixels: BadPixels = None
    offset: Offset = 0.0
    saturated: Saturated = "keep"
    roi: Roi = None
    snapshots: Snapshots = None

    def capture(self) -> dict[str, Any]:
        """As arguments of `load_scene`."""
        return {
            "measurement_key": self.measurement_key,
            "masks_key": self.masks_key,
            "motion": None if self.motion is None else places(self.motion),
            "raw": Raw(self.dark, self.white, self.bad_pixels, self.offset, self.saturated),
            "roi": None if self.roi is None else region(self.roi),
            "snapshots": None if self.snapshots is None else part(self.snapshots, "--snapshots"),
        }

    @property
    def frames_read(self) -> tuple[str | Path | None, ...]:
        """Files beside the scene and its masks, which no output may replace."""
        return self.dark, self.white, self.bad_pixels


def region(text: str) -> tuple[slice, slice]:
    """Rows and columns.

    >>> region("0:64,32:96")
    (slice(0, 64, None), slice(32, 96, None))
    """
    ends = text.split(",")
    if len(ends) != 2 or not all(":" in end for end in ends):
        raise InputError(f"--roi must be rows and columns such as 0:128,64:192, got {short(text)}")
    rows, columns = (slice(None) if end.strip() == ":" else part(end, "--roi") for end in ends)
    return rows, columns


def places(text: str) -> list[tuple[float, float]]:
    """Where a mask is in every frame.

    >>> places("1,0.5,3")
    [(0.0, 0.0), (1.0, 0.5), (2.0, 1.0)]
    """
    try:
        rows = [[float(n) for n in place.split(",")] for place in text.strip("; ").split(";")]
    except ValueError:
        rows = []
    if len(rows) == 1 and len(rows[0]) == 3 and rows[0][2] in range(2, MOST_FRAMES + 1):
        down, right, frames = rows[0]
        rows = [[t * down, t * right] for t in range(int(frames))]
    if len(rows) < 2 or not all(len(row) == 2 and all(abs(n) < MOST_FRAMES for n in row) for row in rows):
        raise InputError(
            f"--motion must be DY,DX,T, such as 1,0,8 for eight frames, or places y,x;y,x;…, got {short(text)}"
        )
    return [(down, right) for down, right in rows]
