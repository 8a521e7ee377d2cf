"""Frames beside frames on one sheet: the truth, every method with its PSNR, and where it errs."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from unsnap.bench.pictures import FAINT, INK, common_shape, label
from unsnap.errors import InputError
from unsnap.io import atomic_file
from unsnap.metrics import psnr

Array = npt.NDArray[Any]
_PANE = 256  # longer side of a frame, in pixels
_GAP, _LINE, _BAR = 8, 24, 72
_DPI = 100


@dataclass(frozen=True)
class _Row:
    label: str
    images: Tensor
    """(n, H, W), in colour (n, H, W, 3)"""
    captions: list[str]
    note: str = ""
    """Below the label."""
    errors: Tensor | None = None
    """(n, H, W)"""


def contact_sheet(
    videos: Mapping[str, Tensor],
    path: str | Path,
    *,
    truth: Tensor | None = None,
    measurement: Tensor | None = None,
    frames: Sequence[int] | None = None,
    errors: bool = False,
    colour: bool = False,
) -> Path:
    """A PNG with one row per video (T, H, W) and one column per frame, and the snapshot (H, W) beside them.

    frames: which ones, counted from 0 (default: up to four, evenly spread); errors: at the right of every video maps of
    its distance from the truth, all on one colour scale. Where the truth is known, so is the PSNR of each frame.
    colour: videos are (3T, H, W), red first, and the snapshot may be (3, H, W).
    """
    planes = 3 if colour else 1
    shape = common_shape({**videos, **({} if truth is None else {"truth": truth})})
    if errors and truth is None:
        raise InputError("errors needs the truth, got none; give the truth or leave the error maps out")
    if measurement is not None and measurement.shape not in (shape[1:], (3, *shape[1:]) if colour else shape[1:]):
        raise InputError(f"measurement must be {tuple(shape[1:])} like a frame, got shape {tuple(measurement.shape)}")
    chosen = _chosen_frames(shape[0] // planes, frames)
    known = None if truth is None else _frames(truth, planes)
    rows: list[_Row] = [] if known is None else [_Row("truth", _picture(known[chosen]), [])]
    for name, video in videos.items():
        pictures = _frames(video, planes)
        if known is None or truth is None:
            rows.append(_Row(label(name), _picture(pictures[chosen]), []))
            continue
        quality = torch.unflatten(psnr(video, truth), 0, (planes, -1)).mean(0)
        distance = (pictures[chosen].clamp(0, 1) - known[chosen]).abs().mean(1) if errors else None
        captions = [f"{value:.2f} dB" for value in quality[chosen].tolist()]
        row = _Row(label(name), _picture(pictures[chosen]), captions, f"{float(quality.mean()):.2f} dB", distance)
        rows.append(row)
    snapshot = measurement
    if measurement is not None and measurement.ndim == 3:
        snapshot = _picture((measurement / measurement.max().clamp(min=1e-12))[None])[0]
    canvas = _Sheet(rows, [f"frame {t + 1}" for t in chosen], snapshot).draw()
    return canvas.save(path, colour=colour)


def _frames(video: Tensor, planes: int) -> Tensor:
    """(T, planes, H, W) of a video (planes · T, H, W)."""
    return torch.unflatten(video, 0, (planes, -1)).transpose(0, 1)


def _picture(frames: Tensor) -> Tensor:
    """(n, H, W) of frames (n, 1, H, W), (n, H, W, 3) of frames (n, 3, H, W)."""
    return frames[:, 0] if frames.shape[1] == 1 else frames.nan_to_num().clamp(0, 1).movedim(1, -1)


def _chosen_frames(count: int, frames: Sequence[int] | None) -> list[int]:
    chosen = np.linspace(0, count - 1, min(4, count)).round().astype(int).tolist() if frames is None else list(frames)
    if not chosen or not all(0 <= t < count for t in chosen):
        raise InputError(f"frames must be numbers from 0 to {count - 1}, got {chosen}")
    return chosen


class _Canvas:
    """A white figure measured in pixels from its upper left corner."""

    def __init__(self, width: float, height: float) -> None:
        from matplotlib.figure import Figure

        self.size = (width, height)
        self.figure = Figure(figsize=(width / _DPI, height / _DPI), dpi=_DPI, facecolor="white")

    def axes(self, x: float, y: float, width: float, height: float) -> Any:
        across, down = self.size
        return self.figure.add_axes((x / across, 1 - (y + height) / down, width / across, height / down))

    def image(self, picture: Tensor, x: float, y: float, width: float, height: float, **look: Any) -> Any:
        axes = self.axes(x, y, width, height)
        axes.set_axis_off()
        return axes.imshow(picture.detach().cpu().numpy(), aspect="auto", **look)

    def text(self, text: str, x: float, y: float, **look: Any) -> None:
        self.figure.text(x / self.size[0], 1 - y / self.size[1], text, color=INK, fontsize=9, **look)

    def colour_bar(self, image: Any, x: float, y: float, height: float) -> None:
        ticks = self.figure.colorbar(image, cax=self.axes(x, y, 12, height)).ax
        ticks.tick_params(labelsize=8, color=FAINT, labelcolor=INK)

    def save(self, path: str | Path, *, colour: bool = False) -> Path:
        """Write a PNG; of 256 colours if no picture is in colour, which takes half the room."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from PIL import Image

        canvas = FigureCanvasAgg(self.figure)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # letters that the font lacks are drawn as boxes
            canvas.draw()
        pixels = np.asarray(canvas.buffer_rgba())[..., :3]
        if colour:
            picture = Image.fromarray(np.ascontiguousarray(pixels))
        else:
            indices, palette = _indexed(pixels)
            picture = Image.fromarray(indices)
            picture.putpalette(palette.tobytes())
        with atomic_file(path) as temporary:
            picture.save(temporary, format="PNG", optimize=True)
        return Path(path)


