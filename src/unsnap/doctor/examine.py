"""Is this file what you think it is? Axes, units, masks, dead and saturated pixels, and whether y = Φx."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from unsnap.calibration import Camera
from unsnap.doctor.blind import ALIGNMENT, blind
from unsnap.doctor.mismatch import Finding, explain_mismatch
from unsnap.doctor.order import unfolded
from unsnap.errors import InputError
from unsnap.io.budget import TooLargeError, claim, counted
from unsnap.io.raw import piled_up
from unsnap.masks import shift_per_frame
from unsnap.scene import Scene

__all__ = ["Finding", "Report", "diagnose", "examine"]

_FEWEST = 4  # pixels of which a median says more than noise
_MOTION = "if it is one mask that moves, give its way with --motion DY,DX,T"
_MOVED = 28  # bytes per mask value while masks are moved: splines, views and differences as float32


@dataclass(frozen=True)
class Report:
    """What a file holds (name -> shape, dtype), the scene read from it (None when it cannot be), and the findings."""

    path: str
    arrays: dict[str, dict[str, Any]]
    scene: Scene | None
    findings: list[Finding] = field(default_factory=list)

    @property
    def fatal(self) -> bool:
        return any(f.level == "fatal" for f in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """Everything but the pixels, ready for JSON."""
        scene = self.scene
        size = None
        if scene is not None:
            height, width = scene.measurement.shape[-2:]
            size = {"snapshots": scene.snapshots, "frames": scene.frames, "height": height, "width": width}
        return {
            "path": self.path,
            "arrays": self.arrays,
            "size": size,
            "meta": None if scene is None else scene.meta,
            "findings": [asdict(f) for f in self.findings],
            "fatal": self.fatal,
        }


@counted()
def examine(
    path: str | Path,
    *,
    masks: str | Path | None = None,
    calibration: str | Path | None = None,
    deep: bool = False,
    must_fit: bool = False,
    **options: Any,
) -> Report:
    """Read a file as `load_scene` does, with the same options, and report; bad content becomes a fatal finding.

    calibration: a camera file that is applied to the scene. deep: reconstruct quickly as well, to judge time.
    must_fit: a file that needs too much memory is an error (`TooLargeError`) and no finding.
    """
    from unsnap.io.raw import read_capture
    from unsnap.io.scene_file import interpret, listing

    arrays: dict[str, Any] = {}
    roi = None if calibration is None else options.pop("roi", None)
    try:
        arrays, mask_arrays = read_capture(path, masks, options.get("raw"))
        scene = interpret(arrays, path, mask_arrays=mask_arrays, masks=masks, **options)
        if calibration is not None:
            claim(Path(path), _MOVED * scene.masks.numel())
            scene = _calibrated(scene, Camera.load(calibration), roi, str(path))
    except InputError as error:
        if must_fit and isinstance(error, TooLargeError):
            raise
        return Report(str(path), listing(arrays), None, [Finding("fatal", "file", str(error))])
    try:
        findings = diagnose(scene, deep=deep)
    except InputError as error:
        findings = [Finding("fatal", "measurement", str(error))]
    return Report(str(path), listing(arrays), scene, [*_reading(scene), *findings])


def _calibrated(scene: Scene, camera: Camera, roi: tuple[slice, slice] | None, where: str) -> Scene:
    """A region of the picture that the camera file was made of, or of the region itself, if that was calibrated."""
    from unsnap.io.scene_file import region

    if roi is None:
        return camera.apply(scene)
    part = region(scene, roi, where)
    alone = camera.size == tuple(part.masks.shape[-2:])
    return camera.apply(part) if alone else region(camera.apply(scene), roi, where)


def diagnose(scene: Scene, *, deep: bool = False) -> list[Finding]:
    """All findings about a scene, in a few passes over it: masks, pixels, measurement, alignment, and y against Φx.

    deep: also what takes a quick reconstruction: order and exposure of the frames, direction of time.
    """
    # The masks themselves: with weights they have the same holes as the snapshot, which agree wherever they are.
    shots, bare = replace(scene, weights=None).operator.normalised(scene.measurement)
    plain = replace(scene, measurement=shots, masks=bare.masks)
    y, phi = scene.operator.normalised(scene.measurement)
    scene = replace(scene, measurement=y, masks=phi.masks, weights=None)
    found = [
        *_masks(scene),
        *_frames(scene.masks if phi.codes is None else phi.codes),
        *_coverage(scene),
        *_measurement(scene),
        *blind(plain),
        *explain_mismatch(scene),
    ]
    found = [finding for finding in found if not _follows(finding, found)]
    usable = bool(scene.measurement.any()) and not any(finding.level == "fatal" for finding in found)
    return [*found, *unfolded(scene)] if deep and usable else found


def _follows(finding: Finding, found: list[Finding]) -> bool:
    """Is it but another sign of what is said anyway? Misplaced masks look like an offset, and an offset like noise."""
    misplaced = any(other.subject == ALIGNMENT and other.level == "fatal" for other in found)
    offset = any(other.subject == "offset" for other in found)
    return (misplaced and finding.subject in ("offset", "negative")) or (offset and finding.subject == "negative")


def _reading(scene: Scene) -> list[Finding]:
    meta = scene.meta
    roles = meta["roles"]
    height, width = scene.operator.video[-2:]
    axis = meta["time_axis"]
    known = 0 if scene.truth is None else len(scene.truth)
    truth = f"truth {', '.join(roles['truth'])} for {known} of them" if known else "no truth"
    return [
        Finding("ok", "file", f"measurement {roles['measurement']!r}, masks {roles['masks']!r}"),
        Finding("ok", "axes", _axes(scene, axis)),
        Finding(
            "ok",
            "size",
            f"{_count(scene.snapshots, 'snapshot')} of {_count(scene.frames, 'frame')}, {height}×{width}; {truth}",
        ),
        *(Finding("note", "reading", note) for note in meta["notes"]),
    ]


def _axes(scene: Scene, axis: int | None) -> str:
    if scene.camera != "snapshot":
        return f"as a {scene.camera} has them: measurement {_shape(scene.measurement)}, masks {_shape(scene.masks)}"
    return "one frame: no time axis" if axis is None else f"time is axis {axis} of the masks"


def _shape(tensor: Tensor) -> str:
    return "×".join(map(str, tensor.shape))


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" + ("" if number == 1 else "s")


def _masks(scene: Scene) -> list[Finding]:
    masks = scene.masks
    low, high = float(masks.min()), float(masks.max())
    if low == high == 0:
        return [Finding("fatal", "masks", "all masks are zero", "give other masks with --masks FILE")]
    kind = "binary" if bool(((masks == 0) | (masks == 1)).all()) else "grey"
    text = f"{kind} masks, {low:.3g} to {high:.3g}, mean {float(masks.mean()):.3g}"
    found = [Finding("ok", "masks", text)]
    if low < 0:
        found.append(Finding("note", "masks", "some masks are negative: legal, Φ is still linear"))
    return [*found, _gram(scene)]


def _gram(scene: Scene) -> Finding:
    """Many codes divide by Σm where ΦΦᵀ = Σm² belongs; say whether that matters here."""
    total, gram = scene.operator.A(torch.ones(scene.operator.video)), scene.operator.energy
    live = gram > 0
    ratio = total[live] / gram[live] if bool(live.any()) else torch.ones(1)
    if bool((ratio <= 0).any()):
        return Finding("note", "gram", "Σm is zero or negative where Σm² is not: code that divides by Σm fails here")
    worst = float(torch.maximum(ratio, 1 / ratio).max())
    if worst < 1.001:
        return Finding("ok", "gram", "Σm = Σm² everywhere")
    return Finding(
        "note",
        "gram",
        f"Σm differs from Σm²: code that divides by Σm would be wrong here by up to ×{worst:.3g}; unsnap uses Σm²",
    )


def _frames(masks: Tensor) -> list[Finding]:
    """Do the masks tell the frames apart? Looks at the first snapshot's masks."""
    first = masks.reshape(-1, *masks.shape[-3:])[0]
    if len(first) == 1:
        return [Finding("note", "frames", "one mask, and so one frame", _MOTION)]
    seen: dict[bytes, int] = {}
    twins = []
    for t, frame in enumerate(first.cpu().numpy()):
        twin = seen.setdefault(frame.tobytes(), t)
        if twin != t:
            twins.append(f"{twin} and {t}")
    if len(seen) == 1:
        text = f"all {len(first)} masks are identical: the frames cannot be told apart"
        return [Finding("fatal", "frames", text, "give the masks of this capture with --masks FILE")]
    if twins:
        text = f"identical masks in frames {', '.join(twins)}: these frames cannot be told apart"
        return [Finding("warning", "frames", text, "check that every frame got its own mask")]
    shift = shift_per_frame(first)
    if shift is not None:
        text = f"one mask shifted by {shift[0]} rows and {shift[1]} columns per frame"
        return [Finding("note", "frames", text)]
    return []


