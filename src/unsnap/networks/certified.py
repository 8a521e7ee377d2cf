r"""A denoiser that is 1-Lipschitz by construction, so that plug-and-play and equilibrium iterations with it converge.

$N$ is a chain of maps that cannot expand distances: 2 x 2 phases (a permutation), extra maps of zeros (an isometry),
blocks $z - 2K^\top T^{-1}\phi(Kz + b)$, the first maps again (a projection), phases back; then, if asked for, the same
with every frame between its neighbours, over √3 (an isometry, which its adjoint undoes at the end). A block is
1-Lipschitz for $T \succeq KK^\top$: between two points it acts as $I - 2K^\top G K$ with a diagonal
$0 \preceq G \preceq T^{-1}$ (the slopes of $\phi$, relu or a clip, lie in [0, 1]), and $T \succeq KK^\top$ means
$0 \preceq K^\top G K \preceq K^\top T^{-1} K \preceq I$. T comes either from row sums (`rowsums.py`), 4 to 5 times
what it need be for trained weights; or it is $\max(1, c)\,T_0$ with $T_{0,i} = \|k_i\|^2 / q_i$ and a bound c on
$\|T_0^{-1/2}K\|^2$ that exceeds it by 8 per cent at most (`frequencies.py`), for then
$T_0^{-1/2}KK^\top T_0^{-1/2} \preceq cI$, that is $KK^\top \preceq cT_0$. Small q leave a block near the identity,
which is where training begins.

With A = $\mathrm{clamp}((1 - \kappa)I + \kappa N)$ the denoiser is $D = (1 - c)r + cA$: a contraction by c < 1 towards
an anchor r, the video that the iteration starts from (`condition`). Whatever the masks, the snapshot and
the start, there is one fixed point and the rate is c: (23) of docs/cookbook/convergence.md, like the other numbers
here. The clamp keeps D between $(1 - c)r$ and
$(1 - c)r + c$, so that two iterates are no further apart than $c\sqrt n$ and none is shorter than
$(1 - c)\bar r\sqrt n$, where $\bar r$ is the anchor's mean, at least `FLOOR`: the relative residual at evaluation k + 1
is at most $c^k / ((1 - c)\bar r)$.

Without contraction D = A: averaged (21), into the cube [0, 1] (22), hence convergent, but at no rate that is known.
With $\kappa \le \frac12$ and without the clamp it is firmly nonexpansive, and accelerated GAP has one equilibrium (32).
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, pad, pixel_shuffle, pixel_unshuffle

from unsnap.algorithms.iterate import Denoiser
from unsnap.errors import InputError
from unsnap.networks.capture import Capture, Conditioned
from unsnap.networks.frames import RELU, clipped, conv_stack, frames_of, sigma_of
from unsnap.networks.frequencies import squared_gain
from unsnap.networks.rowsums import Remembered, row_sums
from unsnap.networks.settings import between, flags, whole

# N is pulled towards mid-grey by this much, so that float32 rounding does not undo the bound of 1, and (32) holds.
ROUNDING = 1e-5
FLOOR = 1 / 16
"""Anchors have at least this mean: a residual relative to black would say nothing."""
PIXELS = 512
"""Pixels of all frames that go through a block along time together."""
REACH = 0.2
"""How far from the identity new blocks go, of what their bound allows: farther ones take long to denoise at all."""
BOUNDS = ("row_sums", "frequencies")
"""Where T comes from."""
ACTIVATIONS = ("relu", "clip")
"""What a block does to its filters' responses: a function whose slopes lie in [0, 1]."""
WIDTH = 0.01
"""Where new blocks with clip begin to spare what is larger, for filters of norm 1; sigma is added to it."""