def _indexed(rgb: Array) -> tuple[Array, Array]:
    """Indices (H, W) into a palette (n <= 256, 3), both uint8: exact, or else the nearest greys and error colours."""
    from matplotlib import colormaps

    red, green, blue = np.moveaxis(rgb.astype(np.int32), -1, 0)
    codes, table = red << 16 | green << 8 | blue, np.zeros(1 << 24, np.uint8)
    table[codes] = 1
    present = np.flatnonzero(table)
    colours = present[:, None] >> np.array([16, 8, 0]) & 255
    ramp = np.linspace(0, 1, 128)
    mixed = np.rint(255 * np.concatenate([ramp[:, None].repeat(3, 1), colormaps["inferno"](ramp)[:, :3]]))
    palette = colours if len(colours) <= 256 else mixed
    table[present] = np.square(colours[:, None] - palette[None]).sum(-1).argmin(1)
    return table[codes], palette.astype(np.uint8)


class _Sheet:
    """Where everything is. The snapshot stands at the left, or above the error maps, where the truth leaves room."""

    def __init__(self, rows: list[_Row], titles: list[str], measurement: Tensor | None) -> None:
        self.rows, self.titles, self.measurement = rows, titles, measurement
        height, width = rows[0].images.shape[1:3]
        zoom = _PANE / max(height, width)
        self.pane = (max(round(width * zoom), 1), max(round(height * zoom), 1))
        self.column = max(self.pane[0], 64) + _GAP
        self.errors = any(row.errors is not None for row in rows)
        beside = measurement is not None and not self.errors
        self.left = 16 + 9 * max(len(row.label) for row in rows) + (self.column + _GAP if beside else 0)
        self.right = self.left + self.column * len(titles) + 3 * _GAP
        across = self.right + (self.column * len(titles) + _BAR if self.errors else -2 * _GAP)
        self.canvas = _Canvas(across, _LINE + _GAP + sum(map(self._height, rows)))

    def draw(self) -> _Canvas:
        top = _LINE + _GAP
        self._titles(self.left, top)
        if self.measurement is not None:
            self._snapshot(self.measurement, top)
        limit = _almost_all([row.errors for row in self.rows if row.errors is not None])
        for row in self.rows:
            self._row(row, top, limit)
            top += self._height(row)
        return self.canvas

    def _height(self, row: _Row) -> int:
        headed = self.errors and row is self.rows[0]  # the titles of the error maps stand below the truth
        return max(self.pane[1], _LINE) + (_LINE + _GAP if headed else _LINE if row.captions else _GAP)

    def _titles(self, left: float, top: float) -> None:
        for k, title in enumerate(self.titles):
            self.canvas.text(title, left + k * self.column + self.pane[0] / 2, top - 7, ha="center")

    def _snapshot(self, measurement: Tensor, top: float) -> None:
        x = self.right if self.errors else _GAP + (self.column - self.pane[0]) / 2
        self.canvas.text("snapshot", x + self.pane[0] / 2, top - 7, ha="center", weight="bold")
        self.canvas.image(measurement, x, top, *self.pane, cmap="gray")

    def _row(self, row: _Row, top: float, limit: float) -> None:
        middle = top + self.pane[1] / 2
        self.canvas.text(row.label, self.left - _GAP, middle, ha="right", va="center", weight="bold")
        if row.note:
            self.canvas.text(row.note, self.left - _GAP, middle + 18, ha="right", va="center")
        for k, picture in enumerate(row.images):
            self.canvas.image(picture, self.left + k * self.column, top, *self.pane, cmap="gray", vmin=0, vmax=1)
        for k, caption in enumerate(row.captions):
            x = self.left + k * self.column + self.pane[0] / 2
            self.canvas.text(caption, x, top + self.pane[1] + 13, ha="center", va="center")
        if row.errors is not None:
            self._errors(row, row.errors, top, limit)

    def _errors(self, row: _Row, errors: Tensor, top: float, limit: float) -> None:
        for k, picture in enumerate(errors):
            x = self.right + k * self.column
            image = self.canvas.image(picture, x, top, *self.pane, cmap="inferno", vmin=0, vmax=limit)
        if row is self.rows[1]:
            self.canvas.text("distance from the truth", self.right, top - 7, ha="left", weight="bold")
            self.canvas.colour_bar(image, self.right + self.column * len(errors), top, self.pane[1])


def _almost_all(errors: list[Tensor]) -> float:
    """The end of a colour scale that a few outliers do not stretch."""
    values = np.concatenate([e.flatten().cpu().numpy() for e in errors] or [np.ones(1)])
    return max(float(np.quantile(np.nan_to_num(values), 0.998)), 0.01)
