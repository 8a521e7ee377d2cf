"""A task, and what a worker does with it: the same whoever does it, wherever, and however often."""

from __future__ import annotations

import errno
import json
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from unsnap import __version__
from unsnap.campaign.folder import Folder, Record, Stamp, TilePlan, digest, revived, size_of, stamp
from unsnap.errors import InputError, sentence
from unsnap.fields import finite
from unsnap.io import sha256
from unsnap.io.atomic import atomic_file
from unsnap.io.budget import TooLargeError, left, memory, passing
from unsnap.io.checks import existing
from unsnap.metrics import score
from unsnap.run import Result
from unsnap.scene import Scene

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""A worker that may write no more: its disk is full, its quota is used up, its files are limited."""
MOST_DEATHS = 8
"""Workers that may die of one task, or by chance during it, before it is given up."""
VERSIONS = {"unsnap": __version__, "torch": str(torch.__version__)}
_ONE = threading.Lock()
"""A worker with several threads does one task at a time: torch's seed is the whole process's."""


class Work(Hashable, Protocol):
    """What is done with every file; it goes to the workers, so it holds names and numbers only."""

    def __call__(self, file: Path, target: Path, overwrite: bool, /) -> Result:
        """All of it in one go: read, reconstruct, write."""

    def settings(self) -> Mapping[str, Any]:
        """All that decides the bytes of the videos, beside the file."""

    def read(self, file: Path) -> Scene:
        """The scene in a file; an InputError if it cannot be reconstructed."""

    def parts(self, scene: Scene) -> int:
        """Into how many pieces, each a task, the scene may be cut; 1 if they help one another, 0 if only tiles of it
        fit into the memory."""

    def cut(self, scene: Scene, part: int) -> Scene:
        """One of them."""

    def solve(self, scene: Scene, sha: str) -> tuple[Tensor, Result]:
        """The video (N, *video) of a scene or a piece of it."""

    def write(self, scene: Scene, video: Tensor, result: Result, target: Path, overwrite: bool) -> Result:
        """The video as a file; the result says which."""

    def tiles(self, file: Path, target: Path, scene: Scene | None, room: int, /) -> AbstractContextManager[Tiles]:
        """A file by tiles that take `room` bytes. scene: what is in it, or None if it is read window by window."""

    def write_tiles(self, tiles: Any, folder: Path, sha: str, overwrite: bool) -> Result:
        """The video of tiles that are all in the folder."""


class Tiles(Protocol):
    """A file in steps, each a task; every step leaves a file in the same folder."""

    def left(self, folder: Path) -> list[int]:
        """Those that can be done now, because they have not been; none if all have been."""

    def do(self, step: int, folder: Path, check: Callable[[], None]) -> None:
        """One of them, unless it has been done; `check` is asked before anything is written."""


@dataclass(frozen=True)
class Task:
    """A file to reconstruct, or one part of it; `target` is its video's name."""

    file: Path
    target: Path
    part: int | None = None
    campaign: str = ""
    """Digest of the settings."""
    memory: int | None = None
    """Bytes that reading may use."""
    force: bool = False
    """Replace what is there under the target's name, whoever wrote it."""

    @property
    def key(self) -> str:
        """A name for it, the same in every run."""
        return digest([str(self.file), str(self.target), self.part, self.campaign])


@dataclass(frozen=True)
class Outcome:
    """What became of a task: a result, parts that must be done first, or a sentence."""

    result: Result | None = None
    missing: tuple[int, ...] = ()
    error: str | None = None
    died: bool = False
    """Its worker did, and nobody knows why."""
    full: bool = False
    """The worker's disk was full; another one's may not be."""
    refused: bool = False
    """The worker must not work for us."""
    worker: str = ""
    seconds: float = 0.0


def perform(work: Work, task: Task, versions: dict[str, str], worker: str = "") -> Outcome:
    """Do a task on one thread of this process; what goes wrong is a sentence in its outcome."""
    if versions != VERSIONS:
        return Outcome(refused=True, error=told(versions, VERSIONS), worker=worker)
    with one_thread():
        started = time.monotonic()
        return replace(_attempt(work, task), worker=worker, seconds=time.monotonic() - started)


