r"""Gaussian mixture on space-time patches: what a patch looks like, given its part of the snapshot, in closed form.

A patch x of T frames and p × p pixels has the density $\sum_k \pi_k\,\mathcal N(x; \mu_k, \Sigma_k)$ with
$\Sigma_k = U_kU_k^\top + \delta_kI$. Seen through its own masks, $y = \Phi x + e$ with $e \sim \mathcal N(0, s^2I)$,
its mean is
$$\hat x = \sum_k r_k\big[\mu_k + \Sigma_k\Phi^\top S_k^{-1}(y - \Phi\mu_k)\big], \qquad
S_k = \Phi\Sigma_k\Phi^\top + s^2I, \qquad r_k \propto \pi_k\,\mathcal N(y; \Phi\mu_k, S_k).$$
Overlapping patches are averaged. Online, the mixture then learns from the patches found, and they are found again.
Yang, Yuan, Liao, Llull, Brady, Sapiro & Carin, *Video compressive sensing using Gaussian mixture models*, IEEE Trans.
Image Process. 2014.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import torch
from torch import Tensor
from typing_extensions import Unpack

from unsnap.algorithms.iterate import Solution, Watch, iterate
from unsnap.errors import InputError
from unsnap.fields import Size, Within, check
from unsnap.operators import CodedOperator, Snapshot
from unsnap.priors.checks import check_size

_ROOM = 1 << 22  # numbers that the estimates of some patches under all components may take
_NEWS = 8  # directions in which a frame beyond the trained ones may surprise


@dataclass(frozen=True)
class Mixture:
    """K Gaussians on patches (T, p, p), each of low rank plus white.

    weights: (K,), their sum is 1; means: (K, T, p, p); factors: (K, T, p, p, R); white: (K,), variances.
    """

    weights: Tensor
    means: Tensor
    factors: Tensor
    white: Tensor

    @property
    def frames(self) -> int:
        return int(self.means.shape[1])

    @property
    def patch(self) -> int:
        return int(self.means.shape[-1])

    @staticmethod
    def empty() -> Mixture:
        """A mixture of no components, to be replaced."""
        return Mixture(torch.zeros(0), torch.zeros(0, 1, 1, 1), torch.zeros(0, 1, 1, 1, 1), torch.zeros(0))

    def checked(self) -> Mixture:
        """Itself; a ValueError if its tensors are not a whole mixture."""
        tensors, shape = vars(self), self.means.shape
        expected = {"weights": shape[:1], "white": shape[:1], "means": (*shape[:3], shape[2])}
        for name, size in expected.items():
            if tensors[name].shape != size or tensors[name].numel() == 0:
                raise ValueError(f"{name} has shape {tuple(tensors[name].shape)}")
        if self.factors.ndim != 5 or self.factors.shape[:4] != shape:
            raise ValueError(f"factors have shape {tuple(self.factors.shape)}")
        if not (bool((self.weights >= 0).all()) and bool((self.white > 0).all())):
            raise ValueError("weights must not be negative and white must be above 0")
        return self

    def to(self, like: Tensor) -> Mixture:
        """The same in the type and on the device of a tensor."""
        return Mixture(self.weights.to(like), self.means.to(like), self.factors.to(like), self.white.to(like))

    def log_joint(self, patches: Tensor) -> Tensor:
        """log π_k N(x; μ_k, Σ_k) of patches (N, T, p, p): (N, K)."""
        flat, size = patches.flatten(1), self.means[0].numel()
        columns = []
        for k in range(len(self.weights)):
            factor, white, centred = self.factors[k].flatten(0, 2), self.white[k], flat - self.means[k].flatten()
            root = torch.linalg.cholesky(factor.mT @ factor + white * torch.eye(factor.shape[1]).to(factor))
            inside = centred @ torch.linalg.solve_triangular(root, factor.mT, upper=False).mT
            distance = (centred.square().sum(1) - inside.square().sum(1)) / white
            volume = 2 * root.diagonal().log().sum() + (size - len(root)) * white.log()
            columns.append(self.weights[k].log() - 0.5 * (distance + volume + size * math.log(2 * math.pi)))
        return torch.stack(columns, 1)

    def maximised(self, patches: Tensor, shares: Tensor, *, floor: float, strength: float = 0.0) -> Mixture:
        """EM's second step: the likeliest mixture for patches (N, T, p, p) that belong to components by shares (N, K).

        floor: least white variance; strength: how many patches the present mixture counts for. A component with less
        than one patch stays.
        """
        counts = shares.sum(0)
        parts = [
            self._component(k, patches.flatten(1), shares[:, k], floor, strength)
            if counts[k] >= 1
            else (self.means[k].flatten(), self.factors[k].flatten(0, 2), self.white[k])
            for k in range(len(counts))
        ]
        means, factors, white = (torch.stack(list(column)) for column in zip(*parts, strict=True))
        weights = (counts + strength * self.weights) / (len(patches) + strength)
        return Mixture(weights, means.reshape(self.means.shape), factors.reshape(self.factors.shape), white)

    def _component(
        self, k: int, flat: Tensor, shares: Tensor, floor: float, strength: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The largest eigenvalues of the scatter, and the mean of the others as white: exact for this family."""
        mine = shares > torch.finfo(shares.dtype).eps
        flat, shares, size, columns = flat[mine], shares[mine], flat.shape[1], self.factors.shape[-1]
        total, before = shares.sum() + strength, self.means[k].flatten()
        mean = (shares @ flat + strength * before) / total
        rows = (flat - mean) * shares.sqrt()[:, None]
        scatter = rows.mT @ rows
        if strength:
            old, moved = self.factors[k].flatten(0, 2), before - mean
            scatter += strength * (old @ old.mT + torch.outer(moved, moved))
            scatter.diagonal().add_(strength * self.white[k])
        values, vectors = torch.linalg.eigh(scatter / total)
        rank = min(columns, size - 1)
        white = values[:-rank].mean().clamp(min=floor)
        factor = vectors[:, -rank:] * (values[-rank:] - white).clamp(min=0).sqrt()
        return mean, torch.nn.functional.pad(factor, (columns - rank, 0)), white

    def at(self, frames: int) -> Mixture:
        """The mixture for another number of frames: the marginal of the first ones, or carried on in time.

        Each further frame follows from the T − 1 before it as the last one of the patch does from the others, and has
        the last one's mean and variance.
        """
        if frames <= self.frames:
            return Mixture(self.weights, self.means[:, :frames], self.factors[:, :frames], self.white)
        means = torch.cat([self.means, self.means[:, -1:].expand(-1, frames - self.frames, -1, -1)], 1)
        factors = [_carried_on(u, w, frames) for u, w in zip(self.factors, self.white, strict=True)]
        return Mixture(self.weights, means, torch.stack(factors), self.white)