class Certified(Conditioned):
    """1-Lipschitz denoiser of videos (..., T, H, W) in [0, 1]; see the module's text for the construction.

    blocks, channels, hidden: depth and widths (channels >= unshuffle²); kappa: how far it goes from the identity to N;
    contraction: the bound c < 1 on D, or None for a D that is averaged only; temporal: a block along time (3 frames)
    after every block in space; neighbours: so many of the last blocks work on every frame between its two neighbours,
    so that filters in space also see what moves (channels >= 3 unshuffle²); to add some to a trained network, add as
    many to `blocks`. sigma shifts the biases, on which the bound does not depend. Outside an equilibrium model, where
    there is no snapshot, the anchor is mid-grey.

    bound: where T comes from, "row_sums" or "frequencies"; weights mean something else with the other. activation:
    "relu", or "clip", with which a block removes small responses of its filters and leaves edges alone.
    """

    def __init__(
        self,
        blocks: int = 6,
        channels: int = 32,
        hidden: int = 64,
        unshuffle: int = 2,
        kappa: float = 0.5,
        clamp: bool = True,
        contraction: float | None = 0.95,
        temporal: bool = False,
        bound: str = "frequencies",
        activation: str = "relu",
        neighbours: int = 0,
    ) -> None:
        super().__init__()
        whole("Certified", blocks=blocks, channels=channels, hidden=hidden, unshuffle=unshuffle)
        if contraction is None or kappa != 1:
            between("Certified", 0, 1, kappa=kappa)
        flags("Certified", clamp=clamp, temporal=temporal)
        if isinstance(neighbours, bool):  # as files said it for a time: none of the blocks, or all
            neighbours = blocks if neighbours else 0
        whole("Certified", 0, neighbours=neighbours)
        if neighbours > blocks:
            raise InputError(f"Certified: neighbours counts blocks, at most {blocks}, got {neighbours}")
        if contraction is not None:
            between("Certified", 0, 1, contraction=contraction)
        least, of = (3 if neighbours else 1) * unshuffle**2, "3 unshuffle²" if neighbours else "unshuffle²"
        if channels < least:
            raise InputError(f"Certified: channels must be at least {of} = {least}, got {channels}")
        if bound not in BOUNDS:
            raise InputError(f"Certified: bound must be {' or '.join(BOUNDS)}, got {bound!r}")
        if activation not in ACTIVATIONS:
            raise InputError(f"Certified: activation must be {' or '.join(ACTIVATIONS)}, got {activation!r}")
        self.settings: dict[str, Any] = {
            "blocks": blocks, "channels": channels, "hidden": hidden, "unshuffle": unshuffle,
            "kappa": kappa, "clamp": clamp, "contraction": contraction, "temporal": temporal, "bound": bound,
            "activation": activation, "neighbours": neighbours,
        }  # fmt: skip
        make = partial(Clipping if activation == "clip" else Block, channels, hidden, tight=bound == "frequencies")
        self.space = nn.ModuleList(make((3, 3)) for _ in range(blocks))
        self.time = nn.ModuleList(make((3, 1)) for _ in range(blocks if temporal else 0))

    def forward(self, x: Tensor, sigma: float | Tensor = 0.0) -> Tensor:
        return self.towards(0.5, x, sigma)

    def condition(self, capture: Capture) -> Denoiser:
        """D for these snapshots, with the start as its anchor; gradients with respect to y do not go through that."""
        if self.settings["contraction"] is None:
            return self
        anchor = _anchor(capture.start)
        return lambda x, sigma: self.towards(anchor, x, sigma)

    @property
    def told(self) -> bool:
        return self.settings["contraction"] is not None

    def towards(self, anchor: float | Tensor, x: Tensor, sigma: float | Tensor = 0.0) -> Tensor:
        """D(x) for this anchor, a value or a video like x."""
        kappa, contraction = self.settings["kappa"], self.settings["contraction"]
        moved = self.nonexpansive(x, sigma) * (1 - ROUNDING) + ROUNDING / 2
        out: Tensor = (1 - kappa) * x + kappa * moved
        if self.settings["clamp"]:
            out = out.clamp(0, 1)
        return out if contraction is None else (1 - contraction) * anchor + contraction * out

    def nonexpansive(self, x: Tensor, sigma: float | Tensor = 0.0) -> Tensor:
        """N(x)."""
        level = torch.as_tensor(sigma, dtype=x.dtype, device=x.device)
        if level.numel() > 1:  # one of each sample
            levels = sigma_of(level, x)[:: x.shape[-3], 0, 0, 0]
            videos = zip(x.reshape(-1, *x.shape[-3:]), levels, strict=True)
            return torch.stack([self.nonexpansive(video, one) for video, one in videos]).reshape(x.shape)
        r, frames, (height, width) = self.settings["unshuffle"], x.shape[-3], x.shape[-2:]
        alone = self.settings["blocks"] - self.settings["neighbours"]
        z = frames_of(pad(x, (0, -width % r, 0, -height % r)))
        if alone:
            z = self._chain(range(alone), z, frames, level)
        if alone < self.settings["blocks"]:
            beside = _beside_neighbours(z.reshape(-1, frames, *z.shape[-2:]))
            z = _back_together(self._chain(range(alone, self.settings["blocks"]), beside, frames, level), frames)
        return z[..., :height, :width].reshape(x.shape)

    def _chain(self, blocks: range, x: Tensor, frames: int, level: Tensor) -> Tensor:
        """These blocks on (n · T, maps, height, width), among maps of zeros."""
        r, channels = self.settings["unshuffle"], self.settings["channels"]
        z = pixel_unshuffle(x, r)
        given = z.shape[1]
        z = pad(z, (0, 0, 0, 0, 0, channels - given))
        for k in blocks:
            z = self.space[k](z, level.reshape(1))
            if self.time:  # time as the axis of convolution: (samples, T, channels, H·W)
                videos = z.reshape(-1, frames, channels, z.shape[-2] * z.shape[-1])
                z = cast(Block, self.time[k]).along_time(videos, level.reshape(1)).reshape(z.shape)
        return pixel_shuffle(z[:, :given], r)

    def lipschitz_bound(self) -> dict[str, Any]:
        r"""The evidence, layer by layer, and the bound on D that follows.

        A `squared_norm` <= 1, which bounds $\|T^{-1/2}K\|^2$, proves a layer's bound of 1.
        """
        layers: list[dict[str, Any]] = []
        for axis, blocks in (("space", self.space), ("time", self.time)):
            found = [block.certificate() for block in blocks if isinstance(block, Block)]
            layers += [{"layer": f"{axis}.{k}", **row} for k, row in enumerate(found)]
        total = math.prod(row["bound"] for row in layers)
        kappa, contraction, clamp = (self.settings[key] for key in ("kappa", "contraction", "clamp"))
        bound = ((1 - kappa) + kappa * total) * (1.0 if contraction is None else contraction)
        kind = "contraction" if contraction is not None else "averaged and clamped" if clamp else "averaged"
        return {
            "kind": kind if total == 1 else "none",
            "firm": total == 1 and kappa <= 0.5 and not clamp and contraction is None,
            "bound": bound,
            "nonexpansive": total,
            "kappa": kappa,
            "clamp": clamp,
            "contraction": contraction,
            "construction": self.settings["bound"],
            "floor": FLOOR if clamp and contraction is not None else None,
            "layers": layers,
        }