@contextmanager
def one_thread() -> Iterator[None]:
    """One task at a time in this process, on one thread: others have the other cores."""
    with _ONE:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)


def told(wanted: Mapping[str, str], found: Mapping[str, str]) -> str:
    """Two sets of versions that differ, in words."""
    here, there = (", ".join(f"{name} {version}" for name, version in sorted(v.items())) for v in (wanted, found))
    return f"it has {there}, and this run needs {here}"


def _attempt(work: Work, task: Task) -> Outcome:
    folder = Folder(task.target.parent)
    try:
        folder.check(task.campaign)
        before = folder.tried(task.key)
        if before >= MOST_DEATHS:
            raise InputError(
                f"{task.file} was given up: {before} workers died while they worked on it, perhaps for want of memory; "
                "try it alone, or a part of it (--roi, --snapshots)"
            )
        with memory(task.memory) if task.memory is not None else nullcontext():
            outcome = _whole(work, task, folder) if task.part is None else _part(work, task, folder)
    except InputError as error:
        cause = error.__cause__
        full = isinstance(cause, OSError) and cause.errno in FULL
        outcome = Outcome(error=str(error), full=full)
    except MemoryError:
        outcome = Outcome(error=f"{task.file} needs more memory than there is here; take a part of it (--roi)")
    except OSError as error:
        reason = error.strerror or error
        outcome = Outcome(error=f"{task.file} cannot be used ({reason}); check the path and its permissions")
    except Exception as error:  # noqa: BLE001 (the other files are worth more than the traceback of this one)
        what = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        known = sentence(error) or f"something unforeseen happened ({what}); repeat it alone and report it"
        outcome = Outcome(error=f"{task.file}: {known}")
    folder.ended(task.key)
    return outcome


# ---------------------------------------------------------------------- reading, solving, writing


def _whole(work: Work, task: Task, folder: Folder) -> Outcome:
    record, seen = folder.record(task.target), _stamp(task.file)
    sha = _sha(task.file, seen)
    plan = folder.plan(_tiles_key(task, sha)) or _by_tiles(work, task, folder, sha, seen)
    if plan is not None:
        with _tiled(work, task, plan, seen) as tiles:
            place = folder.tiles(_tiles_key(task, sha))
            if missing := tuple(tiles.left(place)):
                return Outcome(missing=missing)
            return _written(
                task, folder, record, sha, seen, lambda force: work.write_tiles(tiles, place, sha, force), [place]
            )
    scene, paths = _read(work, task, seen), []
    count = work.parts(scene)
    if count == 1:
        video, result = work.solve(scene, sha)
    else:
        paths = [folder.part(_part_key(task, sha, k)) for k in range(count)]
        missing = tuple(k for k, path in enumerate(paths) if not path.exists())
        if missing:
            return Outcome(missing=missing)
        video, result = _joined(scene, paths)
    return _written(
        task, folder, record, sha, seen, lambda force: work.write(scene, video, result, task.target, force), paths
    )


def _written(
    task: Task,
    folder: Folder,
    record: Record | None,
    sha: str,
    seen: Stamp,
    write: Callable[[bool], Result],
    parts: list[Path],
) -> Outcome:
    """The video between its two records; then its parts are needed no more."""
    # Ours if a record says so; else the name must be free, unless the user has given it up.
    overwrite = record is not None or folder.record(task.target) is not None or task.force
    folder.keep(task.target, Record(task.campaign, sha))
    try:
        result = write(overwrite)
    except Exception:
        if not overwrite:  # whatever is there under this name one day is not ours
            folder.disown(task.target)
        raise
    size = None if result.output is None else size_of(Path(result.output))
    folder.keep(task.target, Record(task.campaign, sha, [list(part) for part in seen], size, result.to_dict()))
    folder.forget(parts)
    return Outcome(result=result)


