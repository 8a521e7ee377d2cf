"""Expectation maximisation: a Gaussian mixture from the patches of clips."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Annotated, Any

import torch
from torch import Tensor

from unsnap.errors import InputError
from unsnap.fields import Positive, Within, check
from unsnap.priors.gmm import Mixture

Listener = Callable[[int, float], None]
"""report(iteration from 1, mean log-likelihood of a patch)"""


@dataclass(frozen=True)
class MixtureConfig:
    """What decides a mixture beside the clips and the seed."""

    components: Annotated[int, Within(1, 10_000)] = 32
    rank: Annotated[int, Within(1, 10_000)] = 64
    patch: Annotated[int, Within(1, 256)] = 8
    frames: Annotated[int, Within(1, 1024)] = 8
    patches: Annotated[int, Within(1, 10**8)] = 60_000
    """How many are drawn to learn from."""
    floor: Positive = 1e-4
    """Least variance of what the components' factors do not explain."""
    iterations: Annotated[int, Within(1, 10**6)] = 25

    def __post_init__(self) -> None:
        check("", MixtureConfig, vars(self))
        if self.patches < 2 * self.components:
            raise InputError(f"{self.components} components need {2 * self.components} patches, got {self.patches}")
        if self.rank >= self.size:
            raise InputError(f"rank must be below the {self.size} numbers of a patch, got {self.rank}")

    @property
    def size(self) -> int:
        return self.frames * self.patch**2

    @staticmethod
    def of(settings: dict[str, Any]) -> MixtureConfig:
        """From key and value, as the command line has them."""
        known = [field.name for field in fields(MixtureConfig)]
        for name in settings:
            if name not in known:
                raise InputError(f"a mixture has no setting {name!r}; known are {', '.join(known)}")
        return MixtureConfig(**settings)


def fit(
    patches: Tensor,
    config: MixtureConfig,
    generator: torch.Generator,
    *,
    seconds: float = float("inf"),
    report: Listener | None = None,
) -> Mixture:
    """The mixture that EM reaches on patches (N, T, p, p) from a k-means start; no step makes them less likely."""
    shares, mixture = clustered(patches, config, generator)
    ends = time.monotonic() + seconds
    for k in range(1, config.iterations + 1):
        mixture = mixture.maximised(patches, shares, floor=config.floor)
        joint = mixture.log_joint(patches)
        likelihood = joint.logsumexp(1, keepdim=True)
        shares = (joint - likelihood).exp()
        if report is not None:
            report(k, float(likelihood.double().mean()))
        if time.monotonic() > ends:
            break
    return mixture


def clustered(patches: Tensor, config: MixtureConfig, generator: torch.Generator) -> tuple[Tensor, Mixture]:
    """Shares (N, K), each patch wholly in one cluster of k-means, and white Gaussians around their centres."""
    flat = patches.flatten(1)
    centres = _spread(flat[torch.randperm(len(flat), generator=generator)[:20_000]], config.components, generator)
    for _ in range(5):
        nearest = torch.cdist(flat, centres).argmin(1)
        counts = torch.bincount(nearest, minlength=len(centres)).to(flat)[:, None]
        sums = torch.zeros_like(centres).index_add_(0, nearest, flat)
        centres = torch.where(counts > 0, sums / counts.clamp(min=1), centres)
    distance, nearest = torch.cdist(flat, centres).min(1)
    white = (distance.square().mean() / flat.shape[1]).clamp(min=config.floor)
    shape = (config.components, *patches.shape[1:])
    mixture = Mixture(
        flat.new_full(shape[:1], 1 / config.components),
        centres.reshape(shape),
        flat.new_zeros(*shape, config.rank),
        white.expand(config.components),
    )
    return torch.nn.functional.one_hot(nearest, config.components).to(flat), mixture


def _spread(flat: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Centres for k-means, each drawn with the square of its distance from those before."""
    centres = flat[:1]
    distance = (flat - centres).square().sum(1)
    for _ in range(count - 1):
        # Where all patches are alike, any will do.
        pick = torch.multinomial(distance + torch.finfo(flat.dtype).tiny, 1, generator=generator)
        centres = torch.cat([centres, flat[pick]])
        distance = torch.minimum(distance, (flat - flat[pick]).square().sum(1))
    return centres
