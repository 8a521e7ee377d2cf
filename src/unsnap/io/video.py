"""Videos as tensors: read from any container, written to any."""

from __future__ import annotations

import math
import os
from collections.abc import Collection
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from unsnap.errors import InputError
from unsnap.io.arrays import write_npy, write_tiff
from unsnap.io.atomic import atomic_file, check_replaceable
from unsnap.io.checks import Array, existing
from unsnap.io.codec import VIDEOS, decode, write_gif, write_mp4
from unsnap.io.files import read_arrays
from unsnap.io.frames import write_frames
from unsnap.io.mat import write_mat

VIDEO_OUTPUTS = (".mp4", ".gif", ".tif", ".tiff", ".npz", ".npy", ".mat", "")  # "" is a folder of PNG frames

_KEYS = ("frames", "video", "orig")
_FULL = {"uint8": 255, "uint16": 65535}


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
        video = _grey(video)
    if video.ndim != 3 or video.size == 0:
        raise InputError(f"{path} must hold a video (T, H, W) or (T, H, W, 3), got shape {video.shape}; save one clip")
    return torch.from_numpy(_unit_range(path, video[:max_frames]))


def _frames(path: Path, max_frames: int | None) -> Array:
    suffix = path.suffix.lower()
    if suffix in VIDEOS and path.is_file() and path.stat().st_size:
        return decode(path, max_frames)
    arrays = read_arrays(path)
    keys = list(arrays) if len(arrays) == 1 else [key for key in _KEYS if key in arrays]
    if not keys:
        raise InputError(
            f"{path} holds several arrays ({', '.join(arrays)}) and none is called {', '.join(_KEYS)}; "
            "rename the video or save it alone"
        )
    video = arrays[keys[0]]
    is_matlab = suffix == ".mat" and video.ndim == 3
    return np.moveaxis(video, -1, 0) if is_matlab else video


def _grey(video: Array) -> Array:
    """(T, H, W, 3 or 4) -> luma (T, H, W) in the same type; an alpha channel is ignored."""
    luma = sum(share * video[..., k].astype(np.float32) for k, share in enumerate((0.299, 0.587, 0.114)))
    grey: Array = np.asarray(np.rint(luma) if video.dtype.kind in "ui" else luma).astype(video.dtype)
    return grey


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


def save_video(path: str | Path, video: Tensor, *, fps: float = 10.0) -> Path:
    """Write (..., T, H, W) intensities, clipped to [0, 1]; leading axes follow one another in time.

    The extension decides: mp4 and gif (8 bits), tif, npz, npy and mat (float32, lossless), none or a final "/" for
    a folder of 8-bit PNG frames. A `.mat` file holds `video` as H×W×T.

    >>> save_video("result.mp4", video, fps=24)  # doctest: +SKIP
    """
    check_writable(path)
    kind, path = _kind(path), Path(path)
    frames = _checked(path, video, fps)
    if kind == ".mat":
        write_mat(path, {"video": np.moveaxis(frames, 0, -1)})
    elif kind == ".npz":
        with atomic_file(path) as temporary, temporary.open("wb") as file:
            np.savez(file, video=frames)
    elif kind == ".npy":
        write_npy(path, frames)
    elif kind in (".tif", ".tiff"):
        write_tiff(path, frames)
    else:
        _write_8bit(path, kind, np.rint(frames * 255).astype(np.uint8), fps)
    return path


def _write_8bit(path: Path, kind: str, frames: Array, fps: float) -> None:
    if kind == ".mp4":
        write_mp4(path, frames, fps)
    elif kind == ".gif":
        write_gif(path, frames, fps)
    else:
        write_frames(path, frames)


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


def _kind(path: str | Path) -> str:
    """The lower-case extension, or "" for a folder of frames."""
    suffix = Path(path).suffix.lower()
    is_folder = str(path).endswith(("/", os.sep)) or (suffix not in VIDEO_OUTPUTS and Path(path).is_dir())
    return "" if is_folder else suffix


def check_writable(path: str | Path, outputs: Collection[str] = VIDEO_OUTPUTS) -> None:
    """Refuse an output path that cannot work, before the long computation; nothing is created.

    Missing parent folders are fine: they are made when the result is written.
    """
    kind, target = _kind(path), Path(path)
    if kind not in outputs:
        known = ", ".join(suffix or "none (a folder of PNG frames)" for suffix in outputs)
        raise InputError(f"{target} has the unknown extension {kind!r}; known are {known}")
    try:
        _check_place(target, kind)
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{target!s} cannot be written ({reason}); choose another path") from error


def _check_place(target: Path, kind: str) -> None:
    if kind == "":
        check_replaceable(target)
    elif target.is_dir():
        raise InputError(f"{target} is a folder where a file is to be written; choose another name")
    elif target.exists() and not os.access(target, os.W_OK):
        raise InputError(f"{target} is write-protected; choose another name or run chmod +w on it")
    folder = Path(os.path.realpath(target)).parent
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir():
        raise InputError(f"{target} cannot be written because {folder} is a file, not a folder; choose another path")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(
            f"{target} cannot be written because the folder {folder} is write-protected; choose another folder"
        )
