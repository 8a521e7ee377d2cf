"""Where a model's iteration starts, as values whose numbers travel in its file, so that it stays the same model.

Built from algorithms and priors alone. No start records gradients.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d
from typing_extensions import Unpack

from unsnap.algorithms import gap, noisy_gap
from unsnap.algorithms.iterate import Callback, Denoiser, Solution, Watch, before
from unsnap.algorithms.noise import noise_map
from unsnap.algorithms.noisy_gap import size
from unsnap.algorithms.schedules import constant, geometric
from unsnap.errors import InputError
from unsnap.fields import Positive, Size, Within, check
from unsnap.models.interpolation import Interpolation, sparse
from unsnap.models.still import still
from unsnap.operators import RGB, Bayer, CodedOperator, Multishot
from unsnap.priors import TV, WNNM, GroupFilter
from unsnap.priors.channels import across, basis, components, in_basis
from unsnap.priors.group_filter import InSequence, tracking
from unsnap.priors.wnnm import rematching
from unsnap.registry import Registry

_Count = Annotated[int, Within(1, 10_000)]
_Pixels = Annotated[int, Within(1, 256)]

Start = Callable[[Tensor, CodedOperator], Tensor]
"""start(y, phi): videos (..., T, H, W) from snapshots y (..., *image); any callable, but only values can be saved"""


Unseen = Literal["filled", "black"]
"""What the camera has not seen, at first: filled in from around it, or black, as it is in the least-squares video."""
_OLD: dict[str, object] = {"unseen": "black"}

CHEAP = 10
"""Iterations of total variation that cost about as much as one with groups of patches."""
TRUST = 0.4
"""Share of a network's video where groups are first found; the rest is total variation, which makes up nothing."""
ASTRAY = 4.0
"""A network's video is not used if its largest value is so many times that of total variation."""


class Iterated(ABC):
    """A start that takes its time, and tells `callback` how far it is, counting up to 0."""

    @abstractmethod
    def __call__(self, y: Tensor, phi: CodedOperator, callback: Callback | None = None) -> Tensor: ...


@dataclass(frozen=True)
class LeastSquares:
    r"""$\Phi^+ y$."""

    @torch.no_grad()
    def __call__(self, y: Tensor, phi: CodedOperator) -> Tensor:
        return phi.A_dagger(y)


@dataclass(frozen=True)
class Adjoint:
    r"""$\Phi^\top y$ as in the paper on DE-GAP, for masks in any units and any number of shots: over $K \max m^2$."""

    @torch.no_grad()
    def __call__(self, y: Tensor, phi: CodedOperator) -> Tensor:
        most = phi.peak().reshape(*phi.samples, -1).amax(-1)
        shots = phi.image[0] if isinstance(phi, Multishot) else 1
        scale = (shots * most.square()).clamp(min=torch.finfo(most.dtype).tiny)
        return phi.A_adjoint(y) / scale[..., None, None, None]


@dataclass(frozen=True)
class TotalVariation(Iterated):
    """Accelerated GAP with total variation from `still`: costs less than one evaluation of most networks.

    weight: of the prior; temporal: of differences in time; inner: dual updates of the prior per iteration; unseen:
    "filled", or "black" for the least-squares video in place of `still`, as files had it that do not say.
    """

    IN_OLD_FILES: ClassVar[dict[str, object]] = _OLD

    weight: Size = 0.1
    iterations: _Count = 40
    temporal: Size = 0.2
    isotropic: bool = False
    inner: _Count = 4
    unseen: Unseen = field(default="filled", kw_only=True)

    def __post_init__(self) -> None:
        check("total_variation: ", TotalVariation, vars(self))

    def solve(
        self,
        y: Tensor,
        phi: CodedOperator,
        iterations: int | None = None,
        x0: Tensor | None = None,
        **watch: Unpack[Watch],
    ) -> Solution:
        prior = TV(temporal=self.temporal, isotropic=self.isotropic, iterations=self.inner)
        if x0 is None and self.unseen == "filled":
            x0 = phi.project(still(y, phi), y)
            if bool((few := sparse(phi)).any()):
                x0 = torch.where(few, Interpolation()(y, phi), x0)
        count = self.iterations if iterations is None else iterations
        return gap(y, phi, across(prior, phi), constant(self.weight, count), x0=x0, **watch)

    def __call__(self, y: Tensor, phi: CodedOperator, callback: Callback | None = None) -> Tensor:
        with torch.no_grad():
            return self.solve(y, phi, early=False, callback=before(callback, self.iterations)).x


