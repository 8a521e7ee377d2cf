"""Low-rank groups of similar patches: gap-wnnm in seconds, finer in more of them, DeSCI as published in minutes.

shift-wnnm is gap-wnnm that begins with a network's video: the default.

Numbers come from runs on validation clips (docs/experiments.md), and
`benchmarks/noisy_snapshots.py` shows what its knowledge of the noise is worth.
"""

from __future__ import annotations

import math

from torch import Tensor

from unsnap.algorithms import gap
from unsnap.algorithms.iterate import Solution, Watch, before
from unsnap.algorithms.schedules import constant, staged
from unsnap.methods.method import Check, Method, Solve
from unsnap.methods.shipped import SHIFT_NET
from unsnap.models import Annealed, TotalVariation
from unsnap.models.interpolation import sparse
from unsnap.models.starts import CHEAP
from unsnap.operators import CodedOperator
from unsnap.priors import TV, WNNM
from unsnap.priors.channels import across
from unsnap.priors.wnnm import rematching

FAST = Annealed()
FINE = Annealed(group=48, iterations=100, rematch=60)
BEST = Annealed(group=64, stride=6, iterations=112, rematch=68)
FROM_NETWORK = Annealed(first=50 / 255)
FROM_NETWORK_FINE = Annealed(group=48, first=40 / 255, iterations=80, rematch=48)


def _annealed(annealed: Annealed, *, together: bool = False, first: Method | None = None) -> Solve:
    """first: the method whose video it begins with, instead of total variation."""

    def solve(y: Tensor, phi: CodedOperator, n: int, watch: Watch) -> Solution:
        begin, small = None, min(phi.video[-2:]) < annealed.smallest  # a picture of a patch or two: nothing to group
        if first is not None and not bool(sparse(phi).all()):
            later = 0 if small else first.iterations + annealed.tv_iterations // CHEAP
            how: Watch = {"tol": first.tol, "callback": before(watch.get("callback"), later)}
            found = first.solve(y, phi, first.iterations, how)
            if small:
                return found
            begin = found.x
        if small:
            return TotalVariation().solve(y, phi, None if n == annealed.iterations else n, **watch)
        return annealed.solve(y, phi, n, together=together, begin=begin, **watch)

    return solve


def _desci(y: Tensor, phi: CodedOperator, n: int, watch: Watch) -> Solution:
    # The paper's levels and patches, and one level more: 3 gains 1.2 dB on the cleanest of the validation clips.
    schedule = staged((100, 50, 25, 12, 6, 3), n)
    start = gap(y, phi, across(TV(iterations=4), phi), constant(0.15, 40)).x
    return gap(y, phi, across(rematching(WNNM.published, 20), phi), schedule, x0=start, **watch)


def _fits(prior: WNNM) -> Check:
    return lambda frames, height, width: prior.check_size(height, width)


def _wnnm(
    name: str, summary: str, annealed: Annealed, *, cpu_seconds: float, footprint: int, first: Method | None = None
) -> Method:
    return Method(
        name,
        "rank minimisation",
        summary,
        "Liu, Yuan, Suo, Brady & Dai, TPAMI 2019, with fewer, larger patches",
        _annealed(annealed, first=first),
        together=_annealed(annealed, together=True, first=first),
        iterations=annealed.iterations,
        tol=3e-3,
        cpu_seconds=cpu_seconds,
        reach=24 if first is None else max(24, first.reach),
        grid=annealed.stride if first is None else math.lcm(annealed.stride, first.grid),
        footprint=footprint,
        needs="" if first is None else first.needs,
    )


LOW_RANK = (
    _wnnm(
        "gap-wnnm",
        "GAP that knows the noise, groups of similar patches filtered together: DeSCI's idea in seconds, no weights",
        FAST,
        cpu_seconds=5,
        footprint=36,
    ),
    _wnnm(
        "gap-wnnm-fine",
        "the same with larger groups, denser patches and smaller steps",
        FINE,
        cpu_seconds=25,
        footprint=50,
    ),
    _wnnm("gap-wnnm-best", "the same, slower still: the best without weights", BEST, cpu_seconds=113, footprint=50),
    _wnnm(
        "shift-wnnm",
        "gap-wnnm that begins with the video of a network, shift-net, and not with total variation",
        FROM_NETWORK,
        cpu_seconds=6,
        footprint=340,
        first=SHIFT_NET,
    ),
    _wnnm(
        "shift-wnnm-fine",
        "gap-wnnm-fine that begins with the video of shift-net",
        FROM_NETWORK_FINE,
        cpu_seconds=22,
        footprint=340,
        first=SHIFT_NET,
    ),
    Method(
        "desci",
        "rank minimisation",
        "accelerated GAP with the weighted nuclear norm of groups of similar patches in space-time: minutes",
        "Liu, Yuan, Suo, Brady & Dai, TPAMI 2019",
        _desci,
        iterations=120,
        cpu_seconds=320,
        check=_fits(WNNM.published(100 / 255)),
    ),
)
