"""Low-rank groups of similar patches: gap-wnnm in seconds, finer in more of them, DeSCI as published in minutes.

Numbers come from runs on validation clips (docs/experiments.md), and
`benchmarks/noisy_snapshots.py` shows what its knowledge of the noise is worth.
"""

from __future__ import annotations

from torch import Tensor

from unsnap.algorithms import gap
from unsnap.algorithms.iterate import Solution, Watch
from unsnap.algorithms.schedules import constant, staged
from unsnap.methods.method import Check, Method, Solve
from unsnap.models import Annealed, TotalVariation
from unsnap.operators import CodedOperator
from unsnap.priors import TV, WNNM
from unsnap.priors.channels import across
from unsnap.priors.wnnm import rematching

FAST = Annealed()
FINE = Annealed(group=48, iterations=100, rematch=60)
BEST = Annealed(group=64, stride=6, iterations=112, rematch=68)


def _annealed(recipe: Annealed, together: bool = False) -> Solve:
    def solve(y: Tensor, phi: CodedOperator, n: int, watch: Watch) -> Solution:
        if min(phi.video[-2:]) < recipe.smallest:  # a picture of a patch or two: nothing to group
            return TotalVariation().solve(y, phi, **watch)
        return recipe.solve(y, phi, n, together=together, **watch)

    return solve


def _desci(y: Tensor, phi: CodedOperator, n: int, watch: Watch) -> Solution:
    # The paper's levels and patches, and one level more: 3 gains 1.2 dB on the cleanest of the validation clips.
    schedule = staged((100, 50, 25, 12, 6, 3), n)
    start = gap(y, phi, across(TV(iterations=4), phi), constant(0.15, 40)).x
    return gap(y, phi, across(rematching(WNNM.published, 20), phi), schedule, x0=start, **watch)


def _fits(prior: WNNM) -> Check:
    return lambda frames, height, width: prior.check_size(height, width)


_LIU = "Liu, Yuan, Suo, Brady & Dai, TPAMI 2019, with fewer, larger patches"
LOW_RANK = (
    Method(
        "gap-wnnm",
        "rank minimisation",
        "GAP that knows the noise, groups of similar patches filtered together: DeSCI's idea in seconds, no weights",
        _LIU,
        _annealed(FAST),
        together=_annealed(FAST, together=True),
        iterations=FAST.iterations,
        tol=3e-3,
        cpu_seconds=5,
        reach=24,
        grid=FAST.stride,
        footprint=36,
    ),
    Method(
        "gap-wnnm-fine",
        "rank minimisation",
        "the same with larger groups, denser patches and smaller steps",
        _LIU,
        _annealed(FINE),
        together=_annealed(FINE, together=True),
        iterations=FINE.iterations,
        tol=3e-3,
        cpu_seconds=25,
        reach=24,
        grid=FINE.stride,
        footprint=50,
    ),
    Method(
        "gap-wnnm-best",
        "rank minimisation",
        "the same, slower still: the best without weights",
        _LIU,
        _annealed(BEST),
        together=_annealed(BEST, together=True),
        iterations=BEST.iterations,
        tol=3e-3,
        cpu_seconds=113,
        reach=24,
        grid=BEST.stride,
        footprint=50,
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
