"""Did it help? A paired test on pixels that nothing was learned from, and what `unsnap adapt` says of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

from unsnap.fields import finite

SURE = 0.01
"""The largest probability, that chance alone would gain as much, at which a gain counts."""
WORTH = 0.1
"""The least gain that counts, in dB of the squared error on the judging pixels."""
_BLOCK = 16  # errors of neighbours are alike: a block of pixels is one observation
_FLIPS = 9999


@dataclass(frozen=True)
class Facts:
    """What `--json` prints. Errors are RMS of Φx − y on hidden pixels relative to y there."""

    helped: bool
    """The judging pixels are predicted better: in every split, by 0.1 dB in all, with a probability below 1 % that
    chance would do as much; and the model is neither of the following."""
    unsettled: bool
    """The best weights do not come to rest as exactly as the original ones."""
    forgetful: bool
    """They fill gaps, but from all pixels they find a video again less well than the original ones."""
    steps: int
    best_step: int
    """0: the original weights were best."""
    stopped: str
    held_out_before: float
    held_out_after: float
    """Of the best weights; as before if these are the original ones."""
    gain: float
    """By how many dB the squared error on the judging pixels fell."""
    gains: list[float]
    """The same in each split."""
    chance: float
    """How often chance alone would gain as much (`held_out.chance`)."""
    residual_before: float
    residual_after: float
    recoding_before: float
    recoding_after: float
    """Relative error of finding the original's video again from a new coding."""
    skipped: int
    """Steps without a finite gradient."""
    seconds: float
    history: list[tuple[int, float | None]]
    """Step and error on the pixels that decide when to stop."""
    psnr_before: float | None = None
    psnr_after: float | None = None
    """Where the truth is known, which is never used otherwise: of the same windows, from all measurements."""

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready: what is not finite is None."""
        facts: dict[str, Any] = finite(asdict(self))
        return facts


def chance(gain: Tensor) -> float:
    """How often chance alone would gain as much: the p-value, one-sided, of gains (..., H, W) of the same pixels.

    If a change does not help, the gain of a block of pixels is as likely to be below 0 as above, so the signs of the
    blocks' sums are drawn anew, 9,999 times. Blocks are 16 x 16 pixels, smaller in small pictures, where there must be
    enough of them; nothing is assumed of the distribution of errors but that distant blocks do not err together.
    """
    side = max(_BLOCK // 2, min(_BLOCK, min(gain.shape[-2:]) // 4))
    flat = gain.reshape(-1, 1, *gain.shape[-2:]).double()
    blocks = avg_pool2d(flat, side, ceil_mode=True, divisor_override=1).flatten().cpu()
    signs = torch.randint(0, 2, (_FLIPS, len(blocks)), generator=torch.Generator().manual_seed(0)).double()
    sums = (2 * signs - 1) @ blocks
    reached = sums >= blocks.sum() - 1e-12 * blocks.abs().sum()
    return (1 + int(reached.sum())) / (1 + _FLIPS)


def counts(gain: float, gains: Sequence[float], luck: float) -> bool:
    """Is a gain of the judging pixels, and of each of their splits, both sure and worth it?"""
    return luck <= SURE and gain >= WORTH and min(gains) > 0


def decibels(before: Tensor, after: Tensor) -> float:
    """By how much the sum of squared errors fell; 0 where there are none."""
    old, new = float(before.sum()), float(after.sum())
    return 10 * math.log10(old / new) if old > 0 and new > 0 else 0.0
