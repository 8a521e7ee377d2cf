"""Certificates under attack: 1,000 hostile (masks, snapshot, start), hostile weights, points searched for expansion.

And the paper's assumption, Lip(D − I) < 1, which proves nothing: explicit divergence, and its own network.
"""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from laws import forward_mode, normal, seeded, uniform
from unsnap.algorithms import gap_step
from unsnap.equilibrium import DEQ, Step, adjoint, de_admm, de_gap, de_gd, de_pgd, de_rnn
from unsnap.fixed_point import anderson, picard
from unsnap.fixed_point.solver import Solver
from unsnap.networks import CNN, BidirectionalRNN, Certified, GradientStep, build
from unsnap.networks.foreign import read_checkpoint
from unsnap.operators import Snapshot
from unsnap.procedural import render
from unsnap.stability import certify, lipschitz, spectral_radius

SHAPE = (3, 6, 6)
SMALL: dict[str, Any] = {"blocks": 2, "channels": 4, "hidden": 6}
WEIGHTS = ("random", "huge", "sparse", "time", "trained")
WEIGHTS_PUBLISHED = Path(__file__).parents[1] / "../shared/data/weights"


class Cases(NamedTuple):
    masks: Tensor
    y: Tensor
    start: Tensor

    def to(self, dtype: torch.dtype) -> tuple[Tensor, Snapshot, Tensor]:
        return self.y.to(dtype), Snapshot(self.masks.to(dtype)), self.start.to(dtype)


@cache
def network(kind: str, **settings: Any) -> Certified:
    """Weights nobody would choose but an attacker."""
    torch.manual_seed(WEIGHTS.index(kind))
    net = Certified(**SMALL, temporal=kind == "time", **settings).double()
    with torch.no_grad():
        for block in [*net.space, *net.time]:
            block.bias.copy_(0.3 * torch.randn_like(block.bias))
            if kind == "huge":
                block.weight.mul_(100)
            if kind == "sparse":
                block.weight.mul_(torch.rand_like(block.weight) > 0.8)
            if kind == "trained":
                block.log_q.copy_(torch.randn_like(block.log_q))
    if kind == "trained":
        _trained_against(net)
    return net.requires_grad_(False).eval()


def _trained_against(net: Certified) -> None:
    """A few steps of training that make the residual after four iterations as large as it will go."""
    y, phi, x = random_cases(4, 99).to(torch.float64)
    optimiser = torch.optim.Adam(net.parameters(), lr=0.05)
    for _ in range(15):
        optimiser.zero_grad()
        (-_late_residual(net, y, phi, x, 4).log().mean()).backward()
        optimiser.step()


def _late_residual(net: Certified, y: Tensor, phi: Snapshot, x: Tensor, steps: int) -> Tensor:
    """‖f(x_k) − x_k‖ / ‖f(x_0) − x_0‖, per sample."""
    first = None
    for _ in range(steps):
        new = gap_step(x, y, phi, net, 0.0)
        change = ((new - x).flatten(1).square().sum(1) + 1e-18).sqrt()
        first, x = change if first is None else first, new
    return change / first.clamp(min=1e-9)


def random_cases(count: int, seed: int) -> Cases:
    """`count` of each kind of masks: with true, black, negated and absurd snapshots, from black to far-off starts."""
    r = uniform(count, *SHAPE, seed=seed)
    binary = (r > 0.5).double()
    dead = binary * (uniform(count, 1, *SHAPE[1:], seed=seed + 1) > 0.3)
    masks = torch.cat([binary, dead, torch.zeros_like(r), torch.ones_like(r), r, 2 * r - 1, (255 * r).round()])
    total = len(masks)
    video = uniform(total, *SHAPE, seed=seed + 2)
    peak = masks.square().sum(1).amax((-2, -1), keepdim=True).sqrt().clamp(min=1)
    true, absurd = (masks * video).sum(1), 10 * peak * normal(total, *SHAPE[1:], seed=seed + 3)
    variants = torch.stack([true, 0 * true, -true, absurd, true + 0.1 * absurd])
    y = variants[torch.arange(total) % 5, torch.arange(total)]
    scale = torch.tensor([0.0, 1.0, 100.0]).double()[torch.arange(total) % 3].reshape(-1, 1, 1, 1)
    return Cases(masks, y, scale * normal(total, *SHAPE, seed=seed + 4))


def searched_cases(net: Certified, count: int, seed: int) -> Cases:
    """Masks, snapshots and starts changed by gradient ascent until the residual shrinks as little as they can make it."""
    masks = (3 * normal(count, *SHAPE, seed=seed)).requires_grad_()
    y, start = normal(count, *SHAPE[1:], seed=seed + 1), normal(count, *SHAPE, seed=seed + 2)
    y, start = y.requires_grad_(), start.requires_grad_()
    optimiser = torch.optim.Adam([masks, y, start], lr=0.1)
    for _ in range(15):
        optimiser.zero_grad()
        (-_late_residual(net, y, Snapshot(masks), start, 4).sum()).backward()
        optimiser.step()
    return Cases(masks.detach(), y.detach(), start.detach())


@cache
def attack(kind: str) -> Cases:
    """200 cases, 60 of them searched for."""
    searched = searched_cases(network(kind), 60, seed=7)
    parts = zip(random_cases(20, seed=11), searched, strict=True)
    return Cases(*(torch.cat(pair) for pair in parts))


def changes(net: Any, cases: Cases, dtype: torch.dtype, steps: int) -> Tensor:
    """(steps, cases): ‖f(x_k) − x_k‖ of the plain iteration."""
    y, phi, x = cases.to(dtype)
    sizes = []
    for _ in range(steps):
        new = gap_step(x, y, phi, net, 0.0)
        sizes.append((new - x).double().flatten(1).norm(dim=1))
        x = new
    return torch.stack(sizes)


def solved(net: Any, cases: Cases, solver: Solver, max_iter: int, tol: float = 1e-5) -> Any:
    y, phi, start = cases.to(torch.float64)
    with torch.no_grad():
        return DEQ(de_gap(), net, solver=solver, tol=tol, max_iter=max_iter)(y, phi, state=start)


if __name__ == "__main__":
    import time
    import copy

    torch.set_num_threads(1)
    for kind in WEIGHTS:
        t = time.process_time()
        net, cases = network(kind), attack(kind)
        a = time.process_time() - t
        with torch.no_grad():
            c = changes(net, cases, torch.float64, 100)
            f32 = copy.deepcopy(net).float()
            d = changes(f32, cases, torch.float32, 100)
        b = time.process_time() - t
        s = solved(net, cases, picard(), 20000)
        e = time.process_time() - t
        g = solved(net, cases, anderson(safeguard=0.9), 20000)
        print(
            kind,
            f"{a:.1f} {b:.1f} {e:.1f} {time.process_time() - t:.1f}",
            "rise64",
            float((c[1:] / c[:-1]).max()),
            "rise32",
            float(((d[1:] - d[:-1]) / d[0]).max()),
            "steps",
            sorted(s.steps.tolist())[-6:],
            int((~s.converged).sum()),
            "AA",
            sorted(g.steps.tolist())[-4:],
            int((~g.converged).sum()),
            flush=True,
        )