def _carried_on(factor: Tensor, white: Tensor, frames: int) -> Tensor:
    """Factors (T, p, p, R) to (frames, p, p, R + …) by the Markov chain of order T − 1 that the Gaussian defines."""
    known, pixels = len(factor), factor[0, ..., 0].numel()
    rows = factor.reshape(known * pixels, -1)
    past, last = rows[:-pixels], rows[-pixels:]
    spread = last.square().sum(1, keepdim=True)
    gain = torch.linalg.solve(past @ past.mT + white * torch.eye(len(past)).to(past), past @ last.mT).mT
    told = gain @ past
    values, vectors = torch.linalg.eigh(last @ last.mT - told @ told.mT)
    news = vectors[:, -_NEWS:] * values[-_NEWS:].clamp(min=0).sqrt()
    for _ in range(frames - known):
        frame = torch.cat([gain @ rows[len(rows) - len(past) :], news], 1)
        # Without this a chain that is not quite stationary would fade or explode.
        found = frame.square().sum(1, keepdim=True).clamp(min=torch.finfo(frame.dtype).tiny)
        frame = frame * (spread / found).sqrt()
        rows = torch.cat([torch.nn.functional.pad(rows, (0, news.shape[1])), frame])
    return rows.reshape(frames, *factor.shape[1:3], -1)


@dataclass(frozen=True)
class Grid:
    """Where the patches of an image lie: every `stride` pixels, and at its far edges."""

    patch: int
    stride: int
    height: int
    width: int

    def index(self, device: torch.device) -> Tensor:
        """(P, p²): flat indices of the pixels of every patch."""
        from unsnap.kernels.patches import references

        first = torch.from_numpy(references((1, self.height, self.width), self.patch, self.stride)).long()
        side = torch.arange(self.patch)
        return (first[:, None] + (side[:, None] * self.width + side).flatten()).to(device)

    def cut(self, video: Tensor) -> Tensor:
        """Patches (P, T, p, p) of a video (T, H, W)."""
        found = video.flatten(1)[:, self.index(video.device)].transpose(0, 1)
        return found.reshape(*found.shape[:2], self.patch, self.patch)

    def average(self, patches: Tensor) -> Tensor:
        """The video (T, H, W) from overlapping patches (P, T, p²)."""
        index = self.index(patches.device).flatten()
        flat = patches.transpose(0, 1).flatten(1)
        total = flat.new_zeros(len(flat), self.height * self.width).index_add_(1, index, flat)
        count = torch.bincount(index, minlength=self.height * self.width)
        return (total / count).reshape(len(flat), self.height, self.width)


