"""A scene by tiles: steps that may be done in any process, and twice; their files; and from these a video, row by row.

answers-GROUP.pt       what all tiles of a group of snapshots must agree on, and the time it took to find out
tile-GROUP-TILE.npy    what is blended of a tile
tile-GROUP-TILE.pt     how it was reached; written before the tile, which says that both are there
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unsnap.io.atomic import atomic_file
from unsnap.io.sink import Sink
from unsnap.kernels.memory import MUCH, give_back
from unsnap.methods import Method
from unsnap.metrics import psnr, ssim
from unsnap.tiling.blend import blended, kept
from unsnap.tiling.plan import Plan, Tile
from unsnap.tiling.solve import Part, reconstruct, survey
from unsnap.tiling.source import Source

Array = NDArray[Any]


@dataclass(frozen=True)
class Outcome:
    """How the video as a whole was reached, from how its tiles were."""

    residual: float
    converged: bool
    diverged: bool
    iterations: int
    seconds: float
    cpu_seconds: float


@dataclass(frozen=True)
class Steps:
    """What is to be done with a scene: of every group of snapshots one survey, then all tiles, in any order.

    Step 0 of a group is its survey, step k + 1 its tile k; `group * (tiles + 1)` comes before that. together: the
    snapshots help one another, so that they are one group; else each is its own. options: of `survey` and
    `reconstruct`.
    """

    source: Source
    method: Method
    plan: Plan
    together: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def groups(self) -> list[list[int]]:
        every = list(range(self.source.snapshots))
        return [every] if self.together else [[k] for k in every]

    @property
    def _each(self) -> int:
        return len(self.plan.tiles) + 1

    def left(self, folder: Path) -> list[int]:
        """Steps that can be done now, because their files are not in the folder; none if all have been."""
        every = range(len(self.groups) * self._each)
        missing = [step for step in every if not self._file(step, folder).exists()]
        return [step for step in missing if step % self._each == 0] or missing

    def do(self, step: int, folder: Path, check: Callable[[], None] = lambda: None) -> None:
        """One of them, unless it has been done; `check` is asked before anything is written."""
        path, (group, place) = self._file(step, folder), divmod(step, self._each)
        if path.exists():
            return
        give_back(MUCH)  # what the tile before has left
        started = time.perf_counter(), time.process_time()
        chosen, options = self.groups[group], {**self.options, "together": self.together}
        if place == 0:
            scene = self.source.sample(self.plan.largest).pick(chosen)
            facts: dict[str, Any] = {"answers": survey(scene, self.method, **options)}
        else:
            tile = self.plan.tiles[place - 1]
            answers = torch.load(self._file(group * self._each, folder), weights_only=True)["answers"]
            scene = self.source.window(tile.rows.window, tile.columns.window).pick(chosen)
            found = reconstruct(scene, self.method, answers, **options)
            facts = {"part": vars(found.without_video())}
        facts["spent"] = time.perf_counter() - started[0], time.process_time() - started[1]
        check()
        buffer = io.BytesIO()  # torch.save to a path reports a full disk as an error of its own kind
        torch.save(facts, buffer)
        with atomic_file(path.with_suffix(".pt")) as temporary:
            temporary.write_bytes(buffer.getbuffer())
        if place:
            with atomic_file(path) as temporary:
                np.save(temporary, kept(found.x, tile).reshape(-1, *_size(tile)))

    def run(self, folder: Path, told: Callable[[int, int], None] | None = None) -> None:
        """All of them, one after the other; told(tiles done, of) after each."""
        total = len(self.groups) * len(self.plan.tiles)
        while steps := self.left(folder):
            for step in steps:
                self.do(step, folder)
                if told is not None:
                    told(len(list(folder.glob("tile-*.npy"))), total)

    def outcome(self, folder: Path) -> Outcome:
        """The verdict on the whole."""
        tol = self.options.get("tol")
        parts: list[list[Part]] = [[] for _ in self.groups]
        wall = cpu = 0.0
        for step in range(len(parts) * self._each):
            facts = torch.load(self._file(step, folder).with_suffix(".pt"), weights_only=True)
            wall, cpu = wall + facts["spent"][0], cpu + facts["spent"][1]
            if step % self._each:
                parts[step // self._each].append(Part(**facts["part"]))
        return outcome(parts, self.method.tol if tol is None else tol, (wall, cpu))

    def assemble(self, folder: Path, put: Callable[[int, int, slice, Array], None]) -> None:
        """Blend the tiles: put(snapshot, plane, rows, picture); planes are frames, colour after colour."""
        planes = self.source.video[0]
        for group, chosen in enumerate(self.groups):

            def load(tile: Tile, frame: int, first: int = group * self._each) -> Array:
                # Mapped anew for every frame: what has been read of a map stays in memory as long as the map.
                part: Array = np.load(self._file(first + 1 + tile.index, folder), mmap_mode="r")[frame]
                return part

            for plane, rows, picture in blended(self.plan, len(chosen) * planes, load):
                put(chosen[plane // planes], plane % planes, rows, picture)

    def _file(self, step: int, folder: Path) -> Path:
        """Which is there when the step has been done."""
        group, place = divmod(step, self._each)
        return folder / (f"tile-{group:05d}-{place - 1:05d}.npy" if place else f"answers-{group:05d}.pt")


def outcome(parts: list[list[Part]], tol: float, spent: tuple[float, float]) -> Outcome:
    """From how the tiles of every group were reached: the change of the whole is theirs, each counted by its energy."""
    changes, fine, broken = [], [], []
    for tiles in parts:
        energy = torch.stack([part.energy for part in tiles])
        change = torch.stack([part.residual.double() for part in tiles])
        changes.append(((change.square() * energy).sum(0) / energy.sum(0).clamp(min=1e-300)).sqrt())
        # A tile that hardly holds anything may change by more than the tolerance, but not the picture.
        settled = torch.stack([part.converged | (part.residual > tol) for part in tiles]).all(0)
        fine.append((changes[-1] <= tol) & settled)
        broken.append(torch.stack([part.diverged for part in tiles]).any(0))
    diverged = bool(torch.cat([b.reshape(-1) for b in broken]).any())
    converged = bool(torch.cat([f.reshape(-1) for f in fine]).all()) and not diverged
    most = max(float(change.max()) for change in changes)
    return Outcome(most, converged, diverged, max(part.iterations for tiles in parts for part in tiles), *spent)


def _size(tile: Tile) -> tuple[int, int]:
    return tile.rows.fade_stop - tile.rows.fade_start, tile.columns.fade_stop - tile.columns.fade_start


def into(sink: Sink, frames: int) -> Callable[[int, int, slice, Array], None]:
    """Planes to the frames, and colours, of a sink."""

    def put(snapshot: int, plane: int, rows: slice, picture: Array) -> None:
        sink.put(snapshot * frames + plane % frames, rows, picture, plane // frames)

    return put


def scores(source: Source, sink: Sink, frames: int) -> dict[str, Any]:
    """PSNR and SSIM as `Result` has them, frame by frame; nothing where the truth is not known."""
    found: list[tuple[float, float]] = []
    for snapshot in range(source.snapshots):
        values = []
        for plane in range(source.video[0]):
            truth = source.truth(snapshot, plane)
            if truth is None:
                break
            frame = sink[snapshot * frames + plane % frames]
            x = torch.from_numpy(np.array(frame[..., plane // frames] if frame.ndim == 3 else frame))[None]
            values.append((float(psnr(x, truth[None])), float(ssim(x, truth[None]))))
        if not values or len(values) < source.video[0]:
            break
        found.append((sum(p for p, _ in values) / len(values), sum(s for _, s in values) / len(values)))
    if not found:
        return {}
    first, second = ([pair[k] for pair in found] for k in range(2))
    return {
        "psnr": sum(first) / len(first),
        "ssim": sum(second) / len(second),
        "psnr_per_snapshot": first,
        "ssim_per_snapshot": second,
    }
