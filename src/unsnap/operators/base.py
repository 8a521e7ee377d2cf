r"""What every algorithm needs from a camera, written as the algebra it is.

$y = \Phi x$, with closed forms for the data steps. A camera whose $\Phi\Phi^\top$ can be inverted pixel by pixel has
all of them; what is generic is written here once, in terms of the rest.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, TypeAlias

import torch
from torch import Tensor, nn
from typing_extensions import Self

from unsnap.errors import InputError, short
from unsnap.operators.whole import Answer, Whole

MODEST = 20
"""Masks whose largest value lies within 2 to the power of ± this keep their scale."""
BEYOND = 40
"""Snapshots beyond 2 to the power of this times the masks are in units of their own."""

Rows: TypeAlias = "Tensor | slice | list[int]"
"""Some of the samples."""


class CodedOperator(nn.Module, ABC):
    """A camera: videos x (..., T, H, W) to measurements y (..., *image). A subclass without all its parts is refused.

    masks: one set, or one per sample with an axis N in front. `RANK` is the number of axes of one set.
    """

    RANK: ClassVar[int] = 3
    SPECTRAL: ClassVar[bool] = False
    """Are the frames bands of a spectrum?"""
    masks: Tensor
    energy: Tensor
    r"""The diagonal of $\Phi\Phi^\top$, shaped as a measurement: $\sum_t m_t^2$."""
    whole: Whole | None = None
    """Of the picture that this camera sees a part of, or a sample; None: it sees all there is."""

    def __init__(self, masks: Tensor, axes: Sequence[str] = "THW") -> None:
        super().__init__()
        masks = _real(masks, axes)
        self.register_buffer("masks", masks)
        self.register_buffer("energy", self._energy(masks))

    def _energy(self, masks: Tensor) -> Tensor:
        return self._exposure(masks.square())

    def _exposure(self, masks: Tensor) -> Tensor:
        """What is measured of a white video through these masks."""
        return masks.sum(-3)

    @property
    @abstractmethod
    def image(self) -> torch.Size:
        """The shape of what is measured of one video."""

    @abstractmethod
    def A(self, x: Tensor) -> Tensor:
        r"""$\Phi x$."""

    @abstractmethod
    def A_adjoint(self, y: Tensor) -> Tensor:
        r"""$\Phi^\top y$."""

    @abstractmethod
    def gram(self, y: Tensor) -> Tensor:
        r"""$\Phi\Phi^\top y$."""

    @abstractmethod
    def A_dagger(self, y: Tensor) -> Tensor:
        r"""Minimum-norm least-squares solution $\Phi^+ y = \Phi^\top(\Phi\Phi^\top)^+ y$."""

    @abstractmethod
    def prox_l2(self, z: Tensor, y: Tensor, gamma: float | Tensor) -> Tensor:
        r"""$\arg\min_x \frac{\gamma}{2}\|\Phi x - y\|^2 + \frac12\|x - z\|^2$ in closed form."""

    @abstractmethod
    def squared_norms(self) -> Tensor:
        r"""$\|\Phi\|^2$ of every sample's masks: (N,), or one number for one set."""

    def norm(self) -> float:
        r"""Spectral norm $\|\Phi\|$; gradient steps below $2/\|\Phi\|^2$ are stable."""
        return self.ask("norm", lambda: math.sqrt(float(self.squared_norms().detach().max())))

    def squared_norm(self) -> float:
        r"""$\|\Phi\|^2$, from which step sizes are made; 1 for an operator that measures nothing."""
        return self.norm() ** 2 or 1.0

    def unit(self, y: Tensor) -> tuple[Tensor, Self]:
        r"""Snapshots and camera, both over each sample's $\|\Phi\|$: numbers relative to $\|\Phi\|^2$ become plain."""
        norms = self.positive_squared_norms().sqrt()
        return y / norms.reshape(*norms.shape, *[1] * len(self.image)), self.scaled(1 / norms)

    def positive_squared_norms(self) -> Tensor:
        r"""$\|\Phi\|^2$ of every sample's masks on the whole picture; 1 where nothing is measured."""
        squares = self.ask("squared_norms", self.squared_norms)
        return torch.where(squares > 0, squares, 1)

    def project(self, x: Tensor, y: Tensor) -> Tensor:
        r"""Nearest point to x on $\{\Phi x = y\}$: $x + \Phi^+(y - \Phi x)$. Unmeasured pixels are left alone."""
        return x + self.A_dagger(self._misfit(x, y))

    def project_carried(self, x: Tensor, y: Tensor, carried: Tensor) -> tuple[Tensor, Tensor]:
        r"""Accelerated GAP's data step: $\bar y + (y - \Phi x)$, and the projection of x on what that measures."""
        carried = carried + self._misfit(x, y)
        return self.project(x, carried), carried

    def forward(self, x: Tensor) -> Tensor:
        return self.A(x)

    @property
    def video(self) -> torch.Size:
        """(T, H, W)."""
        return self.masks.shape[-3:]

    @property
    def frames(self) -> int:
        """Pictures of one video, a picture in colour counted once."""
        return int(self.video[0])

    @property
    def channels(self) -> int:
        """How many colours or bands there are: the frames are those of the first, then of the second, and so on."""
        return 1

    @property
    def codes(self) -> Tensor | None:
        """(..., T, H, W) masks as each measured picture sees them; None of a camera that mixes pixels."""
        return self.masks if self.pixelwise else None

    @property
    def uncoded(self) -> Tensor | None:
        """Pixels (..., *image) whose light came through other masks than the codes; None if there are none."""
        return None

    def at_pixels(self, y: Tensor) -> Tensor:
        """(..., K, H, W): what was measured (..., *image) at the place of each pixel, K times; here as it is."""
        return y

    @property
    def pixelwise(self) -> bool:
        """Does pixel (i, j) of every measured picture see nothing but the pixels (i, j) of the frames?"""
        return True

    @property
    def spread(self) -> tuple[int, int] | None:
        """How far apart (down, right) pixels of the video lie that one measured pixel sees; None if it is not known."""
        return (0, 0) if self.pixelwise else None

    @property
    def samples(self) -> torch.Size:
        """(N,) where every sample has masks of its own, () where all share one set."""
        return self.masks.shape[: -self.RANK]

    def peak(self) -> Tensor:
        """(..., 1, 1): the most open that a mask is, for every sample and shot; more than 0."""
        tiny = torch.finfo(self.masks.dtype).tiny
        return self.ask("peak", lambda: self.masks.abs().amax((-3, -2, -1)).clamp(min=tiny)[..., None, None])

    def contrast(self) -> Tensor:
        """(..., 1, 1): the rms deviation of masks from their mean over frames, by which frames are told apart.

        A single frame need not be told from others: of it the rms of its mask.
        """
        return self.ask("contrast", self._contrast)

    def _contrast(self) -> Tensor:
        return deviation(self.masks)

    def openness(self) -> Tensor:
        r"""The share of its frames that a usual pixel sees: the median of $(\sum_t |m_t|)^2 / (T \sum_t m_t^2)$.

        Of every sample's masks: (N,), or one number for one set.
        """
        return self.ask("openness", self._openness)

    def _openness(self) -> Tensor:
        energy, total = self.energy.detach(), self._exposure(self.masks.detach().abs())
        seen = torch.where(energy > 0, total.square() / energy, torch.nan)
        return (seen.reshape(*self.samples, -1).nanmedian(-1).values / self.masks.shape[-3]).nan_to_num(1.0)

    def ask(self, question: str, compute: Callable[[], Answer]) -> Answer:
        """The answer for the whole picture, if this camera sees a part of one; else what is computed here."""
        return compute() if self.whole is None else self.whole.ask(question, compute)

    # ------------------------------------------------------------------ cameras made from this one

    def part_of(self, whole: Whole | None) -> Self:
        """The same camera, which sees a part, or a sample, of this whole."""
        part = self.with_masks(self.masks)
        part.whole = whole
        return part

    def _like(self, masks: Tensor) -> Self:
        """With other masks, as a part of the same whole."""
        other = self.with_masks(masks)
        other.whole = self.whole
        return other

    @classmethod
    def named(cls, masks: Tensor, setting: str) -> Self:
        """The camera that a name with a setting stands for, as in `dispersed:0,2`; most have none."""
        if setting:
            raise InputError(f"cameras of the kind {cls.__name__} take no setting, got {short(setting)}; leave it out")
        return cls(masks)

    def with_masks(self, masks: Tensor) -> Self:
        """The same kind of camera with other masks; to be overridden by one that is made from more than masks."""
        return type(self)(masks)

    def select(self, rows: Rows) -> Self:
        """The camera of some samples: itself where all share one set of masks."""
        return self._like(self.masks[rows]) if self.samples else self

    def scaled(self, factor: float | Tensor) -> Self:
        """factor · Φ, factor being a number or one per sample (N,)."""
        if isinstance(factor, Tensor):
            factor = factor.reshape(*factor.shape, *[1] * self.RANK)
        return self._like(self.masks * factor)

    def weighted(self, weights: Tensor) -> Self:
        r"""$\mathrm{diag}(w)\,\Phi$, which measures $w \odot y$: weights (..., *image) say how pixels count."""
        return self._like(weights.unsqueeze(-3).to(self.masks) * self.masks)

    def without(self, pixels: Tensor) -> Self:
        """The camera that measures nothing at these pixels, a 0/1 or boolean (..., *image)."""
        gone = pixels.bool()
        return self.weighted(~gone) if bool(gone.any()) else self

    def aligned(self, y: Tensor) -> tuple[Tensor, Self, tuple[int, ...]]:
        """y as (B, *image), the camera with one mask set or B, and the leading axes of y that became B."""
        self._check(y, self.image, "snapshot")
        shape = y.shape[: y.ndim - len(self.image)]
        try:
            lead: torch.Size = torch.broadcast_shapes(shape, self.samples)  # type: ignore[no-untyped-call]
        except RuntimeError as error:
            raise InputError(
                f"masks must be one set for all snapshots or one for each, got {tuple(self.masks.shape)} for "
                f"{tuple(y.shape)}"
            ) from error
        phi, one = self, self.masks.shape[-self.RANK :]
        if self.samples and self.samples != lead:
            phi = self._like(self.masks.expand(*lead, *one).reshape(-1, *one))
        return y.expand(*lead, *self.image).reshape(-1, *self.image), phi, tuple(lead)

    def normalised(self, y: Tensor) -> tuple[Tensor, Self]:
        """Snapshots and camera, both times the power of two that brings extreme masks near 1: exact, the same videos.

        Squares of masks of 1e-30 are 0 and those of 1e30 infinite. An InputError for y that is not finite, or that no
        video in [0, 1] comes near.
        """
        if y.is_meta or torch.compiler.is_compiling():
            return y, self
        if not bool(torch.isfinite(y).all()):
            raise InputError("y must be finite, got NaN or Inf; replace those values, and their masks, by 0")
        peak = self.masks.detach().abs().amax(tuple(range(-self.RANK, 0))).double()
        exponent = torch.frexp(peak).exponent
        powers = self.ask("powers", lambda: torch.where(exponent.abs() > MODEST, 1 - exponent, 0))
        phi = self
        if bool(powers.any()):
            phi = self._like(_times(self.masks, powers.reshape(*powers.shape, *[1] * self.RANK)))
            y = _times(y, powers.reshape(*powers.shape, *[1] * len(self.image)))
        top, most = float(y.detach().abs().max()) if y.numel() else 0.0, float(phi.masks.detach().abs().max()) or 1.0
        if not top <= most * 2.0**BEYOND:
            raise InputError(
                f"y reaches {top / most:.1e} times the largest mask, which no video in [0, 1] does; divide it by what "
                "white is in its units"
            )
        return y, phi

    # ------------------------------------------------------------------ checks

    def _misfit(self, x: Tensor, y: Tensor) -> Tensor:
        self._check(y, self.image, "snapshot")
        return y - self.A(x)

    def _check(self, tensor: Tensor, shape: torch.Size, what: str) -> None:
        if tensor.shape[-len(shape) :] != shape:
            raise InputError(
                f"{what} must end in {tuple(shape)} to fit masks {tuple(self.masks.shape)}, "
                f"got shape {tuple(tensor.shape)}"
            )

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """In another type what follows from the masks is computed again: not rounded before, nor beyond its range."""
        before = self.masks.dtype
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if self.masks.dtype != before:
            self._buffers.update(self.with_masks(self.masks)._buffers)
        return self

    def extra_repr(self) -> str:
        return f"masks={tuple(self.masks.shape)}"