def _anchor(video: Tensor) -> Tensor:
    """The start, lifted towards white if it is almost black: a contraction towards it costs no quality."""
    video = video.nan_to_num(0.5).clamp(0, 1)
    mean = video.mean((-3, -2, -1), keepdim=True)
    lift = ((FLOOR - mean) / (1 - mean)).clamp(min=0)
    return video + lift * (1 - video)


class Block(nn.Module):
    r"""$z - 2K^\top T^{-1}\mathrm{relu}(Kz + b + \sigma s)$ on (n, channels, height, width), 1-Lipschitz in z.

    tight: T comes from frequencies, otherwise from row sums.
    """

    between = RELU

    def __init__(self, channels: int, hidden: int, kernel: tuple[int, int], tight: bool = True) -> None:
        super().__init__()
        self._tight, self._back = tight, Remembered(partial(_back, tight=tight))
        self.weight = nn.Parameter(torch.empty(hidden, channels, *kernel))
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        self.bias = nn.Parameter(torch.zeros(hidden))
        self.noise = nn.Parameter(torch.zeros(hidden))
        with torch.no_grad():
            unit = squared_gain(_rows(self.weight, self.weight.square().sum((1, 2, 3)).rsqrt()))
        self.log_q = nn.Parameter(torch.full((hidden,), math.log(REACH / float(unit))))

    def forward(self, z: Tensor, level: Tensor) -> Tensor:
        """level: sigma, (1,)."""
        (weight, bias), back = self._layers(level)
        if weight.shape[-2:] == (3, 3):
            return z - conv_stack([(weight, bias), (back, None)], z, self.between)
        padding = (weight.shape[-2] // 2, weight.shape[-1] // 2)
        return z - conv2d(clipped(conv2d(z, weight, bias, padding=padding), self.between), back, padding=padding)

    def along_time(self, z: Tensor, level: Tensor) -> Tensor:
        """The same for kernels (3, 1) on (n, T, channels, pixels)."""
        if torch.is_grad_enabled():
            return self.forward(z.transpose(1, 2), level).transpose(1, 2)
        (weight, bias), back = self._layers(level)
        first, second, shift = _side_by_side(weight), _side_by_side(back), bias.unsqueeze(-1)
        out = torch.empty_like(z)
        for k in range(0, z.shape[-1], PIXELS):  # products of matrices that fit into the cache
            part = z[..., k : k + PIXELS]
            inner = clipped(first @ _with_neighbours(part) + shift, self.between)
            out[..., k : k + PIXELS] = part - second @ _with_neighbours(inner)
        return out

    def _layers(self, level: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor]:
        """Kernels and biases before the activation at this sigma, and the kernels after it."""
        (back,) = self._back(self.weight, self.log_q)
        return (self.weight, self.bias + self.noise * level), back

    @torch.no_grad()
    def certificate(self) -> dict[str, float]:
        """Bounds on ‖T^-1/2 K‖², with T as the forward pass uses it, rounded: <= 1 proves K^T T^-1 K <= I.

        `row_sum` is the largest row sum over T, always a bound; `squared_norm` the one that T was made from.
        """
        inverse = _inverse(self.weight, self.log_q, self._tight).to(self.weight).double()
        row_sum = float((row_sums(self.weight, self.log_q) * inverse).amax())
        norm = float(squared_gain(_rows(self.weight.double(), inverse.sqrt()))) if self._tight else row_sum
        bound = max(1.0, 2 * norm - 1) if math.isfinite(norm) else math.inf
        return {"row_sum": row_sum, "squared_norm": norm, "bound": bound}


class Clipping(Block):
    r"""$z - 2K^\top T^{-1}\mathrm{clip}(Kz + b, \pm(w + \sigma s)\|k\|)$: a step of descent on Huber's function.

    Its slopes are 1 for small responses, which are noise, and 0 for large ones, which are edges; those of relu only
    rise, so that a block with relu takes at least half as much from an edge as from noise of both signs.
    """

    between = (-1.0, 1.0)

    def __init__(self, channels: int, hidden: int, kernel: tuple[int, int], tight: bool = True) -> None:
        super().__init__(channels, hidden, kernel, tight)
        with torch.no_grad():  # filters without a mean: flat videos are left alone
            self.weight.sub_(self.weight.mean((2, 3), keepdim=True))
        self.log_width = nn.Parameter(torch.full((hidden,), math.log(WIDTH)))

    def _layers(self, level: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor]:
        """In units of the width, so that the clip is that to [-1, 1]."""
        (back,) = self._back(self.weight, self.log_q)
        squares = self.weight.square().sum((1, 2, 3))
        norm = torch.where(squares > 0, squares, 1).sqrt()  # a filter of zeros does nothing
        width = norm * (self.log_width.exp() + self.noise.exp() * level)
        return (_rows(self.weight, 1 / width), self.bias / width), back * width.reshape(1, -1, 1, 1)


def _beside_neighbours(x: Tensor) -> Tensor:
    """(..., T, H, W) -> (n · T, 3, H, W): every frame between its neighbours, the ends repeated, over √3: an isometry.

    Each frame is there three times: the first in its own place, for want of one before it, and beside the second.
    """
    x = x.reshape(-1, *x.shape[-3:]) / math.sqrt(3)
    before, after = torch.cat([x[:, :1], x[:, :-1]], 1), torch.cat([x[:, 1:], x[:, -1:]], 1)
    return torch.stack([before, x, after], 2).flatten(0, 1)


def _back_together(z: Tensor, frames: int) -> Tensor:
    """Its adjoint, (n · T, 3, H, W) -> (n, T, H, W): the mean of what the three places of a frame hold, times √3."""
    before, x, after = (z.reshape(-1, frames, *z.shape[1:]) / math.sqrt(3)).unbind(2)
    x = x + torch.cat([before[:, 1:], after[:, -1:]], 1)
    return x + torch.cat([before[:, :1], after[:, :-1]], 1)


def _side_by_side(kernel: Tensor) -> Tensor:
    """(out, channels, 3, 1) -> (out, 3 · channels): for the frame before, the frame, and the frame after."""
    return kernel[..., 0].transpose(1, 2).flatten(1)


def _with_neighbours(z: Tensor) -> Tensor:
    """(n, T, channels, pixels) -> (n, T, 3 · channels, pixels), zero beyond the ends."""
    zero = torch.zeros_like(z[:, :1])
    return torch.cat([torch.cat([zero, z[:, :-1]], 1), z, torch.cat([z[:, 1:], zero], 1)], 2)


def _rows(weight: Tensor, factors: Tensor) -> Tensor:
    """The kernels of every hidden map times its factor."""
    return weight * factors.reshape(-1, 1, 1, 1)


def _inverse(weight: Tensor, log_q: Tensor, tight: bool) -> Tensor:
    """1/T in float64, a hair below it; 0 for a hidden map without weights, which does nothing."""
    kernels = weight.double()
    t = kernels.square().sum((1, 2, 3)) / log_q.double().exp() if tight else row_sums(weight, log_q)
    live = t != 0
    t = torch.where(live, t, 1)
    if tight:
        t = t * squared_gain(_rows(kernels, t.rsqrt())).clamp(min=1)
    return torch.where(live, (1 - 1e-6) / t, 0)


def _back(weight: Tensor, log_q: Tensor, tight: bool) -> tuple[Tensor, ...]:
    """2 K^T T^-1 as an ordinary convolution: kernels (channels, hidden, ...) turned by half a turn."""
    scaled = _rows(weight.double(), 2 * _inverse(weight, log_q, tight))
    return (scaled.flip(-2, -1).transpose(0, 1).to(weight).contiguous(),)
