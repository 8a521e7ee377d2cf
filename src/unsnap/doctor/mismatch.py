"""Does the measurement equal Φx? If not, which everyday mistake makes it so."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from unsnap.operators import CodedOperator
from unsnap.scene import Scene

# Below EXACT the file was computed from its truth; below CLOSE the rest is noise and needs no explanation.
EXACT, CLOSE = 1e-3, 0.02


@dataclass(frozen=True)
class Finding:
    """One observation about a file; `fatal` means no method can work, `remedy` says what to do."""

    level: Literal["ok", "note", "warning", "fatal"]
    subject: str
    text: str
    remedy: str = ""


@dataclass(frozen=True)
class Explanation:
    """A candidate explanation: y is `prediction` (up to a gain unless `exact_gain`)."""

    text: str
    remedy: str
    prediction: Tensor
    exact_gain: bool = False


@dataclass(frozen=True)
class Case:
    """One capture: y and Φx in double precision, masks and x (T, H, W), how the file was read, and the camera.

    factor: of the measurement; before: the offset that was subtracted from it, in the file's units.
    """

    y: Tensor
    coded: Tensor
    masks: Tensor
    x: Tensor
    factor: float
    before: float
    time_axis: int | None
    camera: CodedOperator

    def encode(self, masks: Tensor, x: Tensor | None = None) -> Tensor:
        """What the camera would measure of x, by default the truth, with these masks."""
        return self.camera.with_masks(masks).A(self.x if x is None else x).double()


def explain_mismatch(scene: Scene) -> list[Finding]:
    """Compare y with Φx where the truth is known; on disagreement, name the best of the likely explanations."""
    if scene.truth is None:
        return []
    y = scene.measurement[: len(scene.truth)].double()
    coded = scene.coded.double()
    error = _error(y, coded)
    snr = f"relative error {error:.2g}" + (f", {-20 * math.log10(error):.1f} dB" if 0 < error < 1 else "")
    if error < EXACT:
        return [Finding("ok", "forward model", f"the measurement equals Σ mask·truth ({snr})")]
    best = _best(_worst(scene, scene.truth, y, coded))
    if best is not None:
        return [Finding("warning", "forward model", f"the measurement is not Σ mask·truth ({snr}): {best[0]}", best[1])]
    if error < CLOSE:
        return [Finding("ok", "forward model", f"the measurement equals Σ mask·truth up to noise ({snr})")]
    level: Literal["note", "warning"] = "note" if error < 0.15 else "warning"
    text = f"the measurement differs from Σ mask·truth ({snr}): strong noise, or not the masks or truth of this capture"
    return [Finding(level, "forward model", text, "check the truth, or give the right masks with --masks FILE")]


def _worst(scene: Scene, truth: Tensor, y: Tensor, coded: Tensor) -> Case:
    """The snapshot that is furthest from Φx: the place to look for an explanation."""
    n = int((y - coded).square().flatten(1).sum(1).argmax())
    phi = scene.operator
    masks = phi.masks[n] if phi.samples else phi.masks
    axis = scene.meta.get("time_axis") if masks.ndim == 3 and not phi.samples else None
    factor = float(scene.meta.get("measurement_factor") or 1.0)
    before = float(scene.meta.get("offset") or 0.0)
    return Case(y[n], coded[n], masks, truth[n], factor, before, axis, phi)


def _best(case: Case) -> tuple[str, str] | None:
    """Text and remedy of the simplest explanation that removes at least half of the error."""
    tried = [(*_fit(case.y, explanation), explanation) for explanation in _explanations(case)]
    smallest = min((error for error, _, _ in tried if math.isfinite(error)), default=math.inf)
    if not smallest <= 0.5 * _error(case.y, case.coded):
        return None
    error, gain, explanation = next(t for t in tried if t[0] <= 1.2 * smallest + 1e-4)
    text = explanation.text.format(gain=gain)
    if not explanation.exact_gain and "{gain" not in explanation.text and abs(gain - 1) > CLOSE:
        text += f", with a gain of {gain:.4g}"
    return f"{text} (relative error then {error:.2g})", explanation.remedy.format(gain=gain, factor=gain * case.factor)


def _fit(y: Tensor, explanation: Explanation) -> tuple[float, float]:
    """Relative error and gain of y ≈ gain·prediction."""
    p = explanation.prediction
    power = float((p * p).sum())
    gain = 1.0 if explanation.exact_gain or power == 0 else float((p * y).sum()) / power
    return _error(gain * p, y), gain


def _explanations(case: Case) -> Iterator[Explanation]:
    """Explanations, simplest first."""
    yield Explanation(
        "y ≈ {gain:.4g}·Φx", "divide the measurement by {gain:.4g}, or give --scale {factor:.5g}", case.coded
    )
    yield _affine(case)
    yield from _values(case)
    yield from _orders(case)


def _affine(case: Case) -> Explanation:
    """Least-squares line of y against Φx."""
    centred = case.coded - case.coded.mean()
    power = float(centred.square().sum())
    slope = float((centred * case.y).sum()) / power if power > 0 else 0.0
    offset = float(case.y.mean() - slope * case.coded.mean())
    level = offset * case.factor
    remedy = f"subtract the dark level {level:.4g} from the measurement (--offset {case.before + level:.4g})"
    if abs(slope - 1) > CLOSE:
        remedy += f", then divide it by {slope:.4g}"
    text = f"y ≈ {slope:.4g}·Φx plus an offset of {level:.4g} in the file's units"
    return Explanation(text, remedy, slope * case.coded + offset, exact_gain=True)


def _values(case: Case) -> Iterator[Explanation]:
    """Right places, wrong values: clipped, wrapped, normalised, complementary masks."""
    top = float(case.y.max())
    yield Explanation(
        f"it is clipped at {top * case.factor:.4g} in the file's units",
        "set masks and measurement to 0 at the clipped pixels, or lower the exposure",
        case.coded.clamp(max=top),
        exact_gain=True,
    )
    for bits in (8, 16):
        wrapped = (case.coded * case.factor).round().remainder(2**bits) / case.factor
        remedy = f"sum the frames in a type wider than uint{bits} and save again"
        yield Explanation(f"it wrapped around at 2^{bits}", remedy, wrapped, exact_gain=True)
    total = case.encode(case.masks, torch.ones_like(case.x))
    normalised = torch.where(total == 0, 0.0, case.coded / torch.where(total == 0, 1.0, total))
    yield Explanation("it was divided by Σm", "multiply the measurement by the sum of the masks", normalised)
    complement = case.encode(1 - case.masks)
    yield Explanation("it was coded with 1 − mask", "give the complement of the masks with --masks FILE", complement)


def _orders(case: Case) -> Iterator[Explanation]:
    """Right values, wrong places: transposed, flipped, reversed or rolled."""
    m, x, axis = case.masks, case.x, case.time_axis
    fix = "give the masks in the right order with --masks FILE"
    if m.shape[-1] == m.shape[-2]:
        yield Explanation("the masks are transposed", "give --transpose-masks", case.encode(m.mT))
        yield Explanation("the truth is transposed", "store the truth transposed", case.encode(m, x.mT))
    if case.coded.shape[-1] == case.coded.shape[-2]:  # a dispersed one is wider than the masks
        yield Explanation("the measurement is transposed", "store the measurement transposed", case.coded.mT)
    yield Explanation("the masks are upside down", fix, case.encode(m.flip(-2)))
    yield Explanation("the masks are mirrored left to right", fix, case.encode(m.flip(-1)))
    yield Explanation("the masks are turned by 180°", fix, case.encode(m.flip(-1, -2)))
    yield Explanation("the masks run backwards in time", fix, case.encode(m.flip(-3)))
    yield Explanation("the masks are one frame early", fix, case.encode(m.roll(1, -3)))
    yield Explanation("the masks are one frame late", fix, case.encode(m.roll(-1, -3)))
    if axis is None or len(set(m.shape)) > 1:
        return
    for other in {0, 1, 2} - {axis}:
        moved = [a.movedim(0, axis).movedim(other, 0) for a in (m, x)]
        yield Explanation(f"time is axis {other}, not {axis}", f"give --time-axis {other}", case.encode(*moved))


def _error(y: Tensor, reference: Tensor) -> float:
    """‖y − reference‖ / ‖reference‖, finite for any input."""
    miss = float((y - reference).norm())
    return miss / max(float(reference.norm()), torch.finfo(torch.float32).tiny) if miss else 0.0
