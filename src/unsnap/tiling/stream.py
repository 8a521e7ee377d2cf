"""All tiles of a scene, one after the other, into a folder; and from there into a video, rows as they come."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from unsnap.io.sink import Sink
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


def groups(source: Source, together: bool) -> list[list[int]]:
    """Snapshots that are reconstructed at a time: all, if they help one another, else each alone."""
    every = list(range(source.snapshots))
    return [every] if together else [[k] for k in every]


def run(
    source: Source,
    method: Method,
    plan: Plan,
    folder: Path,
    *,
    iterations: int | None = None,
    tol: float | None = None,
    seed: int | None = None,
    together: bool = False,
    told: Callable[[int, int], None] | None = None,
) -> Outcome:
    """Reconstruct every tile into a file of the folder; told(done, of) after each."""
    begun = time.perf_counter(), time.process_time()
    parts: list[list[Part]] = []
    sets = groups(source, together)
    options: dict[str, Any] = {"iterations": iterations, "tol": tol, "seed": seed, "together": together}
    for number, chosen in enumerate(sets):
        answers = survey(source.sample(plan.largest).pick(chosen), method, **options)
        parts.append([])
        for tile in plan.tiles:
            scene = source.window(tile.rows.window, tile.columns.window).pick(chosen)
            found = reconstruct(scene, method, answers, **options)
            np.save(tile_file(folder, number, tile), kept(found.x, tile).reshape(-1, *_size(tile)))
            parts[-1].append(found.without_video())
            if told is not None:
                told(number * len(plan.tiles) + tile.index + 1, len(sets) * len(plan.tiles))
    spent = time.perf_counter() - begun[0], time.process_time() - begun[1]
    return outcome(parts, method.tol if tol is None else tol, spent)


def outcome(parts: list[list[Part]], tol: float, spent: tuple[float, float]) -> Outcome:
    """The verdict on the whole: its relative change is that of its tiles, each counted by its energy."""
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


def tile_file(folder: Path, group: int, tile: Tile) -> Path:
    return folder / f"tile-{group:05d}-{tile.index:05d}.npy"


def _size(tile: Tile) -> tuple[int, int]:
    return tile.rows.fade_stop - tile.rows.fade_start, tile.columns.fade_stop - tile.columns.fade_start


def assemble(source: Source, plan: Plan, folder: Path, put: Callable[[int, int, slice, Array], None]) -> None:
    """Blend the files of tiles: put(snapshot, plane, rows, picture); planes are frames, colour after colour."""
    planes = source.video[0]
    count = len(list(folder.glob("tile-*-00000.npy")))
    for number in range(count):

        def load(tile: Tile, group: int = number) -> Array:
            part: Array = np.load(tile_file(folder, group, tile), mmap_mode="r")
            return part

        each = source.snapshots // count
        for plane, rows, picture in blended(plan, each * planes, load):
            put(number * each + plane // planes, plane % planes, rows, picture)


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