def posterior(mixture: Mixture, y: Tensor, masks: Tensor, noise: float) -> tuple[Tensor, Tensor]:
    """Mean patches (P, T, p²) given y (P, p²) through masks (P, T, p²), and the shares (P, K) of the components.

    noise: standard deviation of y's.
    """
    phi, means, logs = Snapshot(masks.unsqueeze(-2)), [], []  # every patch is an image of one row
    energy = phi.energy.squeeze(-2)
    by_pixel = masks.permute(2, 0, 1).contiguous()
    for k in range(len(mixture.weights)):
        mean, factor, white = mixture.means[k].flatten(1), mixture.factors[k].flatten(1, 2), mixture.white[k]
        seen = torch.bmm(by_pixel, factor.transpose(0, 1)).transpose(0, 1).contiguous()  # ΦU: (P, p², R)
        system = torch.bmm(seen, seen.mT)
        system.diagonal(dim1=1, dim2=2).add_(white * energy + noise**2)
        root, failed = torch.linalg.cholesky_ex(system)
        if bool(failed.any()):
            raise InputError(
                f"component {k} of the mixture is too large beside its noise for {system.dtype}; train it again"
            )
        surprise = (y - phi.A(mean.unsqueeze(-2)).squeeze(-2))[..., None]
        half = torch.linalg.solve_triangular(root, surprise, upper=False)
        dual = torch.linalg.solve_triangular(root.mT, half, upper=True)
        volume = root.diagonal(dim1=1, dim2=2).log().sum(1)
        logs.append(mixture.weights[k].log() - 0.5 * half.square().sum((1, 2)) - volume)
        structure = torch.bmm(seen.mT, dual)[..., 0] @ factor.flatten(0, 1).mT
        means.append(mean + structure.reshape(masks.shape) + white * masks * dual.mT)
    shares = torch.stack(logs, 1).softmax(1)
    return torch.einsum("pk,kpti->pti", shares, torch.stack(means)), shares


def posterior_video(mixture: Mixture, y: Tensor, masks: Tensor, *, stride: int, noise: float) -> Tensor:
    """The video (T, H, W) behind a snapshot (H, W) through masks (T, H, W).

    noise: standard deviation of the snapshot's, where one white frame seen through all masks has 1.
    """
    gain = masks.square().sum(0).mean().sqrt()
    gain = torch.where(gain > 0, gain, 1)
    grid = Grid(mixture.patch, stride, *y.shape)
    found = []
    for some in torch.split(grid.index(y.device), max(1, _ROOM // mixture.means.numel())):
        code = (masks / gain).flatten(1)[:, some].transpose(0, 1)
        found.append(posterior(mixture, (y / gain).flatten()[some], code, noise)[0])
    return grid.average(torch.cat(found))


@dataclass(frozen=True)
class GMM:
    """A reconstruction by a mixture, `gmm(y, phi)`.

    stride: pixels between patches; noise: see `posterior_video`; updates: how often the mixture learns from the video
    it has found, each time for one more iteration; strength: how many patches what a component knew counts for.
    """

    mixture: Mixture
    stride: Annotated[int, Within(1, 256)] = 3
    noise: Size = 0.01
    updates: Annotated[int, Within(0, 10_000)] = 0
    strength: Size = 30.0
    about: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """Where the mixture comes from, for people."""

    def __post_init__(self) -> None:
        check("mixture: ", GMM, vars(self))

    def __call__(
        self, y: Tensor, phi: CodedOperator, iterations: int | None = None, **watch: Unpack[Watch]
    ) -> Solution:
        """The video (..., T, H, W) behind y (..., H, W).

        Iterations beyond the updates change nothing; by default there is one, which says so.
        """
        iterations = max(2, 1 + self.updates) if iterations is None else iterations
        if not isinstance(phi, Snapshot):
            raise InputError(
                f"a Gaussian mixture reconstructs single snapshots, not {type(phi).__name__}; use gap-tv3d"
            )
        check_size(self.mixture.patch, *y.shape[-2:])
        images, phi, lead = phi.aligned(y)
        masks = phi.masks.to(y).expand(len(images), *phi.video)
        trained = self.mixture.to(y).at(masks.shape[1])
        mixtures, rounds = [trained] * len(images), 0

        def step(state: tuple[Tensor], _: float) -> tuple[Tensor]:
            nonlocal mixtures, rounds
            rounds += 1
            if rounds > 1 + self.updates or not len(images):
                return state
            if rounds > 1:
                videos = state[0].reshape(masks.shape)
                mixtures = [self._updated(trained, now, video) for now, video in zip(mixtures, videos, strict=True)]
            found = [
                posterior_video(now, image, code, stride=self.stride, noise=self.noise)
                for now, image, code in zip(mixtures, images, masks, strict=True)
            ]
            return (torch.stack(found).reshape(state[0].shape),)

        return iterate(step, (phi.A_dagger(images).reshape(*lead, *phi.video),), [0.0] * iterations, **watch)

    def _updated(self, trained: Mixture, now: Mixture, video: Tensor) -> Mixture:
        """One step of EM on the patches found, beside what was trained: that knowledge must not wear off."""
        patches = Grid(now.patch, self.stride, *video.shape[-2:]).cut(video)
        shares = now.log_joint(patches).softmax(1)
        return trained.maximised(patches, shares, floor=float(trained.white.min()) / 2, strength=self.strength)