def _coverage(scene: Scene) -> list[Finding]:
    """Pixels no mask opens, pixels hardly opened, and light where no mask lets it through."""
    gram = scene.operator.energy
    dead = gram == 0
    count, share = int(dead.sum()), float(dead.float().mean())
    if count == 0:
        found = [Finding("ok", "dead pixels", "every pixel is measured")]
    else:
        # Where a spectrum ends only one band arrives: a closed mask pixel there is how such a camera is built.
        many = share > 0.01 and not scene.operator.SPECTRAL
        level: Literal["note", "warning", "fatal"] = "fatal" if share == 1 else "warning" if many else "note"
        text = f"{count} pixels ({share:.2%}) have Σm² = 0 and are not measured"
        remedy = "the prior alone fills them in" if share < 1 else "give other masks with --masks FILE"
        found = [Finding(level, "dead pixels", text, remedy)]
    if share == 1:
        return found
    weak = int(((gram < 0.01 * gram[~dead].median()) & ~dead).sum())
    if weak:
        text = f"{weak} pixels ({weak / gram.numel():.2%}) have Σm² below 1 % of the median: noise dominates them"
        found.append(Finding("note", "weak pixels", text))
    return [*found, *_offset(scene, dead)]


def _offset(scene: Scene, dead: Tensor) -> list[Finding]:
    y = scene.measurement
    stray = y[dead.expand_as(y)]
    top = float(y.abs().max())
    if stray.numel() < _FEWEST:
        return []
    offset = float(stray.median())
    noise = 1.86 * float((stray - offset).abs().median()) / stray.numel() ** 0.5  # of a median of normal numbers
    if abs(offset) <= max(1e-3 * top, 5 * noise):
        return []
    in_file = offset * float(scene.meta.get("measurement_factor") or 1.0)
    text = f"pixels that no mask opens measure {in_file:.4g} in the file's units: a background or offset"
    before = float(scene.meta.get("offset") or 0.0)
    other = f"instead of {before:g}" if before else "or a dark frame with --dark FILE"
    remedy = f"subtract it with --offset {before + in_file:.4g}, {other}"
    return [Finding("warning", "offset", text, f"{remedy}; {_MOTION}" if scene.frames == 1 else remedy)]


