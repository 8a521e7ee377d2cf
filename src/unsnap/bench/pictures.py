"""Pictures of results: panes of a film, quality against time, residual per iteration."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unsnap.bench.anchors import anchors
from unsnap.errors import InputError, printable
from unsnap.io import atomic_file
from unsnap.run import Result

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f4fc9", "#4d4d4d")
_MARKERS = ("o", "s", "D", "^", "v", "P", "X", "*")
INK, FAINT = "#222222", "#9a9a9a"
LONGEST = 40  # letters of a name that are drawn


def common_shape(videos: Mapping[str, Tensor]) -> torch.Size:
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


def side_by_side(videos: Mapping[str, Tensor]) -> Tensor:
    """A film (T, H', W') of all videos (T, H, W), each below its name; H' and W' are even, as video codecs want."""
    frames, height, width = common_shape(videos)
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

    text, image = printable(text), Image.new("L", (width, height), 255)
    draw = ImageDraw.Draw(image)
    size = height * 0.72
    while size > 5 and draw.textlength(text, ImageFont.load_default(size)) > width - 4:
        size *= 0.9
    while len(text) > 1 and draw.textlength(text, ImageFont.load_default(size)) > width - 4:
        text = text[:-2] + "…"
    draw.text((width / 2, height / 2), text, fill=34, font=ImageFont.load_default(size), anchor="mm")
    return torch.from_numpy(np.asarray(image, np.float32) / 255)


def psnr_time_plot(results: Sequence[Result], path: str | Path) -> Path:
    """PSNR against processor seconds per snapshot (logarithmic), one marker per method, mean over scenes.

    If all of them are scenes of the field's, dashed lines show what others have published.
    """
    from matplotlib.ticker import LogLocator

    points: dict[str, tuple[float, float]] = {}
    for name in dict.fromkeys(result.method for result in results):
        known = [(r.cpu_seconds / r.snapshots, r.psnr) for r in results if r.method == name and r.psnr is not None]
        if known and all(math.isfinite(quality) for _, quality in known):
            points[name] = tuple(np.mean(known, axis=0).tolist())
    figure, (axes,) = new_plot("CPU seconds per snapshot", "PSNR (dB)")
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_minor_formatter("")
    for (name, (seconds, quality)), colour, marker in zip(
        points.items(), cycle(_COLOURS), cycle(_MARKERS), strict=False
    ):
        axes.plot(seconds, quality, marker, color=colour, markersize=9, markeredgecolor="white", label=label(name))
    if points:
        others = anchors(result.scene for result in results)
        for k, name in enumerate(sorted(others, key=others.__getitem__)):  # neighbours beside each other, not on top
            axes.axhline(others[name], color=FAINT, linewidth=0.8, linestyle="--", zorder=0)
            place = {"transform": axes.get_yaxis_transform(), "va": "bottom", "fontsize": 7, "color": INK}
            axes.text(0.01 + 0.24 * (k % 2), others[name], f"{name}, as published", **place)
        axes.margins(0.25, 0.15)
        _label_points(axes, points)
    else:
        axes.text(0.5, 0.5, "no truth known, so no PSNR", ha="center", color=FAINT, transform=axes.transAxes)
    return _save(figure, path)


def convergence_plot(histories: Mapping[str, Tensor], path: str | Path, *, overwrite: bool = True) -> Path:
    """Relative change per iteration (logarithmic) from histories (iterations,) or (iterations, samples).

    The line is the largest over the samples, the band reaches down to the smallest.
    """
    figure, (axes,) = new_plot("iteration", "relative change")
    axes.set_yscale("log")
    for (name, history), colour in zip(histories.items(), cycle(_COLOURS), strict=False):
        values = history.detach().cpu().reshape(len(history), -1).to(torch.float64).numpy()
        values = np.where(np.isfinite(values) & (values > 0), values, np.nan)
        steps = np.arange(1, len(values) + 1)
        high, low = np.fmax.reduce(values, 1), np.fmin.reduce(values, 1)
        axes.plot(steps, high, color=colour, linewidth=1.8, label=label(name))
        axes.fill_between(steps, low, high, color=colour, alpha=0.18, linewidth=0)
    axes.legend(frameon=False, fontsize=9, labelcolor=INK)
    return _save(figure, path, overwrite)


def spectra_plot(
    cube: Tensor,
    wavelengths: Sequence[float],
    points: Sequence[tuple[int, int]],
    path: str | Path,
    *,
    overwrite: bool = True,
) -> Path:
    """The spectra of a cube (L, H, W) at points (row, column), over the bands' numbers if no wavelengths are known."""
    figure, (axes,) = new_plot("wavelength (nm)" if wavelengths else "band", "intensity")
    for (row, column), colour in zip(points, cycle(_COLOURS), strict=False):
        values = cube[:, row, column].detach().cpu().numpy()
        axes.plot(list(wavelengths or range(len(cube))), values, color=colour, linewidth=1.8, label=f"{row}, {column}")
    axes.legend(frameon=False, fontsize=9, labelcolor=INK, title="row, column")
    return _save(figure, path, overwrite)


def new_plot(*labels: str) -> tuple[Any, tuple[Any, ...]]:
    """Empty diagrams beside one another in the style of all others, from the labels across and up of each."""
    from matplotlib.figure import Figure

    count = len(labels) // 2
    figure = Figure(figsize=(6.4 if count == 1 else 4.8 * count, 4.2), dpi=150, layout="constrained", facecolor="white")
    found = tuple(figure.add_subplot(1, count, k + 1) for k in range(count))
    for axes, across, up in zip(found, labels[::2], labels[1::2], strict=True):
        axes.set_xlabel(across, color=INK)
        axes.set_ylabel(up, color=INK)
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set_color(FAINT)
        axes.tick_params(which="both", color=FAINT, labelcolor=INK, labelsize=9)
        axes.grid(which="major", color="#e6e6e6", linewidth=0.8)
        axes.set_axisbelow(True)
    return figure, found


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
        axes.annotate(label(name), point, va="center", fontsize=9, color=INK, **place)


def label(name: str) -> str:
    """A name as matplotlib draws it, letter by letter: a $ begins no formula and a _ hides nothing."""
    text = printable(name)
    text = text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
    return (" " if text.startswith("_") else "") + text.replace("$", r"\$")


def _save(figure: Any, path: str | Path, overwrite: bool = True) -> Path:
    with atomic_file(path, overwrite=overwrite) as temporary, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # letters that the font lacks are drawn as boxes
        figure.savefig(temporary, format="png")
    return Path(path)
