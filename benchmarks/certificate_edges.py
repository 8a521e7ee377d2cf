"""The certificate at the edges of its stated range: random cameras and snapshots, none NaN and none late.

    python benchmarks/certificate_edges.py [--cases 1000] [--seed 0]

Every case draws masks (binary, grey, of either sign, almost closed), their scale from the smallest to the largest
numbers of float32, a contraction, a tolerance and a solver. Two pixels of the snapshot are then raised until its
least-squares video is as long as `Certificate.range` allows, and the model has `Certificate.within` evaluations.
"""

from __future__ import annotations

import argparse
import math
import random
from collections import Counter
from typing import NamedTuple

import torch
from torch import Tensor

from unsnap.algorithms import GAP
from unsnap.fixed_point import anderson, picard
from unsnap.models import Equilibrium
from unsnap.models.stability import certify
from unsnap.networks import Certified
from unsnap.operators import Snapshot
from unsnap.simulate import render

KINDS = ("binary", "grey", "either sign", "almost closed", "one open")
LOWEST, HIGHEST = -148, 119
"""Powers of two: masks become denormal numbers, or their sums nearly overflow."""


class Outcome(NamedTuple):
    """How one case ended."""

    kind: str
    power: int
    filled: float
    """Length of the least-squares video over what the range allows."""
    finite: bool
    evaluations: int
    allowed: int
    converged: bool

    @property
    def kept(self) -> bool:
        return self.finite and self.converged and self.evaluations <= self.allowed


def outcome(seed: int) -> Outcome:
    """One case."""
    draw, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    frames, height, width = draw.randint(1, 6), draw.randint(6, 16), draw.randint(6, 16)
    kind, power = draw.choice(KINDS), draw.choice((LOWEST, HIGHEST, draw.randint(LOWEST, HIGHEST)))
    masks = _masks(kind, torch.rand(frames, height, width, generator=generator), power)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = Certified(blocks=1, channels=6, hidden=8, kappa=1, contraction=draw.choice((0.5, 0.8, 0.95)))
    solver = draw.choice((picard(), anderson(safeguard=0.9), anderson(memory=3, safeguard=0.5)))
    model = Equilibrium(GAP(), net, solver=solver, tol=draw.choice((1e-2, 1e-3, 1e-4, 2e-5)))
    certificate = certify(model)
    allowed, longest = certificate.within(model.tol), certificate.range(model.tol)
    while longest is None or allowed is None:
        model.tol *= 10
        allowed, longest = certificate.within(model.tol), certificate.range(model.tol)
    plain = Snapshot(masks)
    y, filled, solution = plain.A(render(frames, 32, 32, seed=seed)[:, :height, :width])[None], 0.0, None
    spots, live = torch.zeros_like(y), plain.energy.flatten() > 0.1 * plain.energy.max()
    spots.flatten()[live.nonzero()[:2, 0]] = 1.0
    outlier = 1.0
    for _ in range(6):  # the result depends on the outliers, so that their size is found step by step
        power = min(power, 126 - math.ceil(math.log2(outlier + frames)))
        scaled = _scaled(y + outlier * spots, power)
        snapshot = scaled.double() / 2.0**power
        with torch.no_grad():
            solution = model(scaled, Snapshot(_scaled(masks, power)), max_iter=allowed)
        filled = float(plain.double().A_dagger(snapshot).norm() / solution.x.double().norm()) / longest
        if 0.9 <= filled <= 1 or not bool(torch.isfinite(solution.x).all()):
            break
        outlier *= 0.97 / filled if filled > 1 or outlier < 1e9 else 1
    finite = bool(torch.isfinite(solution.x).all() and torch.isfinite(solution.residual).all())
    return Outcome(kind, power, filled, finite, solution.evaluations, allowed, bool(solution.converged.all()))


def _masks(kind: str, r: Tensor, power: int) -> Tensor:
    coarse = power < -120  # what is left of a denormal number
    if kind == "binary" or coarse:
        return (r > 0.5).float()
    if kind == "one open":
        return (r == r.amax(0)).float()
    return {"grey": r, "either sign": 2 * r - 1, "almost closed": torch.where(r > 0.9, r, 2.0**-10 * r)}[kind]


def _scaled(values: Tensor, power: int) -> Tensor:
    return (values.double() * 2.0**power).float()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    found = [outcome(given.seed + k) for k in range(given.cases)]
    count = Counter(("not finite" if not o.finite else "late" if not o.kept else "kept") for o in found)
    inside = [o for o in found if o.filled <= 1]
    edge = sum(o.filled > 0.9 for o in inside)
    print(f"{len(found)} cases: {count['not finite']} NaN, {sum(not o.kept for o in inside)} late")
    print(f"{len(inside)} within the range, {edge} of them in its last tenth")
    print(f"most evaluations over those allowed: {max(o.evaluations / o.allowed for o in inside):.2f}")
    for o in [o for o in inside if not o.kept][:5]:
        print(o)


if __name__ == "__main__":
    main()
