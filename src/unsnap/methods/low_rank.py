"""Low-rank groups of similar patches: gap-wnnm in seconds, DeSCI as published in minutes.

The numbers of gap-wnnm are those of `LowRank`; they come from runs on validation clips, and
`benchmarks/noisy_snapshots.py` shows what its knowledge of the noise is worth.
"""

from __future__ import annotations

from torch import Tensor

from unsnap.algorithms import gap
from unsnap.algorithms.iterate import Solution, Watch
from unsnap.algorithms.schedules import constant, staged
from unsnap.methods.method import Check, Method
from unsnap.models import LowRank
from unsnap.operators import CodedOperator
from unsnap.priors import TV, WNNM
from unsnap.priors.wnnm import rematching


def _wnnm(y: Tensor, phi: CodedOperator, n: int, watch: Watch) -> Solution:
    return LowRank().solve(y, phi, n, **watch)


def _desci(y: Tensor, phi: CodedOperator, n: int, watch: Watch) -> Solution:
    # The paper's levels and patches, and one level more: 3 gains 1.2 dB on the cleanest of the validation clips.
    schedule = staged((100, 50, 25, 12, 6, 3), n)
    start = gap(y, phi, TV(iterations=4), constant(0.15, 40)).x
    return gap(y, phi, rematching(WNNM.published, 20), schedule, x0=start, **watch)


def _fits(prior: WNNM) -> Check:
    return lambda frames, height, width: prior.check_size(height, width)


LOW_RANK = (
    Method(
        "gap-wnnm",
        "rank minimisation",
        "GAP that knows the noise, with low-rank groups of similar patches: DeSCI's idea in seconds, no weights",
        "Liu, Yuan, Suo, Brady & Dai, TPAMI 2019, with fewer, larger patches",
        _wnnm,
        iterations=16,
        cpu_seconds=2.5,
        check=_fits(LowRank().prior),
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
