"""Make the picture of the front page from the built-in scene: `python docs/make_figures.py [FOLDER]`.

The pages of the cookbook draw theirs themselves.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib as mpl
import torch
from PIL import Image

from unsnap import reconstruct
from unsnap.cookbook import pictures
from unsnap.masks import bernoulli
from unsnap.simulate import render

mpl.use("Agg")
from matplotlib import pyplot as plt

SIZE, FRAMES, SEED = 128, 8, 0


def overview(folder: Path) -> None:
    truth = render(FRAMES, SIZE, SIZE, seed=SEED)
    masks = bernoulli(FRAMES, SIZE, SIZE, generator=torch.Generator().manual_seed(SEED))
    y = (masks * truth).sum(0)
    video, chosen = reconstruct(y, masks).x.clamp(0, 1), (0, 3, 7)
    found = {"the snapshot": y} | {f"frame {t + 1}, reconstructed": video[t] for t in chosen}
    true = {"one of the masks": masks[0]} | {f"frame {t + 1}, true": truth[t] for t in chosen}
    pictures("A snapshot and its video", found | true, columns=4)
    path = folder / "overview.png"
    plt.gcf().savefig(path, dpi=100, bbox_inches="tight", metadata={"Software": None})
    with Image.open(path) as picture:
        grey = picture.convert("L")
    grey.save(path, optimize=True)


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "img"
    folder.mkdir(parents=True, exist_ok=True)
    overview(folder)
