r"""Sparse in a dictionary that is learned from the video itself: K-SVD and orthogonal matching pursuit.

Patches z_i of p × p pixels and a few frames, less their mean, are written with as few atoms as the noise allows,
$$\min_{D, c}\; \sum_i\|c_i\|_0 \quad\text{subject to}\quad
\|z_i - Dc_i\|^2 \le (1.15\,\sigma)^2 d, \qquad \|D_k\| = 1,$$
in turn over the codes c (greedily) and over the atoms $D_k$ (each with the coefficients of all who use it). Overlapping
patches are averaged.
Elad & Aharon, *Image denoising via sparse and redundant representations over learned dictionaries*, IEEE Trans. Image
Process. 2006; inside GAP for snapshots: Yang & Zhao 2022.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from unsnap.algorithms.iterate import Denoiser
from unsnap.priors.checks import check_sigma, check_size

Array = npt.NDArray[Any]
_SLACK = 1.15  # the noise of a patch may exceed its expectation by this factor


@dataclass(frozen=True)
class Dictionary:
    """Denoiser of videos (..., T, H, W) by a dictionary of space-time patches; it records no gradients.

    patch: side of a patch; frames: its length, or T if that is less; stride: pixels, and steps: frames between patches;
    atoms: cosines per axis that the dictionary starts from; rounds: how often it is learned; most: atoms per patch;
    users: patches that must use an atom for it to be learned from them.

    >>> noise = 0.1 * torch.randn(4, 32, 32, generator=torch.Generator().manual_seed(1))
    >>> bool((Dictionary()(0.5 + noise, 0.1) - 0.5).norm() < 0.5 * noise.norm())
    True
    """

    patch: int = 6
    frames: int = 4
    stride: int = 3
    steps: int = 2
    atoms: tuple[int, int] = (8, 5)
    rounds: int = 2
    most: int = 24
    users: int = 32

    def __post_init__(self) -> None:
        counts = (self.patch, self.frames, self.stride, self.steps, self.rounds + 1, self.most, *self.atoms)
        if min(counts) < 1 or self.stride > self.patch or self.steps > self.frames:
            raise ValueError(f"Dictionary needs positive sizes, stride <= patch and steps <= frames, got {self}")

    def __call__(self, x: Tensor, sigma: float | Tensor, /) -> Tensor:
        """Denoise; sigma is the standard deviation of the noise, a number or one per sample."""
        return self.learned(x, sigma, [])[0]

    def learned(self, x: Tensor, sigma: float | Tensor, start: Sequence[Array]) -> tuple[Tensor, list[Array]]:
        """The denoised video, and the dictionary (K, d) of each sample; `start`: those to begin with, if any."""
        level = torch.as_tensor(sigma, dtype=torch.float64).detach().cpu()
        check_sigma(level)
        check_size(self.patch, *x.shape[-2:])
        videos = x.detach().cpu().reshape(-1, *x.shape[-3:])
        levels = (level.reshape(()) if level.numel() == 1 else level).expand(x.shape[:-3]).reshape(-1).tolist()
        length = min(self.frames, x.shape[-3])
        index = self._index(*x.shape[-3:])
        known = start or [self.cosines(length)] * len(videos)
        results = [self._clean(v, s, index, d) for v, s, d in zip(videos, levels, known, strict=True)]
        cleaned = torch.stack([r[0] for r in results]) if results else videos
        return cleaned.reshape(x.shape).to(x.device), [r[1] for r in results]

    def cosines(self, length: int) -> Array:
        """Overcomplete cosines (K, d) in space and time, each without its mean and of norm 1."""
        space = _cosines(self.patch, self.atoms[0])
        time = _cosines(length, min(self.atoms[1], 2 * length - 1))
        waves = np.einsum("at,bi,cj->abctij", time, space, space).reshape(-1, length * self.patch**2)
        waves = waves[1:] - waves[1:].mean(1, keepdims=True)
        norms = np.linalg.norm(waves, axis=1, keepdims=True)
        kept: Array = (waves / norms)[norms[:, 0] > 1e-6]
        return kept

    def _clean(self, video: Tensor, sigma: float, index: Tensor, atoms: Array) -> tuple[Tensor, Array]:
        from unsnap.kernels import omp

        if sigma == 0:
            return video.clone(), atoms
        patches = video.flatten()[index]
        mean = patches.mean(1, keepdim=True)
        rest = (patches - mean).numpy()
        atoms = atoms.astype(rest.dtype)
        target = (_SLACK * sigma) ** 2 * rest.shape[1]
        for _ in range(self.rounds):
            atoms = omp.renew(rest, *omp.code(rest, atoms, target, self.most), atoms, self.users)[0]
        cleaned = mean + torch.from_numpy(omp.decode(*omp.code(rest, atoms, target, self.most), atoms))
        places = index.flatten()
        total = torch.zeros_like(video).flatten().index_add_(0, places, cleaned.flatten())
        return (total / torch.bincount(places, minlength=video.numel())).reshape(video.shape), atoms

    def _index(self, frames: int, height: int, width: int) -> Tensor:
        """(N, d): flat indices of the pixels of patches that cover the whole video, edges included."""
        length = min(self.frames, frames)
        t, y, x = _starts(frames, length, self.steps), *(_starts(n, self.patch, self.stride) for n in (height, width))
        first = (t[:, None, None] * height + y[:, None]) * width + x
        side = torch.arange(self.patch)
        inside = (torch.arange(length)[:, None, None] * height + side[:, None]) * width + side
        return first.reshape(-1, 1) + inside.flatten()


def learning(prior: Dictionary) -> Denoiser:
    """The prior for one run: each call goes on with the dictionary of the last."""
    known: list[Array] = []

    def denoise(x: Tensor, sigma: float | Tensor, /) -> Tensor:
        nonlocal known
        cleaned, known = prior.learned(x, sigma, known)
        return cleaned

    return denoise


def _starts(length: int, patch: int, stride: int) -> Tensor:
    return torch.tensor([*range(0, length - patch, stride), length - patch])


def _cosines(length: int, count: int) -> Array:
    """(count, length): from the constant to the fastest wave that the samples can carry."""
    waves: Array = np.cos(
        math.pi / count * np.arange(count)[:, None] * (np.arange(length) + 0.5) * count / max(count, length)
    )
    return waves
