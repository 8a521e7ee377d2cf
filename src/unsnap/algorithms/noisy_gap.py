r"""GAP for snapshots with noise: a misfit that noise explains is neither carried along nor fitted.

Accelerated GAP adds up every misfit, the noise's as well, until the video shows it. Here the sum decays by a factor
that depends on the noise e of the pixel, so that noise-free pixels are accelerated and noisy ones go the way of plain
GAP (over-relaxed); and a pixel with little light (small $\sum_t m_t^2$) counts for little.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from typing_extensions import Unpack

from unsnap.algorithms.gap import GAPState, expanded
from unsnap.algorithms.iterate import Denoiser, Solution, Watch, iterate
from unsnap.kernels.memory import give_back
from unsnap.kernels.threads import bands
from unsnap.operators import CodedOperator

HALF = 1 / 3
"""Noise over signal at which half of the carried misfit is forgotten at every step."""
TRUST = 0.4
AT_ONCE = 1 << 14
"""Pixels of snapshots that are computed with at once."""


def noisy_gap_step(
    state: GAPState,
    y: Tensor,
    phi: CodedOperator,
    denoise: Denoiser,
    sigma: float | Tensor,
    noise: Tensor,
    power: float = 1.0,
    signal: Tensor | None = None,
    trusted: Tensor | None = None,
) -> GAPState:
    r"""$\bar y_{k+1} = y + \frac{\bar y_k - y}{1 + (e/e_0)^p} + (y - \Phi x_k)$,
    $x_{k+1} = D_\sigma\big(x_k + \Phi^+\frac{\bar y_{k+1} - \Phi x_k}{1 + 0.4\,e^2/(\sigma^2\sum m^2)}\big)$,

    noise: e, as large as y; $e_0$ is a third of the signal that tells frames apart, the contrast of the masks times the
    brightness of the scene (`signal`, if it is known). With p (power) = 2 a little noise is hardly forgotten, which
    suits many small steps. trusted: (...,) in place of sigma in the denominator, where it says how far x is trusted.
    """
    x, carried = _data_step(state, y, phi, sigma if trusted is None else trusted, noise, power, signal)
    return GAPState(denoise(x, sigma), carried)


def _data_step(
    state: GAPState,
    y: Tensor,
    phi: CodedOperator,
    sigma: float | Tensor,
    noise: Tensor,
    power: float,
    signal: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """On its own, so that its memory is free while the denoiser works."""
    give_back(state.x.nbytes)
    measured = phi.A(state.x)
    signal = _signal(y, phi) if signal is None else signal
    level = torch.as_tensor(sigma, dtype=y.dtype, device=y.device)
    level = level.reshape(*level.shape, *[1] * len(phi.image))
    carried, told = torch.empty_like(measured), torch.empty_like(measured)
    for rows in _rows(measured):
        e, light, past = noise[rows], phi.energy[rows], state.carried[rows]
        forgotten = e**power / (e**power + (HALF * signal) ** power)
        total = past + forgotten.nan_to_num() * (y[rows] - past) + (y[rows] - measured[rows])
        doubt = torch.where(e > 0, TRUST * (e / level) ** 2, 0)  # none without noise, also at sigma 0
        say = torch.where(light > 0, light / torch.where(light > 0, light + doubt, 1), 0)
        carried[rows], told[rows] = total, say * (total - measured[rows])
    return phi.A_dagger(told).add_(state.x), carried


def _rows(y: Tensor) -> list[tuple[Any, ...]]:
    """Some rows of a picture (..., H, W) after the other, so that what is computed on the way is small."""
    count = -(-y.numel() // AT_ONCE)
    return [(..., slice(*band), slice(None)) for band in bands(y.shape[-2], count)]


def _signal(y: Tensor, phi: CodedOperator) -> Tensor:
    """(..., 1, 1): contrast of the masks times brightness of the scene, as y over the snapshot of a white one."""

    def brightness() -> Tensor:
        white = _power(phi.A(phi.masks.new_ones(phi.video)))
        return (_power(y) / torch.where(white > 0, white, 1)).sqrt()

    return phi.contrast() * phi.ask("brightness", brightness)


def _power(y: Tensor) -> Tensor:
    """(..., 1, 1): the mean square, row by row, so that it does not depend on the number of threads."""
    return y.square().mean(-1, keepdim=True).mean(-2, keepdim=True)


class _Held(NamedTuple):
    x: Tensor
    carried: Tensor
    trusted: Tensor
    """(...,): the sigma that says how far x is trusted"""


def size(y: Tensor, phi: CodedOperator) -> Tensor:
    """(...,): root of the mean square of what is measured of one video."""
    rows = torch.cat([y[some].square().mean(-1) for some in _rows(y)], -1)
    return rows.flatten(rows.ndim - len(phi.image) + 1).mean(-1).sqrt()


def noisy_gap(
    y: Tensor,
    phi: CodedOperator,
    denoise: Denoiser,
    schedule: Sequence[float],
    *,
    noise: Tensor,
    power: float = 1.0,
    hold: float = math.inf,
    x0: Tensor | Callable[[], Tensor] | None = None,
    **watch: Unpack[Watch],
) -> Solution:
    """GAP from x0 (default: the least-squares video) with one denoiser strength per iteration and the noise of y.

    hold: a smaller sigma makes the snapshot count less, down to a misfit of `hold` times the noise: while the misfit is
    larger, the last sigma goes on to weigh the snapshot. x0: or a function that hands it over, so that its memory is
    free after the first iteration.

    >>> from unsnap import TV, Snapshot
    >>> from unsnap.masks import bernoulli
    >>> phi = Snapshot(bernoulli(4, 32, 32, generator=torch.Generator().manual_seed(0)))
    >>> y = phi.A(torch.full((4, 32, 32), 0.5))
    >>> x = noisy_gap(y, phi, TV(), [0.1] * 20, noise=torch.full_like(y, 0.01)).x
    >>> bool((x - 0.5).abs().max() < 0.05)
    True
    """

    signal = _signal(y, phi)
    most = math.inf if math.isinf(hold) else hold * size(noise, phi)

    def step(state: _Held, sigma: float) -> _Held:
        explained = phi.ask("explained", lambda: size(y - phi.A(state.x), phi) <= most)
        trusted = torch.where(explained, sigma, state.trusted)
        past = GAPState(state.x, state.carried)
        return _Held(*noisy_gap_step(past, y, phi, denoise, sigma, noise, power, signal, trusted), trusted)

    def start() -> _Held:
        x = phi.A_dagger(y) if x0 is None else x0() if callable(x0) else x0
        return _Held(x, expanded(y, phi, x), x.new_full(x.shape[:-3], float(schedule[0]) if len(schedule) else 0.0))

    return iterate(step, start, schedule, given=(y, phi.masks), **watch)
