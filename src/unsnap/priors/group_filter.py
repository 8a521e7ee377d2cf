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
from unsnap.priors.wnnm import WNNM, filtered


class Matches(NamedTuple):
    groups: Tensor
    """(..., references, n): the flat index in its video of the first pixel of every patch"""
    places: Tensor
    """(..., references, T): the index in its frame of the nearest patch of every frame"""


@dataclass(frozen=True)
class GroupFilter(WNNM):
    """Filter of groups of similar patches in videos (..., T, H, W); it records no gradients.

    patch: side of a patch; group: patches in a group; stride: pixels between reference patches;
    radius: how far from the reference patch to search, in every frame.

    >>> noise = 0.1 * torch.randn(4, 32, 32, generator=torch.Generator().manual_seed(1))
    >>> bool((GroupFilter()(0.5 + noise, 0.3) - 0.5).norm() < 0.5 * noise.norm())
    True
    """

    patch: int = 12
    group: int = 24
    stride: int = 8
    radius: int = 7

    def match(self, x: Tensor) -> Tensor:
        return self.search(x).groups

    def shrink(self, x: Tensor, groups: Tensor, sigma: float | Tensor) -> Tensor:
        from unsnap.kernels import groups as kernel

        keys = kernel.keys((x.shape[-3], x.shape[-2], x.shape[-1]), self.patch, self.stride)
        return filtered(x, groups, sigma, self.patch, keys, kernel.smooth)

    def search(self, x: Tensor, last: Matches | None = None, reach: int = 3) -> Matches:
        """Groups within `radius` of their references, or within `reach` of where each frame's nearest patch was."""
        from unsnap.kernels import groups

        self.check_size(*x.shape[-2:])
        videos = x.detach().cpu().reshape(-1, *x.shape[-3:]).contiguous().numpy()
        keys = groups.keys(videos.shape[1:], self.patch, self.stride)
        if last is None:
            own = torch.from_numpy(keys % (x.shape[-1] * x.shape[-2]))
            places = own[:, None].repeat(len(videos), 1, x.shape[-3])
        else:
            places = last.places.reshape(len(videos), len(keys), -1).clone()
        radius = self.radius if last is None else reach
        found = [
            torch.from_numpy(groups.match(video, keys, place.numpy(), self.patch, self.group, radius))
            for video, place in zip(videos, places.reshape(len(videos), len(keys), -1), strict=True)
        ]
        lead = x.shape[:-3]
        return Matches(torch.stack(found).reshape(*lead, len(keys), -1), places.reshape(*lead, len(keys), -1))


def tracking(prior: GroupFilter, video: Tensor, period: int, shared: bool = False) -> Denoiser:
    """`prior` for one run that starts from `video`: at every `period`-th call groups are found anew.

    shared: the videos are components (..., K, T, H, W) of which the first, the strongest, decides on the groups of all.

    They are found in what it last returned: in the video before it, which fits the snapshot, patches that share the
    traces of the mask look alike.
    """
    matches: Matches | None = None
    last, age = video, 0

    def denoise(x: Tensor, sigma: float | Tensor, /) -> Tensor:
        nonlocal matches, last, age
        if matches is None or age % period == 0:
            matches = prior.search(last.select(-4, 0) if shared else last, matches)
        age += 1
        groups = matches.groups
        if shared:
            groups = groups.unsqueeze(-3).expand(*x.shape[:-3], *groups.shape[-2:])
        last = prior.shrink(x, groups, sigma)
        return last

    return denoise
