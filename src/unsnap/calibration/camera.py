"""What calibration found out about a camera: a value that is saved, loaded and applied to scenes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unsnap.calibration.warp import FIELD, SHARPEST, SOFTEST, Motion, Plates, coded
from unsnap.errors import InputError
from unsnap.io.files import read_arrays, write_arrays
from unsnap.io.units import guess_white, is_binary
from unsnap.scene import Scene

FORMAT, VERSION = "unsnap_camera_file", 2


@dataclass(frozen=True)
class Camera:
    """How the masks of a capture differ from those given, and its sensor from y = Φx.

    shift (down, right) in pixels, rotation in degrees (counter-clockwise on a screen) and scale about the middle of the
    image, blur in pixels (σ): the masks as
    given, moved by these, are the masks that coded the capture.
    y = gain · Σ exposureₜ mₜ xₜ + offset; offset and dark are in the scene's units, `unit` is their 1 in the file's.
    uncertainty: one standard deviation of each, None for what cannot be told from the captures that were given.
    objective_before, objective_after: relative misfit of pixels that the reconstruction had not seen.
    """

    shift: tuple[float, float] = (0.0, 0.0)
    rotation: float = 0.0
    scale: float = 1.0
    blur: float = 0.0
    gain: float = 1.0
    offset: float = 0.0
    exposure: tuple[float, ...] = ()
    uncertainty: dict[str, Any] = field(default_factory=dict)
    changed: bool = False
    objective_before: float = math.nan
    objective_after: float = math.nan
    distortion: tuple[float, ...] = ()
    """What the masks moved beside shift, rotation and scale: factors of `warp.waves`, in pixels at the edge."""
    softness: float = 0.4
    """Of the masks as they were recorded, in pixels (σ)."""
    size: tuple[int, int] | None = None
    """(H, W) of the captures, None for any."""
    unit: float = 1.0
    dark: NDArray[np.float32] | None = field(default=None, repr=False, compare=False)

    @property
    def motion(self) -> Motion:
        return Motion(self.shift, self.rotation, self.scale, self.blur, self.softness, self.distortion)

    @property
    def told(self) -> bool:
        """Whether the captures said anything about the masks."""
        return self.uncertainty.get("shift") is not None

    def apply(self, scene: Scene) -> Scene:
        """The scene with the masks that coded it and the measurement they code.

        Pixels whose masks came in from beyond the edge are not known: masks and measurement are 0 there.
        """
        self._check(scene)
        masks, known = coded(Plates(scene.masks.reshape(-1, *scene.masks.shape[-2:]).cpu().numpy()), self.motion)
        like = scene.operator.masks  # given as whole numbers, they are none once they are moved
        live = torch.from_numpy(known).to(like)
        moved = torch.from_numpy(np.ascontiguousarray(masks)).to(like).reshape(scene.masks.shape) * live
        if self.exposure:
            moved = moved * torch.tensor(self.exposure).to(moved)[:, None, None]
        ratio = self.unit / float(scene.meta.get("measurement_factor") or self.unit)
        dark = self.offset if self.dark is None else torch.from_numpy(self.dark).to(scene.measurement) + self.offset
        # A measurement is held times its weights: pixels left out must stay 0.
        dark = ratio * dark if scene.weights is None else ratio * dark * scene.weights
        y = (scene.measurement - dark) * live
        found = replace(scene, measurement=y, masks=moved, meta={**scene.meta, "calibrated": True})
        if self.uncertainty.get("gain") is None:
            return _white_again(replace(found, measurement=y / self.gain), scene.masks)
        return _white_known(replace(found, measurement=y / (ratio * self.gain)), self.unit * self.gain)

    def _check(self, scene: Scene) -> None:
        if scene.camera != "snapshot":
            raise InputError(f"a camera file moves the masks of a snapshot camera, got a {scene.camera}")
        if self.size not in (None, tuple(scene.masks.shape[-2:])):
            raise InputError(
                f"the camera file is for pictures of {self.size}, got {tuple(scene.masks.shape[-2:])}; calibrate again"
            )
        if self.exposure and len(self.exposure) != scene.frames:
            raise InputError(f"the camera file is for {len(self.exposure)} frames, got {scene.frames}; calibrate again")

    def to_dict(self) -> dict[str, Any]:
        """What `unsnap calibrate --json` prints."""
        names = ("shift", "rotation", "scale", "blur", "gain", "offset", "exposure", "uncertainty", "changed",
                 "objective_before", "objective_after", "distortion")  # fmt: skip
        return {name: list(v) if isinstance(v := getattr(self, name), tuple) else v for name in names}

    def save(self, path: str | Path, *, overwrite: bool = True) -> Path:
        """As .npz, .mat or .h5; `load` gives the same camera back, but for rounding of the dark picture."""
        arrays: dict[str, NDArray[Any]] = {FORMAT: np.array([VERSION], np.int32)}
        for name in _NUMBERS:
            value = getattr(self, name)
            if value is not None and (not isinstance(value, tuple) or value):
                arrays[name] = np.asarray(value, np.float64)
        for name, value in self.uncertainty.items():
            if value is not None:
                arrays[f"uncertainty_{name}"] = np.asarray(value, np.float64)
        if self.dark is not None:
            arrays["dark"] = self.dark
        return write_arrays(path, arrays, overwrite=overwrite)

    @staticmethod
    def load(path: str | Path) -> Camera:
        """A camera file that `save` wrote; anything else is an InputError."""
        arrays = read_arrays(path)
        if FORMAT not in arrays:
            raise InputError(f"{path} is no camera file; make one with `unsnap calibrate CAPTURE -o camera.npz`")
        version = np.asarray(arrays[FORMAT]).ravel().tolist()
        if version == [1]:
            raise InputError(f"{path} was written when masks between pixels were taken for splines; calibrate again")
        if version != [VERSION]:
            raise InputError(f"{path} was written by a newer unsnap; read it with that one")
        values = {name: _numbers(path, name, arrays[name]) for name in _NUMBERS if name in arrays}
        known: dict[str, Any] = {name: kind(values[name]) for name, kind in _NUMBERS.items() if name in values}
        marks = {name.removeprefix("uncertainty_"): name for name in arrays if name.startswith("uncertainty_")}
        known["uncertainty"] = {n: _plain(_numbers(path, key, arrays[key])) for n, key in marks.items()}
        if "dark" in arrays:
            dark = arrays["dark"]
            if dark.ndim != 2 or dark.dtype.kind not in "iuf" or not np.isfinite(dark).all():
                raise InputError(f"{path}: 'dark' must be a picture of finite numbers; calibrate again")
            known["dark"] = np.ascontiguousarray(dark, np.float32)
        camera = Camera(**known)
        _check_ranges(path, camera)
        return camera


def _pair(values: list[float]) -> tuple[float, float]:
    down, right = values
    return down, right


def _one(values: list[float]) -> float:
    (value,) = values
    return value


def _size(values: list[float]) -> tuple[int, int]:
    height, width = values
    return int(height), int(width)


_NUMBERS: dict[str, Any] = {
    "shift": _pair, "rotation": _one, "scale": _one, "blur": _one, "gain": _one, "offset": _one, "exposure": tuple,
    "changed": lambda v: bool(_one(v)), "objective_before": _one, "objective_after": _one,
    "softness": _one, "distortion": tuple, "size": _size, "unit": _one,
}  # fmt: skip
_LENGTHS = {"shift": 2, "size": 2, "distortion": FIELD}


def _numbers(path: str | Path, name: str, array: NDArray[Any]) -> list[float]:
    count = _LENGTHS.get(name)
    many = name == "exposure" or name.startswith("uncertainty_")
    fine = array.dtype.kind in "biuf" and array.size <= 2**20 and (many or array.size == (count or 1))
    values = array.astype(np.float64).ravel() if fine else np.array([np.inf])
    if not fine or np.isinf(values).any() or (np.isnan(values).any() and not name.startswith("objective")):
        raise InputError(f"{path}: {name!r} is not what a camera file holds; calibrate again")
    return [float(value) for value in values]


def _plain(values: list[float]) -> float | list[float]:
    return values[0] if len(values) == 1 else values


def _check_ranges(path: str | Path, camera: Camera) -> None:
    rules = {
        "scale": 0.1 <= camera.scale <= 10,
        "blur": 0 <= camera.blur <= 100,
        "gain": camera.gain > 0,
        "unit": camera.unit > 0,
        "softness": SHARPEST <= camera.softness <= SOFTEST,
        "shift": max(map(abs, camera.shift)) <= 1e6,
        "distortion": max(map(abs, camera.distortion), default=0) <= 1e6,
        "exposure": all(value > 0 for value in camera.exposure),
        "size": camera.size is None or camera.dark is None or camera.dark.shape == camera.size,
    }
    for name, fine in rules.items():
        if not fine:
            raise InputError(f"{path}: {name!r} is beyond what a camera does; calibrate again")


def _white_known(scene: Scene, white: float) -> Scene:
    """With the white of the camera file in place of the one that was told or guessed before."""
    if not scene.meta.get("measurement_factor"):
        return scene
    notes = list(scene.meta.get("notes", ()))
    notes = notes[:-1] if scene.meta.get("white_guessed") else notes  # the guess was the last
    told = f"white is {white:.4g}, by the gain in the camera file"
    meta = {"white": white, "measurement_factor": white, "white_guessed": False, "notes": [*notes, told]}
    return replace(scene, meta={**scene.meta, **meta})


def _white_again(scene: Scene, given: Tensor) -> Scene:
    """With white guessed by the masks as they are now: those that were given make single pixels seem bright."""
    factor = scene.meta.get("measurement_factor")
    if not scene.meta.get("white_guessed") or not factor:
        return scene
    weights = None if scene.weights is None else scene.weights.cpu().numpy()
    y = factor * scene.measurement.cpu().numpy()
    white, note = guess_white(y, scene.masks.cpu().numpy(), weights=weights, binary=is_binary(given.cpu().numpy()))
    if white == factor:
        return scene
    meta = {**scene.meta, "white": white, "measurement_factor": white}
    meta["notes"] = [*meta.get("notes", ())[:-1], note]  # white was the last
    return replace(scene, measurement=scene.measurement * (factor / white), meta=meta)