def first_video(y: Tensor, phi: CodedOperator) -> Tensor | None:
    """What plug-and-play begins with: of a mosaic total variation, as three quarters of red and blue are unseen."""
    return TotalVariation()(y, phi) if isinstance(phi, Bayer) else None


@dataclass(frozen=True)
class LowRank(Iterated):
    """GAP that knows the noise with low-rank groups of similar patches: the best that seconds buy without weights.

    patch, group, stride, radius: of `WNNM`; sigma falls geometrically from `first` to `last`, and patches are grouped
    anew every `rematch` iterations. It begins with total variation of `weight`, `tv_iterations` at most, without the
    pixels whose light is less than `dark` times their noise. What noise is left in the frames counts as `share` of the
    snapshot's over the contrast of the masks, at most `limit`. Images with a side below `smallest` are left to
    `TotalVariation()`. The noise can be told only of a camera that has `codes`, and not of a sparse shutter, whose
    video begins as `Interpolation`; others count as clean. unseen: of `TotalVariation`; with "black" no
    shutter counts as sparse.
    """

    IN_OLD_FILES: ClassVar[dict[str, object]] = _OLD

    patch: _Pixels = 10
    group: _Count = 16
    stride: _Pixels = 8
    radius: _Pixels = 7
    first: Positive = 60 / 255
    last: Size = 8 / 255
    iterations: _Count = 16
    rematch: _Count = 8
    weight: Size = 0.2
    tv_iterations: _Count = 100
    dark: Size = 4.0
    share: Size = 0.6
    limit: Size = 30 / 255
    smallest: _Count = 16
    unseen: Unseen = field(default="filled", kw_only=True)

    def __post_init__(self) -> None:
        check("low_rank: ", type(self), vars(self))

    @property
    def prior(self) -> WNNM:
        return WNNM(self.patch, self.group, self.stride, self.radius)

    def solve(
        self,
        y: Tensor,
        phi: CodedOperator,
        iterations: int | None = None,
        *,
        noise: Tensor | None = None,
        together: bool = False,
        begin: Tensor | None = None,
        **watch: Unpack[Watch],
    ) -> Solution:
        """The whole solution; noise: standard deviation of y, like y, if it is known.

        together: the snapshots were taken one after the other, and each is told of the videos of its neighbours.
        begin: videos nearer to the truth than total variation, a network's for example. Sparse shutters do without, and
        so do snapshots where it has no value or absurd ones.
        """
        few, codes = sparse(phi) & (self.unseen == "filled"), phi.codes
        level = self._noise(y, phi, few) if noise is None else noise.expand(*phi.aligned(y)[2], *phi.image)
        # In a list, from which the iteration takes it: nobody else keeps it alive.
        start = [Interpolation()(y, phi) if bool(few.all()) else self._first(y, phi, level, watch.get("callback"))]
        if bool(few.any() & ~few.all()):
            start = [torch.where(few, Interpolation()(y, phi), start.pop())]
        if begin is None:
            clean = self._cleaner(start[0], phi, together)
        else:
            without = few | _astray(begin, start[0])
            clean = self._cleaner(torch.where(without, start[0], _smooth_mean(begin, start[0])), phi, together)
            start = [torch.where(without, start.pop(), begin)]
        if noise is None and codes is not None:
            level = self._again(level, y, phi, start[0], clean)
        least = self._in_video(level, phi, start[0])

        def denoise(x: Tensor, sigma: float | Tensor, /) -> Tensor:
            return clean(x, least.clamp(min=float(sigma)))

        how: Watch = {"early": False, **watch}
        schedule = geometric(self.first, self.last, self.iterations if iterations is None else iterations)
        found = noisy_gap(y, phi, denoise, schedule, noise=level, **self._rules, x0=start.pop, **how)
        return self._judged(found, y, phi, level)

    def _noise(self, y: Tensor, phi: CodedOperator, few: Tensor) -> Tensor:
        """Of the snapshots, where it can be told."""
        codes = phi.codes
        if codes is None or bool(few.all()):
            return torch.zeros_like(y)
        return torch.where(few.reshape(*few.shape[:-3], *[1] * len(phi.image)), 0, _noise(y, phi, codes))

    def _first(self, y: Tensor, phi: CodedOperator, level: Tensor, callback: Callback | None) -> Tensor:
        """Total variation without the pixels in the dark."""
        flat, camera, lead = phi.aligned(y)
        # Those that see nothing say nothing as they are; other masks would be as large as the video.
        dark = (camera.energy < (self.dark * level.reshape(flat.shape)) ** 2) & (camera.energy > 0)
        lit = camera.without(dark) if bool(dark.any()) else camera
        shaped = callback and (lambda k, x, change: callback(k, x.reshape(*lead, *phi.video), change.reshape(lead)))
        watch = before(shaped, self.tv_iterations // CHEAP, CHEAP)
        told = None if phi.whole is None else phi.whole.told("tv_iterations")
        prior = TotalVariation(self.weight, told or self.tv_iterations, unseen=self.unseen)
        found = prior.solve(flat, lit, callback=watch, early=told is None)
        if phi.whole is not None:
            phi.whole.note("tv_iterations", found.iterations)
        return found.x.reshape(*lead, *phi.video)

    def __call__(self, y: Tensor, phi: CodedOperator, callback: Callback | None = None) -> Tensor:
        if min(phi.video[-2:]) < self.smallest:
            return TotalVariation(unseen=self.unseen)(y, phi, callback)
        with torch.no_grad():
            return self.solve(y, phi, callback=before(callback, self.iterations)).x

    @property
    def _rules(self) -> dict[str, float]:
        """What `noisy_gap` is told beside the noise."""
        return {}

    def _judged(self, found: Solution, y: Tensor, phi: CodedOperator, noise: Tensor) -> Solution:
        return found

    def _again(self, noise: Tensor, y: Tensor, phi: CodedOperator, start: Tensor, clean: Denoiser) -> Tensor:
        """The noise, estimated again with a first video."""
        return noise

    def _cleaner(self, start: Tensor, phi: CodedOperator, together: bool) -> Denoiser:
        if together:
            raise ValueError("LowRank takes every snapshot alone; use Annealed for snapshots in sequence")
        return across(rematching(lambda sigma: self.prior, self.rematch), phi)

    def _in_video(self, noise: Tensor, phi: CodedOperator, video: Tensor) -> Tensor:
        """(..., 1, H, W): about what noise of the snapshots leaves in the frames; the mean square of several shots."""
        if phi.codes is None:
            return video.new_zeros(*video.shape[:-3], 1, *video.shape[-2:])
        each = (self.share * noise / phi.contrast()).nan_to_num().clamp(max=self.limit)
        each = each if phi.pixelwise else phi.at_pixels(each)
        return each.reshape(*video.shape[:-3], -1, *video.shape[-2:]).square().mean(-3, keepdim=True).sqrt()


@dataclass(frozen=True)
class Annealed(LowRank):
    """The same with the faster `GroupFilter`, which buys more iterations, smaller steps and larger groups.

    Groups are found in the denoised video, at first within `radius`, then near where they were: every `rematch`
    iterations, which is seldom, as groups found too often follow their own artefacts. The noise is estimated again
    from what a first smooth video leaves of the snapshot, times `missed`; misfits are forgotten by its power `forgets`.
    The snapshot counts less with every sigma, but not while the misfit is above `hold` times the noise. A run has
    converged if its last change is within the tolerance and its misfit is at most `explained` times the noise.
    """

    patch: _Pixels = 12
    group: _Count = 32
    stride: _Pixels = 10
    last: Size = 5 / 255
    iterations: _Count = 38
    rematch: _Count = 24
    forgets: Size = 2.0
    missed: Size = 1.15
    hold: Size = 0.8
    explained: Size = 1.25

    @property
    def prior(self) -> GroupFilter:
        return GroupFilter(self.patch, self.group, self.stride, self.radius)

    @property
    def _rules(self) -> dict[str, float]:
        return {"power": self.forgets, "hold": self.hold}

    def _judged(self, found: Solution, y: Tensor, phi: CodedOperator, noise: Tensor) -> Solution:
        least = phi.contrast() * self.last / self.share  # what counts as much in the frames as the last sigma
        explained = phi.ask(
            "judged",
            lambda: size(y - phi.A(found.x), phi) <= self.explained * size(torch.maximum(noise, least), phi),
        )
        return replace(found, converged=found.converged & explained)

    def _again(self, noise: Tensor, y: Tensor, phi: CodedOperator, start: Tensor, clean: Denoiser) -> Tensor:
        codes = phi.codes
        # A name for the smooth video would keep it alive.
        explained = phi.A(clean(phi.project(start, y), self.first))
        return noise if codes is None else torch.minimum(noise, self.missed * _noise(y, phi, codes, explained))

    def _cleaner(self, start: Tensor, phi: CodedOperator, together: bool) -> Denoiser:
        if together and (start.ndim != 4 or phi.channels > 1):
            raise ValueError(
                f"snapshots in sequence are grey and have one leading axis, got videos {tuple(start.shape)} of "
                f"{phi.channels} channels"
            )
        if phi.channels == 1:
            return tracking(InSequence(self.prior) if together else self.prior, start, self.rematch)
        rows, shared = basis(start, phi), not isinstance(phi, RGB)
        return in_basis(tracking(self.prior, components(start, rows), self.rematch, shared), rows)


def _astray(network: Tensor, variation: Tensor) -> Tensor:
    """(..., 1, 1, 1): has a network no value, or absurd ones, as it may with cameras unlike any that it knows?"""
    if network.shape != variation.shape or network.dtype != variation.dtype:
        wanted, found = (f"{tuple(video.shape)} of {video.dtype}" for video in (variation, network))
        raise InputError(f"begin: videos must be {wanted}, got {found}")
    most, usual = (video.abs().amax((-3, -2, -1), keepdim=True) for video in (network, variation))
    return ~(most <= ASTRAY * usual)


def _smooth_mean(network: Tensor, variation: Tensor) -> Tensor:
    """Where groups are first found: what a network makes up is sharp and repeats itself, and groups would follow it."""
    video = torch.lerp(variation, network, TRUST)
    frames = video.reshape(-1, 1, *video.shape[-2:])
    for _ in range(2):  # together nearly a Gaussian of 2 pixels
        frames = avg_pool2d(frames, 5, stride=1, padding=2, count_include_pad=False)
    return frames.reshape(video.shape)


def _noise(y: Tensor, phi: CodedOperator, codes: Tensor, known: Tensor | None = None) -> Tensor:
    return noise_map(y, codes, known, partial(phi.ask, "noise"), phi.uncoded)


STARTS: Registry[type] = Registry(
    "start",
    {
        "least_squares": LeastSquares,
        "adjoint": Adjoint,
        "total_variation": TotalVariation,
        "low_rank": LowRank,
        "annealed": Annealed,
    },
)
"""Starts by the name that model files and `unsnap train --set start=...` use; each is a frozen dataclass of numbers."""
