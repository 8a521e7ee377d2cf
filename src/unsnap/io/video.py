"""Videos as tensors: read from any container, written to any."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unsnap.arrays import tensor_of
from unsnap.errors import InputError
from unsnap.io import envi, zarr
from unsnap.io.atomic import atomic_file
from unsnap.io.budget import PICTURES, claim, counted
from unsnap.io.checks import Array, existing, luma
from unsnap.io.cie import assumed, to_rgb
from unsnap.io.files import read_arrays
from unsnap.io.formats import FOLDER, find, reader, suffixes
from unsnap.io.frames import frame_paths, read_frames
from unsnap.io.outputs import claim_output, output_suffix
from unsnap.io.units import white_of_truth

VIDEO_OUTPUTS = suffixes(lambda kind: kind.takes_video)

_KEYS = ("frames", "video", "orig")
_CUBES = ("cube", "img", "orig", "truth", "video", "hsi")
# Bytes per pixel that making grey of colour, and float32 of whatever was stored, take on the way.
_LUMA, _SCALED = 40, 9


@counted()
def read_video(path: str | Path, *, max_frames: int | None = None, colour: bool = False) -> Tensor:
    """(T, H, W) float32 in [0, 1] from a video, stack, folder of frames or array file; with `colour` (3, T, H, W).

    White is 255 in uint8; in wider integers it is what `load_scene` takes for the white of a truth, by their maximum:
    1, 255, 1023, 4095, 16383 or 65535; anything else is taken as [0, 1], or as [0, 255] if it exceeds 1.5.
    """
    if max_frames is not None and max_frames < 1:
        raise InputError(f"max_frames must be at least 1, got {max_frames}")
    path = existing(path)
    video = _frames(path, max_frames, colour)
    white = _white(video)
    if video.ndim == 2:
        video = video[None]
    if colour:
        return _colour(path, video, max_frames, white)
    if video.ndim == 4 and video.shape[-1] in (3, 4) and video.dtype.kind in "uif":
        claim(path, _LUMA * math.prod(video.shape[:3]), PICTURES)
        video = luma(video)
    if video.ndim != 3 or video.size == 0:
        raise InputError(f"{path} must hold a video (T, H, W) or (T, H, W, 3), got shape {video.shape}; save one clip")
    video = video[:max_frames]
    claim(path, _SCALED * video.size, PICTURES)
    return torch.from_numpy(_unit_range(path, video, white))


def _colour(path: Path, video: Array, max_frames: int | None, white: float | None) -> Tensor:
    """Planes (3, T, H, W); a grey video has three that are alike."""
    if video.ndim == 3:
        video = np.broadcast_to(video[..., None], (*video.shape, 3))
    if video.ndim != 4 or video.shape[-1] not in (3, 4) or video.size == 0:
        raise InputError(f"{path} must hold a colour video (T, H, W, 3), got shape {video.shape}; save one clip")
    video = video[:max_frames, ..., :3]
    claim(path, _SCALED * video.size, PICTURES)
    return torch.from_numpy(_unit_range(path, video, white)).permute(3, 0, 1, 2).contiguous()


def read_cube(path: str | Path) -> Tensor:
    """(L, H, W) float32 in [0, 1]: a spectral cube with its bands first or, as is the custom, last."""
    path = existing(path)
    arrays = {name: a for name, a in read_arrays(path).items() if a.ndim == 3}
    names = [name for name in _CUBES if name in arrays] or list(arrays)
    if not names:
        raise InputError(f"{path} holds no cube of three axes; save one with its bands first or last")
    cube = arrays[names[0]]
    first = np.argmin(cube.shape) == 0
    if find(path.suffix).time_last:  # bands come last in such files, unless the first are far fewer
        first = 2 * cube.shape[0] <= cube.shape[-1]
    claim(path, _SCALED * cube.size)
    return torch.from_numpy(_unit_range(path, np.moveaxis(cube, 0 if first else -1, 0), _white(cube)))


def _frames(path: Path, max_frames: int | None, colour: bool = False) -> Array:
    kind = find(FOLDER) if path.is_dir() else reader(path)
    if kind.read_video:
        return kind.read_video(path, max_frames, colour=True) if colour else kind.read_video(path, max_frames)
    if colour and kind.read_colour:
        return kind.read_colour(path)
    if colour and path.is_dir() and (frames := frame_paths(path)):
        return read_frames(frames, colour)
    arrays = read_arrays(path)
    keys = list(arrays) if len(arrays) == 1 else [key for key in _KEYS if key in arrays]
    if not keys:
        raise InputError(
            f"{path} holds several arrays ({', '.join(arrays)}) and none is called {', '.join(_KEYS)}; "
            "rename the video or save it alone"
        )
    video = arrays[keys[0]]
    if not kind.time_last or video.ndim not in (3, 4):
        return video
    return np.moveaxis(video, -1, 0)


def _white(video: Array) -> float | None:
    """The white level of integers, from all that is stored: a few of its frames may be dark, and grey is darker."""
    if video.dtype == np.uint8:
        return 255.0
    return white_of_truth(video) if video.dtype.kind in "iu" and video.size else None


def _unit_range(path: Path, video: Array, white: float | None) -> Array:
    if video.dtype.kind == "c":
        raise InputError(f"{path} must hold real intensities, got {video.dtype}; save the magnitude")
    low, high = float(video.min()), float(video.max())
    if not (math.isfinite(low) and math.isfinite(high)):
        raise InputError(f"{path} holds NaN or infinite values; replace them before simulating")
    scale = white or (255.0 if high > 1.5 else 1.0)
    if low < -0.1 * scale or high > 1.5 * scale:
        raise InputError(
            f"{path} must hold intensities in [0, 1] or [0, 255], or integers from 0, found {low:.4g} to {high:.4g}; "
            "rescale it"
        )
    scaled: Array = np.ascontiguousarray(video, np.float32) / np.float32(scale)
    return np.clip(scaled, 0, 1, out=scaled)


def save_video(
    path: str | Path,
    video: Tensor | NDArray[Any],
    *,
    fps: float = 10.0,
    overwrite: bool = True,
    colour: bool = False,
    wavelengths: Sequence[float] | None = None,
) -> Path:
    """Write (..., T, H, W) intensities, white being 1; leading axes follow one another in time.

    The extension decides, one of `VIDEO_OUTPUTS`: mp4, gif, png (one picture of all frames) and none or a final "/" (a
    folder of PNG frames) have 8 bits, cut to [0, 1]; all others keep the values, as float32. A `.mat` file holds
    `video` as H×W×T.
    colour: the video is (..., 3T, H, W), red first, and is written as frames T×H×W×3 (`.mat`: H×W×3×T).
    wavelengths: it is a cube (..., L, H, W) of these bands, or of unknown ones if there are none in it: png shows it
    in its colours, npz, mat, h5 and zarr store them beside it, and hdr is an ENVI header beside the numbers in .raw.

    >>> save_video("result.mp4", video, fps=24)  # doctest: +SKIP
    """
    claim_output(path, force=overwrite)
    video = tensor_of(video, f"{path}: the video")
    kind, path = find(output_suffix(path)), Path(path)
    known = None if wavelengths is None else list(wavelengths) or None
    if wavelengths is not None and ".png" in kind.suffixes:
        video, colour = to_rgb(video, known or assumed(video.shape[-3])), True
    frames = _checked(path, video, fps)
    if colour:
        planes = frames.reshape(-1, 3, video.shape[-3] // 3, *frames.shape[1:])
        frames = np.ascontiguousarray(planes.transpose(0, 2, 3, 4, 1)).reshape(-1, *frames.shape[1:], 3)
    if envi.SUFFIX in kind.suffixes:
        _save_envi(path, frames, known, overwrite)
        return path
    stored = {"video": np.moveaxis(frames, 0, -1) if kind.time_last else frames}
    if known is not None:
        stored["wavelengths"] = np.asarray(known, dtype=np.float64)
    with kind.writing(path, overwrite) as temporary:
        if kind.write_arrays and (known is not None or not kind.write_video):
            kind.write_arrays(temporary, stored)
        elif ".zarr" in kind.suffixes:
            zarr.write(temporary, frames, fps, known)
        elif kind.write_video:
            kind.write_video(temporary, frames, fps)
    return path


def _save_envi(path: Path, cube: Array, wavelengths: Sequence[float] | None, overwrite: bool) -> None:
    """The numbers first: a header without them would be worth nothing."""
    if cube.ndim != 3 or (wavelengths is not None and len(cube) != len(wavelengths)):
        raise InputError(f"{path}: an ENVI file holds one grey video or one cube; write .npz or .mat")
    data = path.with_suffix(envi.DATA)
    with atomic_file(data, overwrite=overwrite) as temporary:
        envi.write_data(temporary, cube)
    with atomic_file(path, overwrite=overwrite) as temporary:
        envi.write_header(temporary, cube, 0, wavelengths)


def _checked(path: Path, video: Tensor, fps: float) -> Array:
    if not video.is_floating_point() or video.ndim < 3 or video.numel() == 0:
        raise InputError(
            f"{path}: a video must be floating point of shape (..., T, H, W), "
            f"got {video.dtype} {tuple(video.shape)}; convert it first"
        )
    frames: Array = video.detach().to("cpu", torch.float32).flatten(0, -3).numpy()
    if not np.isfinite(frames).all():
        raise InputError(
            f"{path} is not written because the video holds NaN or infinite values; check the reconstruction"
        )
    if not 0.01 <= fps <= 1000:
        raise InputError(f"{path}: fps must lie between 0.01 and 1000 frames per second, got {fps}")
    return frames
