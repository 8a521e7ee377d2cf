"""What a file holds and a method needs: snapshots, masks and, when known, the true video."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from unsnap.errors import InputError


@dataclass(frozen=True)
class Scene:
    """N coded snapshots of T frames each, with intensities in [0, 1].

    measurement: (N, H, W); masks: (T, H, W), or (N, T, H, W) when every snapshot has its own;
    truth: (M, T, H, W) with M <= N for the first M snapshots, or None;
    meta: where it came from and what was done to it (name, scales, axes), for the record.
    """

    measurement: Tensor
    masks: Tensor
    truth: Tensor | None = None
    meta: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        y, m, x = self.measurement, self.masks, self.truth
        if y.ndim != 3:
            raise InputError(f"measurement must be (N, H, W), got shape {tuple(y.shape)}")
        if m.ndim not in (3, 4) or m.shape[-2:] != y.shape[-2:] or (m.ndim == 4 and m.shape[0] != y.shape[0]):
            raise InputError(
                f"masks must be (T, H, W) or (N, T, H, W) to match the measurement {tuple(y.shape)}, "
                f"got shape {tuple(m.shape)}"
            )
        if x is not None and (x.ndim != 4 or x.shape[1:] != m.shape[-3:] or x.shape[0] > y.shape[0]):
            raise InputError(
                f"truth must be (M, T, H, W) with M <= {y.shape[0]} to match masks {tuple(m.shape)}, "
                f"got shape {tuple(x.shape)}"
            )

    @property
    def snapshots(self) -> int:
        return int(self.measurement.shape[0])

    @property
    def frames(self) -> int:
        return int(self.masks.shape[-3])