def _part(work: Work, task: Task, folder: Folder) -> Outcome:
    if folder.done(task.target, task.file, task.campaign) is not None:  # this is an attempt that came too late
        return Outcome()
    seen, part = _stamp(task.file), task.part or 0
    sha = _sha(task.file, seen)
    plan = folder.plan(_tiles_key(task, sha))
    if plan is not None:
        with _tiled(work, task, plan, seen) as tiles:
            tiles.do(part, folder.tiles(_tiles_key(task, sha)), lambda: _unchanged(work, task, seen))
        return Outcome()
    scene = _read(work, task, seen)
    path = folder.part(_part_key(task, sha, part))
    if part < work.parts(scene) and not path.exists():
        video, result = work.solve(work.cut(scene, part), sha)
        facts = np.frombuffer(json.dumps(finite(asdict(result))).encode(), np.uint8)
        with atomic_file(path) as temporary, temporary.open("wb") as file:
            np.savez(file, video=video.numpy(), result=facts)
    return Outcome()


def _part_key(task: Task, sha: str, part: int) -> str:
    return digest([task.campaign, sha, part])


# ---------------------------------------------------------------------- tiles


def _tiles_key(task: Task, sha: str) -> str:
    return digest([task.campaign, sha, "tiles", task.memory])


def _by_tiles(work: Work, task: Task, folder: Folder, sha: str, seen: Stamp) -> TilePlan | None:
    """Decided by the first who meets the file, and kept for all: workers' memories differ, and tiles must not."""
    key = _tiles_key(task, sha)
    try:
        with passing():
            scene = _read(work, task, seen)
            if work.parts(scene):
                return None
            plan = TilePlan(windows=False, room=left())
            with work.tiles(task.file, task.target, scene, plan.room):  # is there room for a tile beside the scene?
                pass
    except TooLargeError:
        plan = TilePlan(windows=True, room=left())
    return folder.decide(key, plan)


def _tiled(work: Work, task: Task, plan: TilePlan, seen: Stamp) -> AbstractContextManager[Tiles]:
    scene = None if plan.windows else _read(work, task, seen)
    return work.tiles(task.file, task.target, scene, plan.room)


# ---------------------------------------------------------------------- parts into one, and reading


def _joined(scene: Scene, paths: list[Path]) -> tuple[Tensor, Result]:
    """The parts as one video, and their results as one."""
    videos, results = [], []
    for path in paths:
        with np.load(path, allow_pickle=False) as stored:
            videos.append(torch.from_numpy(stored["video"]))
            results.append(revived(json.loads(stored["result"].tobytes())))
    video = torch.cat(videos)
    known = None if scene.truth is None else score(video, scene.truth)
    return video, replace(
        results[0],
        snapshots=scene.snapshots,
        psnr=known.psnr if known else None,
        ssim=known.ssim if known else None,
        psnr_per_snapshot=known.psnr_per_snapshot if known else None,
        ssim_per_snapshot=known.ssim_per_snapshot if known else None,
        seconds=sum(result.seconds for result in results),
        cpu_seconds=sum(result.cpu_seconds for result in results),
        peak_rss_mb=max((result.peak_rss_mb or 0 for result in results), default=None),
        iterations=max(result.iterations for result in results),
        residual=max(result.residual for result in results),
        converged=all(result.converged for result in results),
        diverged=any(result.diverged for result in results),
    )


def _read(work: Work, task: Task, seen: Stamp) -> Scene:
    """The scene of a file that nobody is writing to."""
    scene = _cached(work, task.file, seen)
    _unchanged(work, task, seen)
    return scene


def _unchanged(work: Work, task: Task, seen: Stamp) -> None:
    if _stamp(task.file) != seen:
        raise InputError(f"{task.file} changed while it was being read; repeat it when it has been written")
    if digest(work.settings()) != task.campaign:
        raise InputError(f"the masks, the model or another input beside {task.file} changed; begin in a new folder")


def _stamp(file: Path) -> Stamp:
    return stamp(existing(file))


@lru_cache(maxsize=4)
def _sha(file: Path, seen: Stamp) -> str:
    return sha256(file)


@lru_cache(maxsize=1)
def _cached(work: Work, file: Path, seen: Stamp) -> Scene:
    """The next part of the same file needs no reading."""
    return work.read(file)
