"""Pictures of results: frames beside frames, panes of a film, quality against time, residual per iteration."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from unsnap.bench.run import Result
from unsnap.errors import InputError
from unsnap.io import atomic_file
from unsnap.metrics import psnr

Array = npt.NDArray[Any]
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f4fc9", "#4d4d4d")
_MARKERS = ("o", "s", "D", "^", "v", "P", "X", "*")
_INK, _FAINT = "#222222", "#9a9a9a"
_PANE = 256  # longer side of a frame on a contact sheet, in pixels
_DPI = 100


@dataclass(frozen=True)
class _Row:
    label: str
    images: Tensor
    """(n, H, W)"""
    captions: list[str]
    error: bool = False


def contact_sheet(
    videos: Mapping[str, Tensor],
    path: str | Path,
    *,
    truth: Tensor | None = None,
    measurement: Tensor | None = None,
    frames: Sequence[int] | None = None,
    errors: bool = False,
) -> Path:
    """A PNG with one row per video (T, H, W) and one column per frame, the snapshot (H, W) at the left.

    frames: which ones, counted from 0 (default: up to four, evenly spread); errors: below every video a map of its
    distance from the truth, all on one colour scale. Where the truth is known, so is the PSNR of each frame.
    """
    shape = _common_shape({**videos, **({} if truth is None else {"truth": truth})})
    if errors and truth is None:
        raise InputError("errors needs the truth, got none; give the truth or leave the error maps out")
    if measurement is not None and measurement.shape != shape[1:]:
        raise InputError(f"measurement must be {tuple(shape[1:])} like a frame, got shape {tuple(measurement.shape)}")
    chosen = _chosen_frames(shape[0], frames)
    rows: list[_Row] = [] if truth is None else [_Row("truth", truth[chosen], [])]
    for name, video in videos.items():
        captions = [] if truth is None else [f"{v:.2f} dB" for v in psnr(video, truth)[chosen].tolist()]
        rows.append(_Row(name, video[chosen], captions))
        if errors and truth is not None:
            rows.append(_Row("error", (video[chosen].clamp(0, 1) - truth[chosen]).abs(), [], error=True))
    return _draw_sheet(rows, [f"frame {t + 1}" for t in chosen], measurement, path)


def _common_shape(videos: Mapping[str, Tensor]) -> torch.Size:
    """The one shape (T, H, W) that all videos share."""
    shapes = {name: video.shape for name, video in videos.items()}
    first = next(iter(shapes.values()), torch.Size())
    for name, shape in shapes.items():
        if shape != first or len(shape) != 3 or 0 in shape:
            raise InputError(
                f"videos must share one shape (T, H, W), got {tuple(shape)} for {name}, {tuple(first)} first"
            )
    if not shapes:
        raise InputError("videos must hold at least one video, got none")
    return first


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
        self.figure.text(x / self.size[0], 1 - y / self.size[1], text, color=_INK, fontsize=9, **look)

    def colour_bar(self, image: Any, x: float, y: float, height: float) -> None:
        ticks = self.figure.colorbar(image, cax=self.axes(x, y, 12, height)).ax
        ticks.tick_params(labelsize=8, color=_FAINT, labelcolor=_INK)

    def save(self, path: str | Path) -> Path:
        """Write a PNG of 256 colours, which takes half the room."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from PIL import Image

        canvas = FigureCanvasAgg(self.figure)
        canvas.draw()
        indices, palette = _indexed(np.asarray(canvas.buffer_rgba())[..., :3])
        picture = Image.fromarray(indices)
        picture.putpalette(palette.tobytes())
        with atomic_file(path) as temporary:
            picture.save(temporary, format="PNG", optimize=True)
        return Path(path)


