"""Reconstruct a picture by tiles, when all of it is more than memory, or when asked to."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor

from unsnap import __version__, tiling
from unsnap.cli.common import Reading, Running, err, heed_findings, remark
from unsnap.errors import InputError, printable
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
from unsnap.run import Result, peak_rss_mb, reset_peak, resolve_device
from unsnap.scene import Scene
from unsnap.tiling.plan import plan, reach
from unsnap.tiling.source import Source
from unsnap.tiling.stream import assemble, into, run, scores

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
    heed_findings(diagnose(source.window(*middle)), file, quiet, anyway)
    return source


def reconstruct(
    source: Source,
    method: Method,
    running: Running,
    folder: Path,
    target: Path | None,
    *,
    side: int | None,
    together: bool,
    sha256: str | None,
    quiet: bool,
    plain: bool,
) -> Tiled:
    """All tiles of a scene, blended into a video in the folder. plain: no option asks for the video as a whole."""
    place = resolve_device(running.device)
    if place.type != "cpu":
        raise InputError(f"tiles are reconstructed on the processor, not on {place}; leave out --device or --tile")
    room = budget.left()
    frames, look = source.operator.frames, source.corner.video_options
    size = 4 * source.snapshots * int(np.prod(source.video))
    fits, kind = _COPIES * size < room, find(FOLDER if target is None else output_suffix(target))
    if not fits and target is not None and not (plain and (kind.stream or kind.by_frames)):
        raise InputError(
            f"{target}: a video of {budget.in_words(size)} does not fit into memory, as this format, or what is asked "
            f"of it, needs; write {', '.join(suffixes(lambda kind: kind.stream))}, .mp4 or a folder of frames, without "
            f"other options, or give --memory {-(-_COPIES * size // 2**30)}G"
        )
    at_once = source.snapshots if together else 1
    around = reach(method, source.operator) if max(source.spread) else None
    tiles = plan(source.video, method, int(SHARE * room), around=around, side=side, snapshots=at_once)
    remark(f"{len(tiles.tiles)} tiles of up to {_largest(tiles)} pixels with their surroundings.", quiet)
    reset_peak()
    with _bar(method.name, quiet) as told:
        options = {name: value for name, value in vars(running).items() if name != "device"}
        found = run(source, method, tiles, folder, together=together, told=told, **options)
    shape: tuple[int, ...] = (source.snapshots * frames, *source.video[1:])
    create = kind.stream or plain_numbers
    sink = create(folder / "video", (*shape, 3) if look["colour"] else shape, look["wavelengths"])
    if not found.diverged:
        assemble(source, tiles, folder, into(sink, frames))
    known = {} if found.diverged else scores(source, sink, frames)
    facts: dict[str, Any] = {"psnr": None, "ssim": None, "psnr_per_snapshot": None, "ssim_per_snapshot": None, **known}
    result = Result(
        method=method.name,
        scene=str(source.corner.meta.get("name", "scene")),
        snapshots=source.snapshots,
        frames=frames,
        height=source.video[1],
        width=source.video[2],
        peak_rss_mb=peak_rss_mb(),
        tolerance=method.tol if running.tol is None else running.tol,
        device=str(place),
        seed=running.seed,
        together=together,
        output=None,
        input_sha256=sha256,
        unsnap_version=__version__,
        torch_version=torch.__version__,
        **facts,
        **vars(found),
    )
    return Tiled(source, sink, result, fits)


def _largest(tiles: tiling.Plan) -> str:
    return "×".join(str(max(s.high - s.low for s in spans)) for spans in (tiles.rows, tiles.columns))


@contextmanager
def _bar(name: str, quiet: bool) -> Iterator[Callable[[int, int], None] | None]:
    if quiet or not err.is_terminal:
        yield None
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task(printable(f"{name}, tiles"), total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def needed(scene: Scene, method: Method) -> int:
    """Bytes that the method takes for all snapshots of a scene at once."""
    return method.footprint * scene.snapshots * int(np.prod(scene.operator.video))
