"""Reconstruct a picture by tiles, when all of it is more than memory, or when asked to."""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from unsnap import __version__, tiling
from unsnap.cli.common import WARNINGS, Reading, Running, err, heed_findings, remark
from unsnap.errors import InputError
from unsnap.io import budget
from unsnap.io.atomic import folder_for, writing
from unsnap.io.checks import Array
from unsnap.io.formats import FOLDER, find, suffixes
from unsnap.io.leftovers import beside
from unsnap.io.outputs import output_suffix
from unsnap.io.sink import Sink
from unsnap.io.sink import npy as plain_numbers
from unsnap.io.windows import open_windows
from unsnap.methods import Method
from unsnap.progress import bar
from unsnap.run import Result, peak_rss_mb, reset_peak, resolve_device
from unsnap.scene import Scene
from unsnap.tiling.plan import plan, reach
from unsnap.tiling.source import Source
from unsnap.tiling.stream import Steps, into, scores

SHARE = 0.8
"""Of the memory that is left, for one tile: the rest is for blending, and for what an allocator keeps."""
_COPIES = 4
"""Of a video, while it is written as a whole"""


@dataclass(frozen=True)
class Tiled:
    """The video of a scene, on the disk, and what became of it."""

    source: Source
    sink: Sink
    result: Result
    fits: bool
    """May the video be taken into memory?"""

    def video(self) -> Tensor:
        """(N, planes, H, W)."""
        frames = torch.from_numpy(np.stack(list(self.sink)))
        if frames.ndim == 3:
            return frames.reshape(-1, *self.source.video)
        each = frames.reshape(self.source.snapshots, -1, *frames.shape[1:])  # (N, T, H, W, 3)
        return each.permute(0, 4, 1, 2, 3).reshape(self.source.snapshots, *self.source.video)

    def some(self) -> Tensor:
        """About a million pixels from all over it."""
        step = 1 + math.prod(self.sink.shape) // 10**6
        # Copies: a view would keep all of its frame.
        return torch.from_numpy(np.stack([frame.reshape(-1)[::step].copy() for frame in self.sink]))

    def save(self, path: Path, fps: float, overwrite: bool) -> None:
        """Give the video its name, or write it frame by frame in a format that is not streamed."""
        kind = find(output_suffix(path))
        with kind.writing(path, overwrite) as temporary:
            if kind.stream is None:
                if kind.write_video is not None:
                    kind.write_video(temporary, cast(Array, self.sink), fps)
                return
            for file in dict.fromkeys(place for place, _ in self.sink.places):
                os.replace(file, temporary / file.name if kind.folder else temporary)  # noqa: PTH105
                if kind.folder:
                    for other in file.parent.iterdir():
                        if other.name.startswith(".z"):
                            os.replace(other, temporary / other.name)  # noqa: PTH105


