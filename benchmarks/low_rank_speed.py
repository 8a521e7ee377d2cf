"""Groups of similar patches found and filtered: `GroupFilter` against `WNNM`, the same groups, one thread.

    python benchmarks/low_rank_speed.py [--json PATH]

Processor time per reference patch, one after the other; WNNM's grows with the rank that it keeps, so it is shown at
two strengths on a video with noise of 0.05.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from common import cpu_seconds, finish, show
from unsnap.priors import WNNM, GroupFilter
from unsnap.simulate import render

SETTINGS = ((10, 16, 8, 7), (12, 24, 10, 7), (12, 32, 10, 7), (12, 32, 6, 9))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    video = render(8, 256, 256)
    video = video + 0.05 * torch.randn(video.shape, generator=torch.Generator().manual_seed(0))
    rows = []
    for numbers in SETTINGS:
        new, old = GroupFilter(*numbers), WNNM(*numbers)
        ours, theirs = new.match(video), old.match(video)
        row = {"patch/group/stride/radius": "/".join(map(str, numbers))}
        pairs = {"match": (lambda: new.match(video), lambda: old.match(video))}  # noqa: B023
        for sigma in (20, 5):
            pairs[f"filter, σ {sigma}"] = (
                lambda s=sigma / 255: new.shrink(video, ours, s),  # noqa: B023
                lambda s=sigma / 255: old.shrink(video, theirs, s),  # noqa: B023
            )
        for name, works in pairs.items():
            fast, slow = (1e6 * cpu_seconds(work, 3) / len(ours) for work in works)
            row |= {f"{name}: µs": fast, f"{name}: ratio": slow / fast}
        rows.append(row)
    show("GroupFilter against WNNM, microseconds per reference patch", rows)
    finish(options.json, rows)


if __name__ == "__main__":
    main()
