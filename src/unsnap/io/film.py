"""What is done to a reconstructed film before it is written or shown: part, contrast, brightness."""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch
from torch import Tensor

from unsnap.errors import InputError, short


@dataclass(frozen=True)
class Film:
    """What is done to a video before it is written; scores are of the video itself."""

    frames: str | None = None
    contrast: str | None = None
    equalise: bool = False

    def check(self) -> None:
        """Refuse what cannot be meant, before the work begins."""
        if self.frames is not None:
            part(self.frames, "--frames")
        if self.contrast is not None:
            _ends(self.contrast)

    def check_length(self, frames: int) -> None:
        """Refuse to choose none of so many frames, or more."""
        if self.frames is not None and not within(part(self.frames, "--frames"), frames):
            raise InputError(
                f"--frames {self.frames} must choose some of the {frames} frames and no others; count them from 0"
            )

    def of(self, video: Tensor, colours: int = 1) -> Tensor:
        """The film (colours · F, H, W) of videos (N, colours · T, H, W)."""
        film = torch.unflatten(video, -3, (colours, -1)).transpose(-4, -3).flatten(0, -4)
        if self.equalise:
            film = equalised(film)
        if self.contrast is not None:
            low, high = _ends(self.contrast) or _spread(film)
            film = (film - low) / (high - low)
        self.check_length(len(film))
        chosen = film if self.frames is None else film[part(self.frames, "--frames")]
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


def within(chosen: slice, count: int) -> bool:
    """Does a range choose some of so many things, and nothing beyond them?

    >>> within(slice(2, 8), 8), within(slice(2, None), 8), within(slice(2, 9), 8), within(slice(8, None), 8)
    (True, True, False, False)
    """
    return bool(range(count)[chosen]) and all(abs(end or 0) <= count for end in (chosen.start, chosen.stop))


def part(text: str, option: str) -> slice:
    """N: the first; A:B, A: or :B as Python counts.

    >>> part("2:4", "--snapshots"), part("3", "--snapshots")
    (slice(2, 4, None), slice(None, 3, None))
    """
    found = re.fullmatch(r"\s*(?:(\d{0,9})\s*:)?\s*(\d{0,9})\s*", text, re.ASCII)
    if found is None or not (found[1] or found[2]) or found[2] == "0" * len(found[2]) != "":
        raise InputError(f"{option} must be a number from 1, or a range such as 2:4, got {short(text)}")
    first, last = (int(end) if end else None for end in found.groups())
    return slice(first, last)
