"""Compressed video through PyAV, grey or in colour."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from unsnap.errors import InputError
from unsnap.io.budget import PICTURES, claim
from unsnap.io.checks import Array, as_bytes, reading

MAX_PIXELS = 2**27
"""Of one frame."""
_DECODER = 64  # bytes per pixel: the frames that FFmpeg keeps at a time
_GIF_FPS = 50  # viewers slow faster animations down to 10


def read(path: Path, max_frames: int | None, colour: bool = False) -> Array:
    """The first `max_frames` frames as grey (T, H, W) uint8, or in colour (T, H, W, 3)."""
    import av

    frames: list[Array] = []
    with reading(path, "a video", av.FFmpegError):
        # Forcing the container and the protocol keeps a crafted file or name from opening anything else: playlists and
        # scripts are text that names other files. What a mov refers to outside itself FFmpeg leaves alone
        # (enable_drefs is off unless asked for).
        options = {"protocol_whitelist": "file", "max_pixels": str(MAX_PIXELS)}
        kind = _container(path)
        if kind == "gif":  # whose canvas FFmpeg paints while it opens the file
            width, height = _canvas(path)
            claim(path, _DECODER * width * height, PICTURES)
        with av.open(f"file:{path}", format=kind, options=options) as container:
            if not container.streams.video:
                raise InputError(f"{path} holds no video stream; name a video file")
            stream = container.streams.video[0]
            width, height = stream.codec_context.width, stream.codec_context.height
            claim(path, 0 if kind == "gif" else _DECODER * width * height, PICTURES)
            for frame in container.decode(stream):
                if (frame.width, frame.height) != (width, height):
                    raise InputError(
                        f"{path} changes its frame size at frame {len(frames) + 1}; convert it to one size first"
                    )
                claim(
                    path, (6 if colour else 2) * width * height, PICTURES
                )  # in the list, and in its copy as one array
                frames.append(_pixels(frame, "rgb24" if colour else "gray"))
                if len(frames) == max_frames:
                    break
    if not frames:
        raise InputError(f"{path} holds no frames; it is damaged or empty: export it again")
    return np.stack(frames)


def _canvas(path: Path) -> tuple[int, int]:
    """Width and height in the header of a GIF; nothing if it is cut short."""
    with path.open("rb") as file:
        head = file.read(10)
    return int.from_bytes(head[6:8], "little"), int.from_bytes(head[8:10], "little")


def _container(path: Path) -> str:
    """FFmpeg's name of the container by its first bytes; a ValueError for anything that is not of this list."""
    with path.open("rb") as file:
        head = file.read(12)
    if head.startswith(b"GIF8"):
        return "gif"
    if head.startswith(b"\x1aE\xdf\xa3"):
        return "matroska"
    if head.startswith(b"RIFF") and head[8:] == b"AVI ":
        return "avi"
    if head[4:8] in (b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip", b"pnot"):
        return "mov"
    raise ValueError("not mp4, mov, avi, mkv, webm or gif")


def _pixels(frame: Any, kind: str) -> Array:
    pixels: Array = frame.to_ndarray(format=kind)
    return pixels


def write_mp4(path: Path, video: Array, fps: float) -> None:
    """H.264 (MPEG-4 where that is not built in), padded by its own edge to the even size yuv420p needs."""
    import av

    height, width = video.shape[1:3]
    beyond = ((0, height % 2), (0, width % 2), *[(0, 0)] * (video.ndim - 3))
    size = height + height % 2, width + width % 2
    even = (np.pad(as_bytes(frame), beyond, mode="edge") for frame in video)  # one at a time: they may be on the disk
    if "libx264" in av.codecs_available:
        # With its macroblock tree x264 makes different files of the same frames, more or less often.
        _encode(path, even, size, fps, "mp4", "libx264", "yuv420p", {"crf": "12", "x264-params": "mbtree=0"})
    else:
        _encode(path, even, size, fps, "mp4", "mpeg4", "yuv420p", {"qmin": "1", "qmax": "3"})


def write_gif(path: Path, video: Array, fps: float) -> None:
    """An endless animation in 256 greys, lossless for 8 bits; in colour with the 256 best for each frame."""
    if video.ndim == 4:
        _colour_gif(path, as_bytes(video), min(fps, _GIF_FPS))
        return
    _encode(path, map(as_bytes, video), video.shape[1:3], min(fps, _GIF_FPS), "gif", "gif", "gray", {})


def _colour_gif(path: Path, video: Array, fps: float) -> None:
    from PIL import Image

    first, *rest = (Image.fromarray(frame).quantize(256) for frame in video)
    with path.open("wb") as file:
        first.save(file, "gif", save_all=True, append_images=rest, duration=round(1000 / fps), loop=0)


def _encode(
    path: Path,
    frames: Iterable[Array],
    size: tuple[int, ...],
    fps: float,
    container: str,
    codec: str,
    pixels: str,
    options: dict[str, str],
) -> None:
    import av

    try:
        with av.open(f"file:{path}", "w", format=container) as output:
            stream = output.add_stream(codec, rate=Fraction(fps).limit_denominator(1000), options=options)
            stream.height, stream.width = size
            stream.pix_fmt = pixels
            for frame in frames:
                kind = "gray" if frame.ndim == 2 else "rgb24"
                picture = av.VideoFrame.from_ndarray(np.ascontiguousarray(frame), format=kind)
                output.mux(stream.encode(picture))
            output.mux(stream.encode())
    except av.FFmpegError as error:
        raise OSError(error.errno, error.strerror) from error
