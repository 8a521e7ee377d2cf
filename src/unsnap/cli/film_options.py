"""Options that say how a reconstructed film is to look, and what becomes of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

import torch
import typer
from torch import Tensor

from unsnap.cli.capture_options import part
from unsnap.errors import InputError, short

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
class Film:
    """What is done to a video before it is written; scores are of the video itself."""

    frames: Frames = None
    contrast: Contrast = None
    equalise: Equalise = False

    def check(self) -> None:
        """Refuse what cannot be meant, before the work begins."""
        if self.frames is not None:
            part(self.frames, "--frames")
        if self.contrast is not None:
            _ends(self.contrast)

    def of(self, video: Tensor, colours: int = 1) -> Tensor:
        """The film (colours · F, H, W) of videos (N, colours · T, H, W)."""
        film = torch.unflatten(video, -3, (colours, -1)).transpose(-4, -3).flatten(0, -4)
        if self.equalise:
            film = equalised(film)
        if self.contrast is not None:
            low, high = _ends(self.contrast) or _spread(film)
            film = (film - low) / (high - low)
        chosen = film if self.frames is None else film[part(self.frames, "--frames")]
        if not len(chosen):
            raise InputError(f"--frames {self.frames} must choose some of the {len(film)} frames, counted from 0")
        return chosen.transpose(0, 1).flatten(0, 1)


def equalised(film: Tensor) -> Tensor:
    """Every frame (F, C, H, W) with the median of all frames' means as its mean; black frames stay so."""
    means = film.mean((-3, -2, -1), keepdim=True)
    return film * torch.where(means > 0, means.median() / means, 1)


def _ends(text: str) -> tuple[float, float] | None:
    """Two intensities, or None for auto."""
    if text == "auto":
        return None
    number = r"\s*([+-]?\d{1,6}(?:\.\d{0,9})?|\.\d{1,9})\s*"
    found = re.fullmatch(f"{number},{number}", text, re.ASCII)
    low, high = (float(found[1]), float(found[2])) if found else (0.0, 0.0)
    if not low < high:
        raise InputError(f"--contrast must be auto, or two intensities such as 0.1,0.9, got {short(text)}")
    return low, high


def _spread(film: Tensor) -> tuple[float, float]:
    """Nearly the darkest and the brightest of a film; a little sample of a long one tells."""
    few = film.flatten()[:: max(1, film.numel() // 2**20)].double()
    low, high = (float(few.quantile(q)) for q in (0.005, 0.995))
    return (low, high) if low < high else (low, low + 1)
