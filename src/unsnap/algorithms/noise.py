r"""How noisy is a snapshot? Seen without its video.

Where a small window of every frame is a plane, $x_t(p) = a_t + b_t^\top p$, the snapshot there is a linear function of
3T numbers through masks that are known, and least squares leaves nothing but noise. Texture and motion only add to what
is left, so its lowest values over many windows are the noise. Its variance has a level for the dark of the sensor, may
grow with the light (shot noise), and with the light's square (masks that are not quite the camera's).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

WINDOWS = 2048
"""About how many windows are looked at, spread over the snapshot."""
AT_ONCE = 76_800
"""Numbers in the systems that are solved at once: 32 windows of 8 frames."""
LEVELS = 6
"""Groups of windows of similar brightness."""
LOWEST, EXPECTED = 0.02, 0.85
"""The share of windows that are flat, and their variance over that of the noise: the lowest are no fair sample."""


def noise_map(
    y: Tensor,
    masks: Tensor,
    known: Tensor | None = None,
    ask: Callable[[Callable[[], Tensor]], Tensor] | None = None,
    other: Tensor | None = None,
) -> Tensor:
    r"""Standard deviation (..., H, W) of the noise in snapshots y (..., H, W) through masks (..., T, H, W).

    The variance is $\max(a, b\,\bar y, c\,\bar y^2)$ with $\bar y$ the brightness around a pixel, and a, b, c the
    largest that no group of windows contradicts. A snapshot too small for a window counts as clean. No gradient.
    known: the snapshot (like y) of a first, smooth reconstruction, which explains what a plane does not.
    ask: hands a, b and c (..., 3) on, or those of the whole picture if y is a part of it.
    other: pixels (..., H, W) that saw through other masks than these, and say nothing.

    >>> from unsnap.masks import bernoulli
    >>> g = torch.Generator().manual_seed(0)
    >>> masks = bernoulli(8, 96, 96, generator=g)
    >>> y = (0.5 * masks).sum(0) + 0.05 * torch.randn(96, 96, generator=g)
    >>> bool((noise_map(y, masks) - 0.05).abs().max() < 0.01)
    True
    """
    batch = torch.broadcast_shapes(y.shape[:-2], masks.shape[:-3])  # type: ignore[no-untyped-call]
    if 0 in (*batch, *y.shape):
        return y.new_zeros(*batch, *y.shape[-2:])
    pictures = y.detach().expand(*batch, *y.shape[-2:]).reshape(-1, *y.shape[-2:])
    codes = masks.detach().expand(*batch, *masks.shape[-3:]).reshape(-1, *masks.shape[-3:])
    rest = pictures if known is None else pictures - known.detach().expand(*batch, *y.shape[-2:]).reshape_as(pictures)
    kept = None if other is None else ~other.expand(*batch, *y.shape[-2:]).reshape_as(pictures)
    told = (pictures, rest) if kept is None else (pictures * kept, rest * kept)

    def laws() -> Tensor:
        found = [_law(*sample) for sample in zip(*told, codes, strict=True)]
        return torch.tensor(found, dtype=torch.float64).reshape(*batch, 3)

    law = laws() if ask is None else ask(laws)
    return _map(pictures, law.reshape(-1, 3)).to(y).reshape(*batch, *y.shape[-2:])


def _law(y: Tensor, rest: Tensor, masks: Tensor) -> tuple[float, float, float]:
    """a, b and c of a snapshot (H, W)."""
    side = max(10, math.ceil(math.sqrt(8 * len(masks))))
    if min(y.shape) < side:
        return 0.0, 0.0, 0.0
    mean, variance = _windows(y.cpu(), rest.cpu(), masks.cpu(), side)
    if not len(mean):
        return 0.0, 0.0, 0.0
    groups = mean.argsort().chunk(LEVELS)
    light = torch.stack([mean[group].mean() for group in groups])
    floor = torch.stack([variance[group].quantile(LOWEST) for group in groups]) / EXPECTED
    lit = light > 1e-3 * light.abs().max()
    shot, gain = (float((floor / light**k)[lit].min()) if bool(lit.any()) else 0.0 for k in (1, 2))
    return float(floor.min()), shot, gain


def _map(y: Tensor, law: Tensor) -> Tensor:
    """Of snapshots (n, H, W), each with its a, b and c (n, 3); not in half precision, where variances are 0."""
    around = torch.nn.functional.avg_pool2d(y.unsqueeze(1), 13, 1, 6, count_include_pad=False).squeeze(1)
    around = around.to(torch.promote_types(y.dtype, torch.float32)).clamp_(min=0)
    floor, shot, gain = law.to(around)[..., None, None].unbind(1)
    linear = shot * around
    return linear.clamp_(min=around.square_().mul_(gain)).clamp_(min=floor).sqrt_()


def _windows(y: Tensor, rest: Tensor, masks: Tensor, side: int) -> tuple[Tensor, Tensor]:
    """Mean brightness of y, and the variance of the rest that planes in all frames do not explain, of windows (n,).

    Pixels that are left out (no mask, no light) say nothing; windows with too many of them are passed over.
    """
    stride = max(side // 2, math.ceil(math.sqrt(y.numel() / WINDOWS)))
    light, seen, codes = (p.unfold(-2, side, stride).unfold(-2, side, stride) for p in (y, rest, masks))
    rows, columns = torch.cartesian_prod(*(torch.arange(n) for n in light.shape[:2])).T
    means, variances = [], []
    # A few at a time: windows overlap, and what is solved for them is larger than the snapshot.
    some = max(1, AT_ONCE // (side**2 * 3 * len(masks)))
    for row, column in zip(rows.split(some), columns.split(some), strict=True):
        own, left_over = (p[row, column].flatten(1).double() for p in (light, seen))
        code = codes[:, row, column].flatten(2).permute(1, 2, 0)
        count = ((code != 0).any(-1) | (own != 0)).sum(-1)
        free = count - 3 * len(masks)
        told = free > side**2 / 4
        means.append(own.sum(-1)[told] / count[told])
        variances.append(_unexplained(left_over.unsqueeze(-1), code)[told] / free[told])
    return torch.cat(means), torch.cat(variances)


def _unexplained(seen: Tensor, codes: Tensor) -> Tensor:
    """(n,): squares left of seen (n, pixels, 1) after its least-squares fit by planes behind codes (n, pixels, T)."""
    along = torch.linspace(-1, 1, math.isqrt(seen.shape[1]), dtype=seen.dtype)
    down, right = (axis.reshape(-1, 1) for axis in torch.meshgrid(along, along, indexing="ij"))
    code = codes.to(seen)
    planes = torch.cat([code, code * down, code * right], -1)
    gram = planes.mT @ planes
    ridge = 1e-9 * gram.diagonal(dim1=-2, dim2=-1).mean(-1) + torch.finfo(seen.dtype).tiny  # masks may be dependent
    system = gram + ridge[:, None, None] * torch.eye(gram.shape[-1], dtype=seen.dtype)
    left: Tensor = seen - planes @ torch.linalg.solve(system, planes.mT @ seen)
    return left.square().sum((-2, -1))