def _measurement(scene: Scene) -> list[Finding]:
    y = scene.measurement
    top = float(y.max())
    if not bool(y.any()):
        return [Finding("warning", "measurement", "the measurement is zero everywhere", "check the capture")]
    found = []
    lowest = float(y.min())
    if lowest < 0 and not bool((scene.masks < 0).any()):
        few = float(y.flatten()[:: 1 + y.numel() // 10**6].quantile(0.01))  # noise around zero is no background
        strong = -few > 0.05 * max(top, -lowest)
        text = f"{int((y < 0).sum())} pixels are negative, down to {lowest:.3g}, though no mask is"
        remedy = "subtract less background" if strong else "noise around zero: harmless"
        found.append(Finding("warning" if strong else "note", "negative", text, remedy))
    live = (scene.operator.energy > 0).expand_as(y)
    dark = int(((y == 0) & live).sum())
    if dark > 0.01 * y.numel():
        text = f"{dark} measured pixels ({dark / y.numel():.1%}) are exactly 0: very dark, or cut off below"
        found.append(Finding("note", "dark pixels", text))
    return found + _saturation(scene)


def _saturation(scene: Scene) -> list[Finding]:
    """A pile-up at the very maximum that the next values below it do not show, and that Φx does not explain."""
    y = scene.measurement
    top, count = float(y.max()), piled_up(y.cpu().numpy())
    if not count or _is_true_white(scene, y == top):
        return []
    level = top * float(scene.meta.get("measurement_factor") or 1.0)
    text = f"{count} pixels ({count / y.numel():.2%}) sit exactly at the maximum {level:.4g}: saturated"
    return [Finding("warning", "saturation", text, "leave them out with --saturated exclude, or lower the exposure")]


def _is_true_white(scene: Scene, full: Tensor) -> bool:
    """Whether the truth, known for every snapshot, predicts the maximum where it is reached."""
    if scene.truth is None or len(scene.truth) < scene.snapshots:
        return False
    return bool(torch.allclose(scene.coded[full], scene.measurement[full], rtol=0.02))