def check_given(y: object, phi: object) -> None:
    """An InputError for masks, or anything else that is no camera, and for a snapshot that is no tensor."""
    if not isinstance(phi, CodedOperator):
        raise InputError(f"phi must be a camera, got {type(phi).__name__}; make one of masks: Snapshot(masks)")
    if not isinstance(y, Tensor):
        raise InputError(f"y must be a tensor, got {type(y).__name__}; make one of an array: torch.as_tensor(y)")


def deviation(codes: Tensor) -> Tensor:
    """(..., 1, 1): the rms deviation of codes (..., T, H, W) from their mean over T frames; of one frame their rms."""
    squares = codes.var(-3, correction=0) if codes.shape[-3] > 1 else codes.square().squeeze(-3)
    # Row by row: torch shares one large sum among its threads, so that its last bit depends on their number.
    return squares.mean(-1).mean(-1).sqrt()[..., None, None]


def _times(values: Tensor, powers: Tensor) -> Tensor:
    """values · 2^powers, in two steps, as one alone may be more than the type holds."""
    half = torch.div(powers, 2, rounding_mode="floor")
    return values * torch.exp2(half.to(values)) * torch.exp2((powers - half).to(values))


def _real(masks: Tensor, axes: Sequence[str]) -> Tensor:
    """The masks as finite floating-point numbers with these axes, or one more for samples; else an InputError."""
    one = ", ".join(axes)
    masks = torch.as_tensor(masks)
    if masks.ndim not in (len(axes), len(axes) + 1) or masks.numel() == 0:
        raise InputError(f"masks must be ({one}) or (N, {one}) and not empty, got shape {tuple(masks.shape)}")
    if masks.is_complex():
        raise InputError(f"masks must be real, got {masks.dtype}; pass their real part")
    masks = masks if masks.is_floating_point() else masks.to(torch.float32)
    values = not (masks.is_meta or torch.compiler.is_compiling())  # else shapes alone: operations are counted, exported
    if values and not bool(torch.isfinite(masks).all()):
        raise InputError("masks must be finite, got NaN or Inf; replace those values, for example by 0")
    return masks
