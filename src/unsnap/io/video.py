"""Videos as tensors: read from any container, written to any."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from unsnap.errors import InputError
from unsnap.io.budget import PICTURES, claim, counted
from unsnap.io.checks import Array, existing, luma
from unsnap.io.files import read_arrays
from unsnap.io.formats import FOLDER, find, reader, suffixes
from unsnap.io.outputs import claim_output, output_suffix

VIDEO_OUTPUTS = suffixes(lambda kind: kind.takes_video)

_KEYS = ("frames", "video", "orig")
# Bytes per pixel that making grey of colour, and float32 of whatever was stored, take on the way.
_LUMA, _SCALED = 40, 9
_FULL = {"uint8": 255, "uint16": 65535}


@counted()
def read_video(path: str | Path, *, max_frames: int | None = None) -> Tensor:
    """(T, H, W) float32 in [0, 1] from a video, stack, folder of frames or array file.

    uint8 and uint16 are scaled by their full range; anything else is taken as [0, 1], or as [0, 255] if it exceeds 1.5.
    """
    if max_frames is not None and max_frames < 1:
        raise InputError(f"max_frames must be at least 1, got {max_frames}")
    path = existing(path)
    video = _frames(path, max_frames)
    if video.ndim == 2:
        video = video[None]
    if video.ndim == 4 and video.shape[-1] in (3, 4) and video.dtype.kind in "uif":
        claim(path, _LUMA * math.prod(video.shape[:3]), PICTURES)
        video = luma(video)
    if video.ndim != 3 or video.size == 0:
        raise InputError(f"{path} must hold a video (T, H, W) or (T, H, W, 3), got shape {video.shape}; save one clip")
    video = video[:max_frames]
    claim(path, _SCALED * video.size, PICTURES)
    return torch.from_numpy(_unit_range(path, video))


def _frames(path: Path, max_frames: int | None) -> Array:
    kind = find(FOLDER) if path.is_dir() else reader(path)
    if kind.read_video:
        return kind.read_video(path, max_frames)
    arrays = read_arrays(path)
    keys = list(arrays) if len(arrays) == 1 else [key for key in _KEYS if key in arrays]
    if not keys:
        raise InputError(
            f"{path} holds several arrays ({', '.join(arrays)}) and none is called {', '.join(_KEYS)}; "
            "rename the video or save it alone"
        )
    video = arrays[keys[0]]
    return np.moveaxis(video, -1, 0) if kind.time_last and video.ndim == 3 else video


def _unit_range(path: Path, video: Array) -> Array:
    if video.dtype.kind == "c":
        raise InputError(f"{path} must hold real intensities, got {video.dtype}; save the magnitude")
    if str(video.dtype) in _FULL:
        scaled: Array = np.ascontiguousarray(video, np.float32) / np.float32(_FULL[str(video.dtype)])
        return scaled
    low, high = float(video.min()), float(video.max())
    if not (math.isfinite(low) and math.isfinite(high)):
        raise InputError(f"{path} holds NaN or infinite values; replace them before simulating")
    scale = 255.0 if high > 1.5 else 1.0
    if low < -0.1 * scale or high > 1.5 * scale:
        raise InputError(
            f"{path} must hold intensities in [0, 1] or [0, 255], found {low:.4g} to {high:.4g}; rescale it"
        )
    clipped: Array = np.clip(np.ascontiguousarray(video, np.float32) / np.float32(scale), 0, 1)
    return clipped


def save_video(path: str | Path, video: Tensor, *, fps: float = 10.0, overwrite: bool = True) -> Path:
    """Write (..., T, H, W) intensities, clipped to [0, 1]; leading axes follow one another in time.

    The extension decides, one of `VIDEO_OUTPUTS`: mp4 and gif have 8 bits, none or a final "/" is a folder of 8-bit
    PNG frames, all others keep float32. A `.mat` file holds `video` as H×W×T.

    >>> save_video("result.mp4", video, fps=24)  # doctest: +SKIP
    """
    claim_output(path, force=overwrite)
    kind, path = find(output_suffix(path)), Path(path)
    frames = _checked(path, video, fps)
    with kind.writing(path, overwrite) as temporary:
        if kind.write_video:
            kind.write_video(temporary, frames, fps)
        elif kind.write_arrays:
            kind.write_arrays(temporary, {"video": np.moveaxis(frames, 0, -1) if kind.time_last else frames})
    return path


def _checked(path: Path, video: Tensor, fps: float) -> Array:
    if not video.is_floating_point() or video.ndim < 3 or video.numel() == 0:
        raise InputError(
            f"{path}: a video must be floating point in [0, 1] of shape (..., T, H, W), "
            f"got {video.dtype} {tuple(video.shape)}; convert it first"
        )
    if not bool(torch.isfinite(video).all()):
        raise InputError(
            f"{path} is not written because the video holds NaN or infinite values; check the reconstruction"
        )
    if not 0.01 <= fps <= 1000:
        raise InputError(f"{path}: fps must lie between 0.01 and 1000 frames per second, got {fps}")
    frames: Array = video.detach().to("cpu", torch.float32).clamp(0, 1).flatten(0, -3).numpy()
    return frames