def _indexed(rgb: Array) -> tuple[Array, Array]:
    """Indices (H, W) into a palette (n <= 256, 3), both uint8: exact, or else the nearest greys and error colours."""
    from matplotlib import colormaps

    codes = rgb.astype(np.int64) @ np.array([1 << 16, 1 << 8, 1])
    present, inverse = np.unique(codes, return_inverse=True)
    colours = present[:, None] >> np.array([16, 8, 0]) & 255
    ramp = np.linspace(0, 1, 128)
    mixed = np.rint(255 * np.concatenate([ramp[:, None].repeat(3, 1), colormaps["inferno"](ramp)[:, :3]]))
    palette = colours if len(colours) <= 256 else mixed
    nearest = np.square(colours[:, None] - palette[None]).sum(-1).argmin(1)
    return nearest[inverse].reshape(codes.shape).astype(np.uint8), palette.astype(np.uint8)


def _draw_sheet(rows: list[_Row], titles: list[str], measurement: Tensor | None, path: str | Path) -> Path:
    height, width = rows[0].images.shape[-2:]
    zoom = _PANE / max(height, width)
    pane = (max(round(width * zoom), 1), max(round(height * zoom), 1))
    gap, line = 8, 24
    column = max(pane[0], 64) + gap
    heights = [max(pane[1], line) + (line if row.captions else gap) for row in rows]
    left = 16 + 8 * max(len(row.label) for row in rows) + (0 if measurement is None else column + gap)
    limit = _almost_all([row.images for row in rows if row.error])
    bar = 72 if any(row.error for row in rows) else 0
    canvas = _Canvas(left + column * len(titles) + bar, line + gap + sum(heights))
    top = line + gap
    for k, title in enumerate(titles):
        canvas.text(title, left + k * column + pane[0] / 2, top - 7, ha="center")
    if measurement is not None:
        canvas.text("snapshot", gap + column / 2, top - 7, ha="center", weight="bold")
        canvas.image(measurement, gap + (column - pane[0]) / 2, top, *pane, cmap="gray")
    for row, space in zip(rows, heights, strict=True):
        colours, white = ("inferno", limit) if row.error else ("gray", 1.0)
        weight = "normal" if row.error else "bold"
        canvas.text(row.label, left - gap, top + pane[1] / 2, ha="right", va="center", weight=weight)
        for k, picture in enumerate(row.images):
            image = canvas.image(picture, left + k * column, top, *pane, cmap=colours, vmin=0, vmax=white)
        for k, caption in enumerate(row.captions):
            canvas.text(caption, left + k * column + pane[0] / 2, top + pane[1] + 13, ha="center")
        if row.error:
            canvas.colour_bar(image, left + column * len(titles), top, pane[1])
        top += space
    return canvas.save(path)


def _almost_all(errors: list[Tensor]) -> float:
    """The end of a colour scale that a few outliers do not stretch."""
    values = np.concatenate([e.flatten().cpu().numpy() for e in errors] or [np.ones(1)])
    return max(float(np.quantile(np.nan_to_num(values), 0.998)), 0.01)


