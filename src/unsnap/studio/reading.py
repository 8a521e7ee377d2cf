"""How a capture is to be read, as options of the command line; and which of them a finding of the doctor asks for."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unsnap.doctor import ALIGNMENT
from unsnap.io.raw import Raw


@dataclass(frozen=True)
class Reading:
    """The options of `reconstruct` and `inspect` that the page knows; each is called as on the command line."""

    masks: Path | None = None
    time_axis: int | None = None
    transpose_masks: bool = False
    scale: float | None = None
    kind: str | None = None
    camera: Path | None = None
    offset: float = 0.0
    saturated: str = "keep"
    bad_pixels: str | None = None

    def options(self) -> dict[str, Any]:
        """Arguments of `examine`."""
        own = {name: getattr(self, name) for name in ("masks", "time_axis", "transpose_masks", "scale")}
        raw = Raw(bad_pixels=self.bad_pixels, offset=self.offset, saturated=self.saturated)
        return {**own, "camera": self.kind, "calibration": self.camera, "raw": raw}

    def words(self) -> list[str]:
        """As one types them; files by their names alone."""
        found: list[str] = []
        for each in fields(self):
            value, option = getattr(self, each.name), f"--{each.name.replace('_', '-')}"
            if value == each.default:
                continue
            text = value.name if isinstance(value, Path) else f"{value:.9g}" if isinstance(value, float) else str(value)
            found += [option] if value is True else [option, text]
        return found


@dataclass(frozen=True)
class Remedy:
    """What a click does: options to set, a turn of the masks to undo, or a calibration."""

    label: str
    options: tuple[tuple[str, Any], ...] = ()
    turn: str = ""
    calibrate: bool = False

    def applied(self, reading: Reading) -> Reading:
        return replace(reading, **dict(self.options))


TURNS: dict[str, Callable[[NDArray[np.float32]], NDArray[np.float32]]] = {
    "upside down": lambda m: m[..., ::-1, :],
    "mirrored left to right": lambda m: m[..., ::-1],
    "turned by 180°": lambda m: m[..., ::-1, ::-1],
    "turned by a quarter to the left": lambda m: np.rot90(m, -1, (-2, -1)),
    "turned by a quarter to the right": lambda m: np.rot90(m, 1, (-2, -1)),
    "transposed and turned by 180°": lambda m: np.swapaxes(m, -1, -2)[..., ::-1, ::-1],
    "running backwards in time": lambda m: m[..., ::-1, :, :],
}
"""What masks (..., T, H, W) may have suffered, and what puts them right."""

_NUMBER = r"([-+]?\d[\d.]*(?:e[-+]?\d+)?)"


def remedy_of(finding: dict[str, str]) -> Remedy | None:
    """The click that does what a finding asks for; None if only a person can."""
    subject, text, remedy = finding["subject"], finding["text"], finding["remedy"]
    if finding["level"] not in ("warning", "fatal"):
        return None
    if "--transpose-masks" in remedy:
        return Remedy("Transpose the masks (--transpose-masks)", (("transpose_masks", True),))
    if found := re.search(rf"--scale {_NUMBER}", remedy):
        return Remedy(f"Take {found[1]} for white (--scale {found[1]})", (("scale", float(found[1])),))
    if found := re.search(r"--time-axis (\d)", remedy):
        return Remedy(f"Take axis {found[1]} for time (--time-axis {found[1]})", (("time_axis", int(found[1])),))
    if found := re.search(rf"--offset {_NUMBER}", remedy):
        return Remedy(f"Subtract {found[1]} (--offset {found[1]})", (("offset", float(found[1])),))
    if subject == "saturation" or "it is clipped at" in text:
        return Remedy("Leave saturated pixels out (--saturated exclude)", (("saturated", "exclude"),))
    if subject in ("hot pixels", "dead pixels") and not text.endswith("…"):
        pixels = ";".join(f"{row},{column}" for row, column in re.findall(r"\((\d+), (\d+)\)", text))
        return Remedy(f"Leave them out (--bad-pixels {pixels})", (("bad_pixels", pixels),)) if pixels else None
    return _of_masks(subject, text, remedy)


def clicks(findings: Sequence[dict[str, str]]) -> dict[int, Remedy]:
    """The remedies to offer, by the number of their finding; each once.

    While the masks lie otherwise than the capture needs them, most of the rest is a consequence of that, and waits.
    """
    found = {k: remedy for k, finding in enumerate(findings) if (remedy := remedy_of(finding)) is not None}
    of_place = {k: r for k, r in found.items() if r.turn or r.calibrate or r.options[0][0] == "transpose_masks"}
    offered: dict[int, Remedy] = {}
    for k, remedy in (of_place or found).items():
        if remedy not in offered.values():
            offered[k] = remedy
    return offered


def _of_masks(subject: str, text: str, remedy: str) -> Remedy | None:
    """What is wrong with where the masks are."""
    if "the masks run backwards in time" in text:
        return Remedy("Turn the masks' time round (--masks FILE)", turn="running backwards in time")
    for turn in sorted(TURNS, key=len, reverse=True):
        if f"the masks are {turn}" in text and "moved by" not in text:
            return Remedy(f"Turn the masks back: they are {turn} (--masks FILE)", turn=turn)
    if (subject == ALIGNMENT and "unsnap calibrate" in remedy) or (
        subject == "exposure" and "unsnap calibrate" in remedy
    ):
        return Remedy("Calibrate, and apply what it finds (--camera FILE)", calibrate=True)
    return None


def command(*words: str) -> str:
    """A line that a shell takes."""
    return shlex.join(["unsnap", *words])


def reconstruct_line(name: str, reading: Reading, method: str, output: str, *, more: Sequence[str] = ()) -> str:
    """The command that writes the very bytes of a download."""
    return command("reconstruct", name, *reading.words(), "--method", method, *more, "-o", output)
