"""What a file holds and a method needs: snapshots, masks and, when known, the true video."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from unsnap.arrays import as_tensor, tensor_of
from unsnap.errors import InputError
from unsnap.operators import CodedOperator, kind_of
from unsnap.operators import camera as make


@dataclass(frozen=True)
class Scene:
    """N coded captures of T frames each, with intensities in [0, 1].

    measurement: (N, H, W), or (N, *image) of another camera, (N, K, H, W) of K shots of one video;
    masks: one set, (T, H, W) or (K, T, H, W) for K shots, or N of them when every capture has its own;
    truth: (M, T, H, W) with M <= N for the first M captures, or None;
    meta: where it came from and what was done to it (name, scales, axes), for the record;
    camera: its name in `operators.CAMERAS`, with its setting if it has one. A colour video is (3T, H, W), red first;
    weights: how much every measured pixel counts, (*image) or (N, *image) in [0, 1]: 0 leaves a saturated or broken one
    out. The measurement is already multiplied by them, and so is the operator; the masks are not.
    Arrays of numpy become tensors.
    """

    measurement: Tensor
    masks: Tensor
    truth: Tensor | None = None
    meta: dict[str, Any] = field(default_factory=dict)
    camera: str = "snapshot"
    weights: Tensor | None = None

    def __post_init__(self) -> None:
        for name in ("measurement", "masks", "truth", "weights"):
            value = getattr(self, name)
            if not isinstance(value, Tensor) and (value is not None or name in ("measurement", "masks")):
                object.__setattr__(self, name, as_tensor(value, name))
        y, m, x, kind = self.measurement, self.masks, self.truth, kind_of(self.camera)
        if m.ndim not in (kind.RANK, kind.RANK + 1) or (m.ndim > kind.RANK and m.shape[:1] != y.shape[:1]):
            raise InputError(
                f"masks of a {self.camera} must have {kind.RANK} axes, or one more with one set for each measurement "
                f"{tuple(y.shape)}, got shape {tuple(m.shape)}"
            )
        w = self.weights
        if w is not None and w.shape not in (y.shape, y.shape[1:]):
            raise InputError(f"weights must be {tuple(y.shape)} or {tuple(y.shape[1:])}, got shape {tuple(w.shape)}")
        image, video = tuple(self.operator.image), tuple(self.operator.video)
        if y.ndim != 1 + len(image) or tuple(y.shape[1:]) != image:
            raise InputError(
                f"measurement must be (N, {', '.join(map(str, image))}) to match masks {tuple(m.shape)} of a "
                f"{self.camera}, got shape {tuple(y.shape)}"
            )
        if x is not None and (x.ndim != 4 or tuple(x.shape[1:]) != video or x.shape[0] > y.shape[0]):
            raise InputError(
                f"truth must be (M, T, H, W) with M <= {y.shape[0]} to match masks {tuple(m.shape)}, "
                f"got shape {tuple(x.shape)}"
            )

    @staticmethod
    def of(
        truth: Tensor | NDArray[Any],
        masks: Tensor | NDArray[Any],
        camera: str = "snapshot",
        meta: dict[str, Any] | None = None,
    ) -> Scene:
        """The scene without noise that a camera records of videos (N, T, H, W)."""
        truth, phi = tensor_of(truth, "truth"), make(camera, tensor_of(masks, "masks"))
        return Scene(phi.A(truth), phi.masks, truth, meta or {}, camera)

    @cached_property
    def operator(self) -> CodedOperator:
        """The camera: the one place where masks, and weights, become an operator."""
        phi = make(self.camera, self.masks)
        return phi if self.weights is None else phi.weighted(self.weights)

    def weighted(self, weights: Tensor) -> Scene:
        """With pixels that count by these weights (*image) or (N, *image), beside those that it has."""
        total = weights if self.weights is None else self.weights * weights
        return replace(self, measurement=torch.where(weights > 0, weights * self.measurement, 0), weights=total)

    @property
    def snapshots(self) -> int:
        return int(self.measurement.shape[0])

    @property
    def frames(self) -> int:
        return self.operator.frames

    @property
    def video_options(self) -> dict[str, Any]:
        """What `save_video` must know of its videos: are they in colour, and of which wavelengths are their bands?

        None of a film, and [] of a spectrum whose wavelengths nobody knows.
        """
        return {"colour": self.camera in ("bayer", "rgb"), "wavelengths": self.meta.get("wavelengths")}

    @property
    def coded(self) -> Tensor:
        """Φ of the truth, (M, *image): what the measurement would be without noise."""
        if self.truth is None:
            raise InputError("the true video of this scene is not known")
        return self.operator.select(slice(len(self.truth))).A(self.truth)

    def pick(self, rows: Any) -> Scene:
        """Some of the captures (a slice or increasing indices, those from the end counted as in lists)."""
        every = range(self.snapshots)
        chosen = list(every[rows] if isinstance(rows, slice) else (every[k] for k in rows))
        if chosen != sorted(chosen):
            raise InputError(f"captures are picked in their order, as the truth is known of the first; got {chosen}")
        rows = rows if isinstance(rows, slice) else chosen
        masks = self.masks[rows] if self.masks.ndim > self.operator.RANK else self.masks
        weights = self.weights
        if weights is not None and weights.ndim == self.measurement.ndim:
            weights = weights[rows]
        known = 0 if self.truth is None else len(self.truth)
        kept = [k for k in chosen if k < known]
        truth = self.truth[kept] if self.truth is not None and kept else None
        return replace(self, measurement=self.measurement[rows], masks=masks, truth=truth, weights=weights)

    @property
    def pictures(self) -> Tensor:
        """(N, H, W): something to show of every measurement, the first shot of several."""
        first = self.measurement.reshape(self.snapshots, -1, *self.measurement.shape[-2:])[:, :1]
        if first.shape[-2:] != self.operator.video[-2:]:
            first = torch.nn.functional.interpolate(first, tuple(self.operator.video[-2:]))
        return first[:, 0]

    def to(self, place: torch.device) -> Scene:
        """With snapshots and masks on a device; the truth stays where it is."""
        weights = None if self.weights is None else self.weights.to(place)
        return replace(self, measurement=self.measurement.to(place), masks=self.masks.to(place), weights=weights)

    def window(self, side: int, top: int = 0, left: int = 0) -> Scene:
        """A square of all pictures; all of it for a camera that mixes pixels."""
        return self.crop(slice(top, top + side), slice(left, left + side)) if self.operator.pixelwise else self

    def crop(self, rows: slice, columns: slice) -> Scene:
        """A part of all pictures, of a camera that works pixel by pixel."""
        part = (..., rows, columns)
        truth, weights = (None if whole is None else whole[part] for whole in (self.truth, self.weights))
        return replace(self, measurement=self.measurement[part], masks=self.masks[part], truth=truth, weights=weights)

    def _repr_html_(self) -> str:
        """What a notebook shows of it."""
        from unsnap.show import ROWS, card, film_strip

        first = self.pick(slice(ROWS))
        strips = [film_strip(first.pictures[:, None], f"what was measured, {self.snapshots} in all", stretch=True)]
        if first.truth is not None:
            strips.append(film_strip(first.truth, "the true video", colour=self.video_options["colour"]))
        height, width = self.operator.video[-2:]
        facts = {
            "camera": self.camera,
            "measurement": tuple(self.measurement.shape),
            "masks": f"{tuple(self.masks.shape)}, {float(self.masks.min()):.3g} to {float(self.masks.max()):.3g}",
            "video": f"{self.frames} frames of {height}×{width}",
            "truth": "not known" if self.truth is None else f"known of {len(self.truth)}",
            **{f"note {k}": note for k, note in enumerate(self.meta.get("notes", [])[:5], 1)},
        }
        return card(f"Scene {self.meta.get('name', '')}".strip(), facts, strips)
