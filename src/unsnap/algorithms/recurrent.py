r"""A network as the whole iteration: $x \leftarrow \mathrm{RNN}_\theta(x, y, \Phi)$, the map of DE-RNN."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from unsnap.algorithms.iterate import Denoiser
from unsnap.algorithms.iteration import Iteration, States
from unsnap.operators import CodedOperator


@dataclass(frozen=True)
class Recurrent(Iteration):
    r"""$f(x) = \mathrm{RNN}(x, y, \Phi)$; `denoise` is the network with y and $\Phi$ filled in."""

    @property
    def whole(self) -> bool:
        return True

    def step(self, state: States, y: Tensor, phi: CodedOperator, denoise: Denoiser, sigma: float | Tensor) -> States:
        return (denoise(state[0].clone(), sigma),)
