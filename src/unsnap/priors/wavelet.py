r"""Wavelet shrinkage: $R(x) = \|Wx\|_1$ over the detail coefficients of an orthonormal wavelet transform.

For one shift and sides divisible by $2^{levels}$ the denoiser is exactly $\mathrm{prox}_{\sigma R}$, the soft threshold
$W^\top S_\sigma W x$; more shifts average it over translations (cycle spinning), which removes its block artefacts.
Donoho & Johnstone 1994; Coifman & Donoho, *Translation-invariant de-noising*, 1995.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from unsnap.priors.checks import check_sigma


@dataclass(frozen=True)
class Wavelet:
    """Soft thresholding of the wavelet coefficients of videos (..., T, H, W).

    name: an orthogonal wavelet of PyWavelets; levels: depth; temporal: transform along time too (else frame by frame);
    shifts: translations averaged.

    >>> x = torch.rand(4, 16, 16)
    >>> bool(torch.allclose(Wavelet()(x, 0.0), x, atol=1e-6))            # W is orthonormal
    True
    """

    name: str = "db2"
    levels: int = 3
    temporal: bool = False
    shifts: int = 4

    def __post_init__(self) -> None:
        if not (self.levels >= 1 and self.shifts >= 1):
            raise ValueError(f"Wavelet needs levels >= 1 and shifts >= 1, got {self.levels} and {self.shifts}")
        _taps(self.name)

    def __call__(self, x: Tensor, sigma: float | Tensor, /) -> Tensor:
        """Shrink every detail coefficient towards 0 by sigma; a number or one per sample, in intensity units."""
        check_sigma(sigma)
        if isinstance(sigma, Tensor):
            threshold = sigma.reshape(sigma.shape + (1,) * (x.ndim - sigma.ndim)).to(x)
        else:
            threshold = x.new_tensor(sigma)
        if x.numel() == 0:
            return x.clone()
        out = torch.zeros_like(x)
        for shift in range(self.shifts):
            moved = torch.roll(self._extend(x), (shift, shift), (-2, -1))
            cleaned = torch.roll(self._shrink(moved, threshold, self.levels), (-shift, -shift), (-2, -1))
            out = out + cleaned[..., : x.shape[-3], : x.shape[-2], : x.shape[-1]]
        return out / self.shifts

    def value(self, x: Tensor) -> Tensor:
        """R(x), the sum of the absolute detail coefficients, one value per sample: (...,)."""
        total, low = x.new_zeros(x.shape[:-3]), self._extend(x)
        for _ in range(self.levels):
            low, details = self._split(low)
            total = total + sum(d.abs().sum((-3, -2, -1)) for d in details)
        return total

    def _shrink(self, x: Tensor, sigma: Tensor, levels: int) -> Tensor:
        low, details = self._split(x)
        if levels > 1:
            low = self._shrink(low, sigma, levels - 1)
        return self._merge([low, *(d - d.clamp(-sigma, sigma) for d in details)])

    def _split(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        bands = [x]
        for axis in self._axes:
            bands = [half for band in bands for half in _analyse(band, axis, self.name)]
        return bands[0], bands[1:]

    def _merge(self, bands: list[Tensor]) -> Tensor:
        for axis in reversed(self._axes):
            bands = [_synthesise(bands[i], bands[i + 1], axis, self.name) for i in range(0, len(bands), 2)]
        return bands[0]

    @property
    def _axes(self) -> tuple[int, ...]:
        return (-3, -2, -1) if self.temporal else (-2, -1)

    def _extend(self, x: Tensor) -> Tensor:
        """Mirror the far ends until every transformed side is a multiple of 2^levels."""
        for axis in self._axes:
            length, block = x.shape[axis], 2**self.levels
            missing = -length % block
            if missing:
                there_and_back = [*range(length), *reversed(range(length))]
                index = [there_and_back[i % (2 * length)] for i in range(length + missing)]
                x = x.index_select(axis, torch.tensor(index, device=x.device))
        return x


@cache
def _taps(name: str) -> tuple[list[float], list[float]]:
    import pywt

    # 'dmey' calls itself orthogonal but loses a thousandth of the energy.
    if name not in pywt.wavelist(kind="discrete") or not pywt.Wavelet(name).orthogonal or name == "dmey":
        raise ValueError(f"name must be an orthogonal wavelet such as 'haar', 'db2' or 'sym4', got {name!r}")
    wavelet = pywt.Wavelet(name)
    return list(wavelet.dec_lo), list(wavelet.dec_hi)


def _analyse(x: Tensor, axis: int, name: str) -> tuple[Tensor, Tensor]:
    """Periodic orthonormal filter bank along one axis of even length: low and high halves."""
    lowpass, highpass = _taps(name)
    length = x.shape[axis]
    around = torch.cat([x] * (1 + -(-len(lowpass) // length)), axis)
    shifted = [_every_second(around.narrow(axis, n, length), axis) for n in range(len(lowpass))]
    return _combine(lowpass, shifted), _combine(highpass, shifted)


def _synthesise(low: Tensor, high: Tensor, axis: int, name: str) -> Tensor:
    """The transpose, which for an orthonormal bank is the inverse, of `_analyse`."""
    lowpass, highpass = _taps(name)
    length, reach = low.shape[axis], len(lowpass) // 2
    repeats = 1 + -(-reach // length)
    shifted = []
    for band in (low, high):
        around = torch.cat([band] * repeats, axis)
        shifted += [around.narrow(axis, (repeats - 1) * length - n, length) for n in range(reach)]
    even, odd = (_combine(lowpass[p::2] + highpass[p::2], shifted) for p in (0, 1))
    return torch.stack([even, odd], axis).flatten(axis - 1, axis)


def _every_second(x: Tensor, axis: int) -> Tensor:
    index: tuple[Any, ...] = (..., slice(None, None, 2), *[slice(None)] * (-1 - axis))
    return x[index]


def _combine(weights: list[float], terms: list[Tensor]) -> Tensor:
    total = weights[0] * terms[0]
    for weight, term in zip(weights[1:], terms[1:], strict=True):
        total = total.add(term, alpha=weight)
    return total
