"""Videos for training: a folder of anything to grey clips in memory, and random crops of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor

from unsnap.errors import InputError
from unsnap.io import read_video
from unsnap.io.budget import keep, left, passing
from unsnap.io.formats import find, suffixes
from unsnap.io.frames import frame_paths

MAX_FRAMES = 200
HELD_OUT = 8  # frames of a single clip
_SHORT_SIDE = 256  # larger videos are reduced by whole factors until the shorter side is below twice this
_MAX_PIXELS = MAX_FRAMES * 1920 * 1080  # read of one video file


@dataclass(frozen=True)
class Clips:
    """Clips (F, H, W) as uint8, with their names; what could not be used, and why; whose end is not used."""

    videos: list[Tensor]
    names: list[str]
    skipped: dict[str, str] = field(default_factory=dict)
    shortened: list[str] = field(default_factory=list)

    def draw(self, batch: int, frames: int, size: int, generator: torch.Generator) -> Tensor:
        """Random crops (batch, frames, size, size) in [0, 1]: flipped, turned, reversed, strided, halved, dimmed."""
        lengths = torch.tensor([float(len(v)) for v in self.videos])
        picks = torch.multinomial(lengths, batch, replacement=True, generator=generator)
        return torch.stack([_crop(self.videos[int(k)], frames, size, generator) for k in picks])

    def split(self, every: int = 10) -> tuple[Clips, Clips]:
        """All but one clip in `every`, and the others; of a single clip its last frames, if it has enough."""
        if len(self.videos) == 1 and len(self.videos[0]) >= 4 * HELD_OUT:
            last = max(HELD_OUT, len(self.videos[0]) // every)
            first, end = self.videos[0][:-last], self.videos[0][-last:]
            return replace(self, videos=[first]), replace(self, videos=[end])
        held = [k for k in range(len(self.videos)) if k % every == every - 1] or [len(self.videos) - 1]
        kept = [k for k in range(len(self.videos)) if k not in held] or held

        def of(rows: list[int]) -> Clips:
            return replace(self, videos=[self.videos[k] for k in rows], names=[self.names[k] for k in rows])

        return of(kept), of(held)


def read_clips(folder: str | Path, least: int = 2, progress: Callable[[int, int], None] | None = None) -> Clips:
    """Every readable video below a folder (files, and folders of frames) with at least `least` frames of 16 x 16."""
    root = Path(folder)
    if not root.is_dir():
        raise InputError(f"{root} is not a folder of videos; {_remedy()}")
    sources = _sources(root)
    clips, room = Clips([], []), left() // 2
    for k, path in enumerate(sources):
        if progress is not None:
            progress(k, len(sources))
        try:
            with passing():
                video, whole = _read(path, least, room)
            keep(video.nbytes)
        except (InputError, MemoryError) as error:
            clips.skipped[str(path)] = str(error) or "does not fit into memory"
            continue
        clips.videos.append(video)
        clips.names.append(path.relative_to(root).as_posix())
        clips.shortened.extend([] if whole else clips.names[-1:])
        room -= video.nbytes
    if not clips.videos:
        first = next(iter(clips.skipped.values()), "")
        reason = (
            f"{len(clips.skipped)} were skipped, the first because {first}" if first else "nothing in it is a video"
        )
        raise InputError(f"{root} has no usable video ({reason}); {_remedy()}")
    return clips


def _remedy() -> str:
    return f"give a folder with videos ({', '.join(suffixes(lambda kind: kind.holds_video))}) or folders of frames"


def rendered_clips(count: int = 12, frames: int = 24, size: int = 128, seed: int = 0) -> Clips:
    """Clips from the procedural generator, so that training runs with no data at all."""
    from unsnap.simulate.rendered import render

    seeds = range(seed, seed + count)
    videos = [_bytes(render(frames, size, size, seed=1000 + s, speed=0.5 + (s % 4) * 0.5)) for s in seeds]
    return Clips(videos, [f"rendered {s}" for s in seeds])


def _sources(root: Path) -> list[Path]:
    """Video files and frame folders, in a fixed order."""
    try:
        below = sorted(root.rglob("*"))
        folders = [p for p in [root, *(q for q in below if q.is_dir())] if _of_frames(frame_paths(p))]
    except OSError as error:
        raise InputError(f"{root} cannot be listed ({error.strerror}); check its permissions") from error
    files = [p for p in below if find(p.suffix).holds_video and p.is_file()]
    return sorted([p for p in files if p.parent not in folders or not find(p.suffix).read_frame] + folders)


def _of_frames(pictures: list[Path]) -> bool:
    """Are these the frames of one video, and not videos themselves, as stacks of TIFF are?"""
    if len(pictures) < 2 or not find(pictures[0].suffix).holds_video:
        return len(pictures) > 1
    try:
        with passing():
            return len(read_video(pictures[0])) == 1
    except (InputError, MemoryError):
        return True


def _read(path: Path, least: int, room: int) -> tuple[Tensor, bool]:
    """A video as bytes: the first frames, no more than are of use or fit; and whether these are all."""
    frames = MAX_FRAMES
    if find(path.suffix).read_video and path.is_file():
        pixels = read_video(path, max_frames=1).numel()
        frames = max(least, min(frames, _MAX_PIXELS // pixels))
    video = read_video(path, max_frames=frames + 1)
    whole, video = len(video) <= frames, video[:frames]
    if len(video) < least or min(video.shape[1:]) < 16:
        raise InputError(f"{path} is too small: {tuple(video.shape)} where {least} frames of 16 × 16 are needed")
    factor = max(1, min(video.shape[1:]) // _SHORT_SIDE)
    small = _bytes(torch.nn.functional.avg_pool2d(video, factor) if factor > 1 else video)
    if small.nbytes > room:
        raise InputError(f"{path} is left out: the videos before it take half of the memory")
    return small, whole


def _bytes(video: Tensor) -> Tensor:
    return (video * 255).round().clamp(0, 255).to(torch.uint8)


def _crop(video: Tensor, frames: int, size: int, generator: torch.Generator) -> Tensor:
    length, height, width = video.shape
    halve = 2 if min(height, width) >= 2 * size and _chance(0.35, generator) else 1
    longest = max(1, (length - 1) // max(1, frames - 1))
    stride = 1 + _below(min(longest, 2), generator)
    first = _below(max(1, length - stride * (frames - 1)), generator)
    times = [bounce(first + stride * t, length) for t in range(frames)]
    side_y, side_x = min(height, size * halve), min(width, size * halve)
    top, left = _below(height - side_y + 1, generator), _below(width - side_x + 1, generator)
    crop = video[times, top : top + side_y, left : left + side_x].to(torch.float32) / 255
    if halve == 2:
        crop = torch.nn.functional.avg_pool2d(crop, 2)
    if crop.shape[-2:] != (size, size):
        crop = torch.nn.functional.interpolate(crop[None], (size, size), mode="bilinear", align_corners=False)[0]
    turns = _below(4, generator)
    if turns:
        crop = torch.rot90(crop, turns, (1, 2))
    if _chance(0.5, generator):
        crop = crop.flip(2)
    if _chance(0.5, generator):
        crop = crop.flip(0)
    gain = 0.6 + 0.4 * float(torch.rand((), generator=generator)) if _chance(0.5, generator) else 1.0
    return crop * gain


def bounce(t: int, length: int) -> int:
    """t reflected into 0 … length − 1."""
    period = max(1, 2 * (length - 1))
    t %= period
    return min(t, period - t)


def _below(limit: int, generator: torch.Generator) -> int:
    return int(torch.randint(limit, (), generator=generator))


def _chance(p: float, generator: torch.Generator) -> bool:
    return float(torch.rand((), generator=generator)) < p
