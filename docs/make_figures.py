"""Make the picture of the front page from the built-in scene: `python docs/make_figures.py [FOLDER]`.

The pages of the cookbook draw theirs themselves.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import torch
from PIL import Image
from torch import Tensor

from unsnap import reconstruct
from unsnap.masks import bernoulli
from unsnap.simulate import render

mpl.use("Agg")
from matplotlib import pyplot as plt

SIZE, FRAMES, SEED = 128, 8, 0


def show(path: Path, pictures: Sequence[tuple[str, Tensor]], columns: int) -> None:
    """Grey pictures in rows, each with its caption."""
    rows = -(-len(pictures) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(1.75 * columns, 1.95 * rows), squeeze=False)
    for axis in axes.flat:
        axis.axis("off")
    for axis, (caption, picture) in zip(axes.flat, pictures, strict=False):
        axis.imshow(picture, cmap="gray", vmin=0, vmax=max(1.0, float(picture.max())), interpolation="nearest")
        axis.set_title(caption, fontsize=8)
    save(figure, path)
    with Image.open(path) as picture:
        grey = picture.convert("L")
    grey.save(path, optimize=True)


def save(figure: Any, path: Path) -> None:
    figure.tight_layout(pad=0.4)
    figure.savefig(path, dpi=100, bbox_inches="tight", metadata={"Software": None})
    plt.close(figure)


def overview(folder: Path) -> None:
    truth = render(FRAMES, SIZE, SIZE, seed=SEED)
    masks = bernoulli(FRAMES, SIZE, SIZE, generator=torch.Generator().manual_seed(SEED))
    y = (masks * truth).sum(0)
    video = reconstruct(y, masks).x.clamp(0, 1)
    chosen = (0, 3, 7)
    found = [("the snapshot", y), *((f"frame {t + 1}, reconstructed", video[t]) for t in chosen)]
    true = [("one of the masks", masks[0]), *((f"frame {t + 1}, true", truth[t]) for t in chosen)]
    show(folder / "overview.png", [*found, *true], columns=4)


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "img"
    folder.mkdir(parents=True, exist_ok=True)
    overview(folder)
