r"""Similar patches filtered together, without singular values: a nuclear norm's work at a third of the price.

Where [`WNNM`][unsnap.priors.wnnm.WNNM] shrinks each singular value s of a group's deviations Y from its mean patch,
this multiplies it by a smooth step of its square over the same threshold c,
$$X = (3U^2 - 2U^3)\,Y, \qquad U = YY^\top(YY^\top + c)^{-1}, \quad c = 8\sqrt{2n}\,\sigma^2,$$
which takes one inverse of a small matrix: s² = c keeps one half of s, s² ≪ c nearly nothing, s² ≫ c nearly all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from unsnap.algorithms.iterate import Denoiser
from unsnap.errors import InputError
from unsnap.priors.wnnm import WNNM, filtered, thresholds


class Matches(NamedTuple):
    groups: Tensor
    """(..., references, n): the flat index in its video of the first pixel of every patch"""
    places: Tensor
    """(..., references, T): the index in its frame of the nearest patch of every frame"""


@dataclass(frozen=True)
class GroupFilter(WNNM):
    """Filter of groups of similar patches in videos (..., T, H, W); it records no gradients.

    patch: side of a patch; group: patches in a group; stride: pixels between reference patches;
    radius: how far from the reference patch to search, in each of the `span` frames around it.

    >>> noise = 0.1 * torch.randn(4, 32, 32, generator=torch.Generator().manual_seed(1))
    >>> bool((GroupFilter()(0.5 + noise, 0.3) - 0.5).norm() < 0.5 * noise.norm())
    True
    """

    patch: int = 12
    group: int = 24
    stride: int = 8
    radius: int = 7
    span: int = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.span < 1:
            raise ValueError(f"a group needs at least one frame, got span={self.span}")

    def match(self, x: Tensor) -> Tensor:
        return self.search(x).groups

    def shrink(self, x: Tensor, groups: Tensor, sigma: float | Tensor) -> Tensor:
        from unsnap.kernels import groups as kernel

        keys = kernel.keys((x.shape[-3], x.shape[-2], x.shape[-1]), self.patch, self.stride)
        return filtered(x, groups, sigma, self.patch, keys, kernel.smooth)

    def search(self, x: Tensor, places: Tensor | None = None, reach: int = 3) -> Matches:
        """Groups within `radius` of their references, or within `reach` of the places where each was nearest."""
        from unsnap.kernels import groups

        self.check_size(*x.shape[-2:])
        videos = x.detach().cpu().reshape(-1, *x.shape[-3:]).contiguous().numpy()
        keys = groups.keys(videos.shape[1:], self.patch, self.stride)
        radius = self.radius if places is None else reach
        if places is None:
            own = torch.from_numpy(keys % (x.shape[-1] * x.shape[-2]))[:, None]
            nearest = own.repeat(len(videos), 1, x.shape[-3]).reshape(len(videos), len(keys), -1)
        else:
            nearest = places.reshape(len(videos), len(keys), -1).clone()
        found = [
            torch.from_numpy(groups.match(video, keys, place.numpy(), self.patch, self.group, radius, self.span))
            for video, place in zip(videos, nearest, strict=True)
        ]
        every = found[0] if len(found) == 1 else torch.stack(found)
        lead = x.shape[:-3]
        return Matches(every.reshape(*lead, len(keys), -1), nearest.reshape(*lead, len(keys), -1))


@dataclass(frozen=True)
class InSequence:
    """`prior` for the videos (N, T, H, W) of N snapshots taken one after the other.

    Groups reach into the videos before and after their own, never further, so that the cost is linear in N.
    """

    prior: GroupFilter

    def search(self, x: Tensor, places: Tensor | None = None, reach: int = 3) -> Matches:
        """Groups (references, n) as indices in all videos as one, ordered like its keys; places (N, keys, frames)."""
        from unsnap.kernels import groups

        if x.numel() >= 2**31:
            raise InputError(
                f"{len(x)} videos of {tuple(x.shape[1:])} are too many to be taken together; take fewer, or each alone"
            )
        prior, frames, size = self.prior, x.shape[1], x[0].numel()
        prior.check_size(*x.shape[-2:])
        keys = groups.keys((frames, x.shape[2], x.shape[3]), prior.patch, prior.stride)
        radius, near = prior.radius if places is None else reach, min(3, len(x))
        if places is None:
            places = torch.from_numpy(keys % x[0, 0].numel())[:, None].repeat(len(x), 1, near * frames)
        nearest = places.reshape(len(x), len(keys), -1).clone()
        found = torch.empty(len(keys) // frames, len(x), frames, prior.group, dtype=torch.int32)
        for k, place in enumerate(nearest):
            first = min(max(k - 1, 0), len(x) - near)
            window = x[first : first + near].detach().cpu().reshape(-1, *x.shape[-2:]).contiguous().numpy()
            own = (keys + (k - first) * size).astype(keys.dtype)
            near_by = groups.match(window, own, place.numpy(), prior.patch, prior.group, radius, near * prior.span)
            found[:, k] = torch.from_numpy(near_by).reshape(-1, frames, prior.group) + first * size
        return Matches(found.reshape(-1, prior.group), nearest)

    def shrink(self, x: Tensor, groups: Tensor, sigma: float | Tensor) -> Tensor:
        from unsnap.kernels import groups as kernel

        prior, frames = self.prior, x.shape[1]
        keys = kernel.keys((frames, x.shape[2], x.shape[3]), prior.patch, prior.stride)
        least = thresholds(x, sigma, prior.patch, keys, prior.group).reshape(len(x), -1, frames)
        video = x.detach().cpu().reshape(-1, *x.shape[-2:]).contiguous().numpy()
        limits = least.transpose(1, 0, 2).reshape(-1)
        return torch.from_numpy(kernel.smooth(video, groups.numpy(), prior.patch, limits)).reshape(x.shape).to(x.device)


def tracking(prior: GroupFilter | InSequence, video: Tensor, period: int, shared: bool = False) -> Denoiser:
    """`prior` for one run that starts from `video`: at every `period`-th call groups are found anew.

    shared: the videos are components (..., K, T, H, W) of which the first, the strongest, decides on the groups of all.

    They are found in what it last returned: in the video before it, which fits the snapshot, patches that share the
    traces of the mask look alike.
    """
    # What nobody will look at again is not kept: a video until groups are found in it, groups until new ones are.
    groups, places = torch.empty(0), None
    last: Tensor | None = video
    age = 0

    def denoise(x: Tensor, sigma: float | Tensor, /) -> Tensor:
        nonlocal groups, places, last, age
        if last is not None:
            groups = torch.empty(0)
            groups, places = prior.search(last.select(-4, 0) if shared else last, places)
            last = None
        age += 1
        own = groups.unsqueeze(-3).expand(*x.shape[:-3], *groups.shape[-2:]) if shared else groups
        cleaned = prior.shrink(x, own, sigma)
        last = cleaned if age % period == 0 else None
        return cleaned

    return denoise