def side_by_side(videos: Mapping[str, Tensor]) -> Tensor:
    """A film (T, H', W') of all videos (T, H, W), each below its name; H' and W' are even, as video codecs want."""
    frames, height, width = _common_shape(videos)
    rows = -(-len(videos) // 4)
    across = -(-len(videos) // rows)
    gap = max(2, width // 64)
    panes = []
    for name, video in videos.items():
        bar = _caption(name, width, max(14, height // 12)).expand(frames, -1, -1)
        pane = torch.cat([bar, video.detach().cpu().to(torch.float32).clamp(0, 1)], 1)
        panes.append(torch.nn.functional.pad(pane, (0, gap, 0, gap), value=1.0))
    panes += [torch.ones_like(panes[0])] * (rows * across - len(panes))
    lines = [torch.cat(panes[k : k + across], 2) for k in range(0, len(panes), across)]
    film = torch.cat(lines, 1)[:, :-gap, :-gap]
    return torch.nn.functional.pad(film, (0, film.shape[2] % 2, 0, film.shape[1] % 2), value=1.0)


def _caption(text: str, width: int, height: int) -> Tensor:
    """Dark text on white, (height, width), as large as fits."""
    from PIL import Image, ImageDraw, ImageFont

    image = Image.new("L", (width, height), 255)
    draw = ImageDraw.Draw(image)
    size = height * 0.72
    while size > 5 and draw.textlength(text, ImageFont.load_default(size)) > width - 4:
        size *= 0.9
    while len(text) > 1 and draw.textlength(text, ImageFont.load_default(size)) > width - 4:
        text = text[:-2] + "…"
    draw.text((width / 2, height / 2), text, fill=34, font=ImageFont.load_default(size), anchor="mm")
    return torch.from_numpy(np.asarray(image, np.float32) / 255)


def psnr_time_plot(results: Sequence[Result], path: str | Path) -> Path:
    """PSNR against processor seconds per snapshot (logarithmic), one marker per method, mean over scenes."""
    from matplotlib.ticker import LogLocator

    points: dict[str, tuple[float, float]] = {}
    for name in dict.fromkeys(result.method for result in results):
        known = [(r.cpu_seconds / r.snapshots, r.psnr) for r in results if r.method == name and r.psnr is not None]
        if known and all(math.isfinite(quality) for _, quality in known):
            points[name] = tuple(np.mean(known, axis=0).tolist())
    figure, axes = _plot("CPU seconds per snapshot", "PSNR (dB)")
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_minor_formatter("")
    for (name, (seconds, quality)), colour, marker in zip(
        points.items(), cycle(_COLOURS), cycle(_MARKERS), strict=False
    ):
        axes.plot(seconds, quality, marker, color=colour, markersize=9, markeredgecolor="white", label=name)
    if points:
        axes.margins(0.25, 0.15)
        _label_points(axes, points)
    else:
        axes.text(0.5, 0.5, "no truth known, so no PSNR", ha="center", color=_FAINT, transform=axes.transAxes)
    return _save(figure, path)


def convergence_plot(histories: Mapping[str, Tensor], path: str | Path) -> Path:
    """Relative change per iteration (logarithmic) from histories (iterations,) or (iterations, samples).

    The line is the largest over the samples, the band reaches down to the smallest.
    """
    figure, axes = _plot("iteration", "relative change")
    axes.set_yscale("log")
    for (name, history), colour in zip(histories.items(), cycle(_COLOURS), strict=False):
        values = history.detach().cpu().reshape(len(history), -1).to(torch.float64).numpy()
        values = np.where(np.isfinite(values) & (values > 0), values, np.nan)
        steps = np.arange(1, len(values) + 1)
        high, low = np.fmax.reduce(values, 1), np.fmin.reduce(values, 1)
        axes.plot(steps, high, color=colour, linewidth=1.8, label=name)
        axes.fill_between(steps, low, high, color=colour, alpha=0.18, linewidth=0)
    axes.legend(frameon=False, fontsize=9, labelcolor=_INK)
    return _save(figure, path)


def _plot(across: str, up: str) -> tuple[Any, Any]:
    """An empty diagram in the style of all others."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.2), dpi=150, layout="constrained", facecolor="white")
    axes = figure.add_subplot()
    axes.set_xlabel(across, color=_INK)
    axes.set_ylabel(up, color=_INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(_FAINT)
    axes.tick_params(which="both", color=_FAINT, labelcolor=_INK, labelsize=9)
    axes.grid(which="major", color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)
    return figure, axes


def _label_points(axes: Any, points: Mapping[str, tuple[float, float]]) -> None:
    """Write every name beside its point, pushed up where it would cover another name."""
    axes.autoscale_view()
    to_fraction = (axes.transData + axes.transAxes.inverted()).transform
    taken: list[tuple[float, float, float]] = []
    for name, point in sorted(points.items(), key=lambda item: item[1][1]):
        x, y = to_fraction(point)
        width = 0.015 * len(name)
        side = -1 if x + 0.025 + width > 1 else 1
        start = x + 0.025 * side - (width if side < 0 else 0)
        for low, high, height in taken:
            y = max(y, height + 0.055) if low < start + width and start < high else y
        taken.append((start, start + width, y))
        place = {"xytext": (x + 0.025 * side, y), "textcoords": "axes fraction", "ha": "left" if side > 0 else "right"}
        axes.annotate(name, point, va="center", fontsize=9, color=_INK, **place)


def _save(figure: Any, path: str | Path) -> Path:
    with atomic_file(path) as temporary:
        figure.savefig(temporary, format="png")
    return Path(path)