@contextmanager
def scratch(target: Path | None) -> Iterator[Path]:
    """A hidden folder beside the output, which is gone at the end, whatever happens."""
    if target is None:
        with tempfile.TemporaryDirectory(prefix="unsnap-") as name:
            yield Path(name)
        return
    real = Path(os.path.realpath(target))
    with writing(target), folder_for(real):
        folder = beside(real, "")
        folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def of_file(file: Path, reading: Reading, folder: Path, quiet: bool, anyway: bool) -> Source | None:
    """The scene of a file, to be read by windows; None if it cannot be."""
    from unsnap.doctor import diagnose

    def unpacked() -> Path:
        place = folder / f"unpacked-{len(list(folder.iterdir()))}"
        place.mkdir()
        return place

    windows = open_windows(file, unpacked, **reading.options())
    if windows is None:
        return None
    source = tiling.of_file(windows)
    middle = [slice(max(n // 2 - 128, 0), min(n // 2 + 128, n)) for n in source.video[1:]]
    said = heed_findings(diagnose(source.window(*middle)), file, quiet, anyway)
    return replace(source, corner=replace(source.corner, meta={**source.corner.meta, WARNINGS: said}))


@dataclass(frozen=True)
class Job:
    """A scene to be reconstructed by tiles, in steps whose files are in one folder; another is for the video."""

    steps: Steps
    running: Running
    target: Path | None
    scratch: Path
    scene: Scene
    """All of it or a corner, to know the camera by."""
    room: int
    """Bytes that a tile, and what is written, may take."""

    def left(self, folder: Path) -> list[int]:
        return self.steps.left(folder)

    def do(self, step: int, folder: Path, check: Callable[[], None]) -> None:
        self.steps.do(step, folder, check)

    def run(self, folder: Path, quiet: bool) -> None:
        """All steps, one after the other."""
        plan = self.steps.plan
        remark(f"{len(plan.tiles)} tiles of up to {_largest(plan)} pixels with their surroundings.", quiet)
        reset_peak()
        with nullcontext() if quiet else bar(f"{self.steps.method.name}, tiles", err) as tell:
            self.steps.run(folder, None if tell is None else lambda done, total: tell(done, total, ""))

    def video(self, folder: Path, sha256: str | None) -> Tiled:
        """What the steps have left in a folder, blended."""
        source, method = self.steps.source, self.steps.method
        frames, look = source.operator.frames, source.corner.video_options
        found = self.steps.outcome(folder)
        shape: tuple[int, ...] = (source.snapshots * frames, *source.video[1:])
        create = find(FOLDER if self.target is None else output_suffix(self.target)).stream or plain_numbers
        sink = create(self.scratch / "video", (*shape, 3) if look["colour"] else shape, look["wavelengths"] or None)
        if not found.diverged:
            self.steps.assemble(folder, into(sink, frames))
        known = {} if found.diverged else scores(source, sink, frames)
        facts: dict[str, Any] = dict.fromkeys(("psnr", "ssim", "psnr_per_snapshot", "ssim_per_snapshot"))
        result = Result(
            method=method.name,
            scene=str(source.corner.meta.get("name", "scene")),
            snapshots=source.snapshots,
            frames=frames,
            height=source.video[1],
            width=source.video[2],
            peak_rss_mb=peak_rss_mb(),
            tolerance=method.tol if self.running.tol is None else self.running.tol,
            device="cpu",
            seed=self.running.seed,
            together=self.steps.together,
            output=None,
            input_sha256=sha256,
            unsnap_version=__version__,
            torch_version=torch.__version__,
            **{**facts, **known},
            **vars(found),
        )
        return Tiled(source, sink, result, _fits(source, self.room))


def _fits(source: Source, room: int) -> bool:
    """May the video be taken into memory, to be written as a whole?"""
    return _COPIES * _size(source) < room


def _size(source: Source) -> int:
    return 4 * source.snapshots * int(np.prod(source.video))


def job(
    source: Source,
    scene: Scene,
    method: Method,
    running: Running,
    scratch: Path,
    target: Path | None,
    *,
    room: int,
    side: int | None,
    together: bool,
    plain: bool,
) -> Job:
    """The tiles of a scene, of `side` pixels or as large as `room` bytes allow. plain: no option asks for the video as
    a whole."""
    place = resolve_device(running.device)
    if place.type != "cpu":
        raise InputError(f"tiles are reconstructed on the processor, not on {place}; leave out --device or --tile")
    kind, size = find(FOLDER if target is None else output_suffix(target)), _size(source)
    if target is not None and not _fits(source, room) and not (plain and (kind.stream or kind.by_frames)):
        raise InputError(
            f"{target}: a video of {budget.in_words(size)} does not fit into memory, as this format, or what is asked "
            f"of it, needs; write {', '.join(suffixes(lambda kind: kind.stream))}, .mp4 or a folder of frames, without "
            f"other options, or give --memory {-(-_COPIES * size // 2**30)}G"
        )
    at_once = source.snapshots if together else 1
    around = reach(method, source.operator) if max(source.spread) else None
    tiles = plan(source.video, method, int(SHARE * room), around=around, side=side, snapshots=at_once)
    options = {name: value for name, value in vars(running).items() if name != "device"}
    return Job(Steps(source, method, tiles, together, options), running, target, scratch, scene, room)


def _largest(tiles: tiling.Plan) -> str:
    return "×".join(str(max(s.high - s.low for s in spans)) for spans in (tiles.rows, tiles.columns))


def needed(scene: Scene, method: Method) -> int:
    """Bytes that the method takes for all snapshots of a scene at once."""
    return method.footprint * scene.snapshots * int(np.prod(scene.operator.video))
