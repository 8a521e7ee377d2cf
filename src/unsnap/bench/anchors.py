"""What others have published for the field's grey scenes, to be drawn beside what was measured.

PSNR in dB, mean over all snapshots of a scene: DeSCI (Liu et al., TPAMI 2019; 6,180 s on a CPU) and, with a GPU,
PnP-FastDVDnet (Yuan et al., TPAMI 2021), GAP-net (Meng et al. 2020), BIRNAT (Cheng et al., TPAMI 2022) and STFormer-B
(Wang et al., TPAMI 2023).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

PUBLISHED = {
    "DeSCI, 6180 s": {"drop": 43.10, "traffic": 28.71, "crash": 27.04},
    "PnP-FastDVDnet": {"drop": 41.82, "traffic": 27.95, "crash": 27.32},
    "GAP-net": {"drop": 41.11, "traffic": 27.67, "crash": 28.00},
    "BIRNAT": {"drop": 42.28, "traffic": 29.33, "crash": 27.84},
    "STFormer-B": {"drop": 44.99, "traffic": 32.12, "crash": 31.17},
}


def anchors(scenes: Iterable[str]) -> dict[str, float]:
    """Mean over these scenes of every published method that knows them all; none if a scene is not one of the field's.

    >>> anchors(["drop8_cacti", "crash8_cacti"])["STFormer-B"]
    38.08
    """
    names = [found[0] if (found := re.match("[a-z]+", scene.lower())) else "" for scene in dict.fromkeys(scenes)]
    if not names or len(set(names)) < len(names):
        return {}
    known = {method: figures for method, figures in PUBLISHED.items() if set(names) <= figures.keys()}
    return {method: round(sum(figures[n] for n in names) / len(names), 2) for method, figures in known.items()}
