"""The pictures of the cookbook. Each has a title, which is also its name on the web site."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Values = Any  # a tensor, an array or a list of numbers


def curves(
    title: str,
    lines: Mapping[str, Values],
    *,
    x: Values = None,
    xlabel: str = "iteration",
    ylabel: str = "",
    log: bool = False,
    dashed: Sequence[str] = (),
) -> None:
    """One line per name, against x or from 1 on; `dashed` are those that theory predicts."""
    figure, axis = _figure(title)
    for k, (name, values) in enumerate(lines.items()):
        along = range(1, len(values) + 1) if x is None else _numbers(x)
        style = {"linestyle": "--", "color": "black", "alpha": 0.4 + 0.6 / (k + 1)} if name in dashed else {}
        axis.plot(along, _numbers(values), label=name, linewidth=1.4, marker="" if len(values) > 12 else ".", **style)
    axis.set_xlabel(xlabel)
    axis.set_ylabel(ylabel)
    axis.set_yscale("log" if log else "linear")
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8)
    figure.tight_layout(pad=0.4)


def pictures(title: str, shown: Mapping[str, Values], columns: int = 5, high: float | None = None) -> None:
    """Grey pictures (H, W) in rows, each with its caption; white is 1, or the brightest value, or `high`."""
    from matplotlib import pyplot as plt

    rows = -(-len(shown) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(1.75 * columns, 1.95 * rows), squeeze=False)
    figure.set_label(title)
    for axis in axes.flat:
        axis.axis("off")
    for axis, (caption, picture) in zip(axes.flat, shown.items(), strict=False):
        grey = _numbers(picture)
        white = max(1.0, float(grey.max())) if high is None else high
        axis.imshow(grey, cmap="gray", vmin=0, vmax=white, interpolation="nearest")
        axis.set_title(caption, fontsize=8)
    figure.tight_layout(pad=0.4)


def plane(title: str, points: Mapping[str, Values]) -> None:
    """Complex numbers and the unit circle."""
    import numpy as np

    figure, axis = _figure(title, width=4.4, height=4.0)
    turn = np.exp(2j * np.pi * np.linspace(0, 1, 200))
    axis.plot(turn.real, turn.imag, color="black", linewidth=0.8)
    for name, values in points.items():
        numbers = _numbers(values)
        axis.scatter(numbers.real, numbers.imag, s=12, alpha=0.6, label=name)
    axis.set_aspect("equal", "datalim")
    axis.set_xlabel("real part")
    axis.set_ylabel("imaginary part")
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8)
    figure.tight_layout(pad=0.4)


def image(title: str, table: Values, rows: Sequence[Any], columns: Sequence[Any], *, ylabel: str, xlabel: str) -> None:
    """A table of numbers as coloured cells; NaN is empty and reads "–"."""
    import numpy as np

    numbers = _numbers(table).astype(float)
    figure, axis = _figure(title, width=0.75 * len(columns) + 1.5, height=0.42 * len(rows) + 1.1)
    axis.imshow(np.log(numbers), cmap="viridis_r", aspect="auto", alpha=0.5)
    for (i, j), number in np.ndenumerate(numbers):
        axis.text(j, i, f"{number:.3g}" if np.isfinite(number) else "–", ha="center", va="center", fontsize=8)
    axis.set_xticks(range(len(columns)), [f"{c:g}" for c in columns])
    axis.set_yticks(range(len(rows)), [f"{r:g}" for r in rows])
    axis.set_xlabel(xlabel)
    axis.set_ylabel(ylabel)
    figure.tight_layout(pad=0.4)


def pipelines(title: str, chains: Mapping[str, Sequence[str]]) -> None:
    """For each name a row of boxes, left to right, whose last result goes back to the first."""
    _, axis = _figure(title, width=8.0, height=1.5 * len(chains) + 0.4)
    axis.axis("off")
    axis.set_xlim(-0.5, max(len(chain) for chain in chains.values()) - 0.5)
    axis.set_ylim(-len(chains) * 1.45 + 0.45, 0.75)
    for row, (name, chain) in enumerate(chains.items()):
        y = -1.45 * row
        axis.text(-0.4, y + 0.5, name, fontsize=10, weight="bold", va="center")
        boxes = []
        for k, text in enumerate(chain):
            style = {"boxstyle": "round,pad=0.5", "facecolor": "#dfe8f5" if 0 < k < len(chain) - 1 else "white"}
            label = axis.text(k, y, text, ha="center", va="center", fontsize=8.5, bbox=style, zorder=3)
            boxes.append(label.get_bbox_patch())
        for k in range(1, len(chain)):
            _arrow(axis, (k - 1, y), (k, y), "arc3", boxes[k - 1], boxes[k])
        last = len(chain) - 1
        _arrow(axis, (last, y), (0, y), "arc3,rad=-0.22", boxes[-1], boxes[0])
        axis.text(last / 2, y - 0.8, "until nothing changes", ha="center", va="center", fontsize=8, style="italic")


def _arrow(axis: Any, start: tuple[float, float], end: tuple[float, float], bend: str, a: Any, b: Any) -> None:
    style = {"arrowstyle": "->", "connectionstyle": bend, "patchA": a, "patchB": b, "linewidth": 1.2}
    axis.annotate("", xy=end, xytext=start, arrowprops=style)


def _numbers(values: Values) -> Any:
    import numpy as np

    return values.detach().numpy() if hasattr(values, "detach") else np.asarray(values)


def _figure(title: str, width: float = 6.0, height: float = 3.2) -> tuple[Any, Any]:
    from matplotlib import pyplot as plt

    figure, axis = plt.subplots(figsize=(width, height))
    figure.set_label(title)
    axis.set_title(title, fontsize=9)
    return figure, axis
