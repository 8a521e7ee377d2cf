"""Compressed video through PyAV: grey frames in, grey frames out."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from unsnap.errors import InputError
from unsnap.io.checks import Array, as_bytes, check_size, reading

_GIF_FPS = 50  # viewers slow faster animations down to 10


def read(path: Path, max_frames: int | None) -> Array:
    """The first `max_frames` frames as grey (T, H, W) uint8."""
    import av

    frames: list[Array] = []
    # The file: prefix and the whitelist keep a crafted file or name from opening anything else.
    with (
        reading(path, "a video", av.FFmpegError),
        av.open(f"file:{path}", options={"protocol_whitelist": "file"}) as container,
    ):
        if not container.streams.video:
            raise InputError(f"{path} holds no video stream; name a video file")
        for frame in container.decode(container.streams.video[0]):
            frames.append(_grey(frame))
            check_size(path, 2 * len(frames) * frames[0].nbytes)  # the list and its copy as one array
            if frames[-1].shape != frames[0].shape:
                raise InputError(f"{path} changes its frame size at frame {len(frames)}; convert it to one size first")
            if len(frames) == max_frames:
                break
    if not frames:
        raise InputError(f"{path} holds no frames; it is damaged or empty: export it again")
    return np.stack(frames)


def _grey(frame: Any) -> Array:
    grey: Array = frame.to_ndarray(format="gray")
    return grey


def write_mp4(path: Path, video: Array, fps: float) -> None:
    """H.264 (MPEG-4 where that is not built in), padded by its own edge to the even size yuv420p needs."""
    import av

    height, width = video.shape[1:]
    even = np.pad(as_bytes(video), ((0, 0), (0, height % 2), (0, width % 2)), mode="edge")
    if "libx264" in av.codecs_available:
        _encode(path, even, fps, "mp4", "libx264", "yuv420p", {"crf": "12"})
    else:
        _encode(path, even, fps, "mp4", "mpeg4", "yuv420p", {"qmin": "1", "qmax": "3"})


def write_gif(path: Path, video: Array, fps: float) -> None:
    """An endless animation in 256 greys: lossless for 8 bits."""
    _encode(path, as_bytes(video), min(fps, _GIF_FPS), "gif", "gif", "gray", {})


def _encode(
    path: Path, video: Array, fps: float, container: str, codec: str, pixels: str, options: dict[str, str]
) -> None:
    import av

    try:
        with av.open(f"file:{path}", "w", format=container) as output:
            stream = output.add_stream(codec, rate=Fraction(fps).limit_denominator(1000), options=options)
            stream.height, stream.width = video.shape[1:]
            stream.pix_fmt = pixels
            for frame in video:
                picture = av.VideoFrame.from_ndarray(np.ascontiguousarray(frame), format="gray")
                output.mux(stream.encode(picture))
            output.mux(stream.encode())
    except av.FFmpegError as error:
        raise OSError(error.errno, error.strerror) from error
