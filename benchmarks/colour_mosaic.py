"""What demosaicing inside the reconstruction is worth: one Φ against four phases apart and interpolated.

A detector behind a Bayer filter is four of a quarter of the pixels, each behind one colour. Reconstructed apart,
their videos are interpolated (bilinear) to all pixels; together, the prior sees all colours at once.

    python benchmarks/colour_mosaic.py [--seeds 4] [--size 128] [--method gap-wnnm]
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor
from torch.nn.functional import conv2d

from unsnap import METHODS, Snapshot, psnr
from unsnap.masks import bernoulli
from unsnap.methods import Method
from unsnap.operators import Bayer
from unsnap.operators.bayer import filters, mosaic
from unsnap.simulate import render

FRAMES = 8


def interpolated(video: Tensor, seen: Tensor) -> Tensor:
    """(3, T, H, W) from what the pixels saw (T, H, W) behind the filters (3, H, W)."""
    near = torch.tensor([[1.0, 2.0, 1.0], [2.0, 4.0, 2.0], [1.0, 2.0, 1.0]])[None, None]
    sums, counts = (conv2d(a[:, None], near, padding=1)[:, 0] for a in ((seen[:, None] * video).flatten(0, 1), seen))
    return torch.where(seen[:, None] > 0, video, sums.unflatten(0, (3, -1)) / counts[:, None])


def apart(method: Method, y: Tensor, masks: Tensor, seen: Tensor) -> Tensor:
    video = torch.empty_like(masks)
    for i, j in ((0, 0), (0, 1), (1, 0), (1, 1)):
        phase = (..., slice(i, None, 2), slice(j, None, 2))
        video[phase] = method(y[phase].contiguous(), Snapshot(masks[phase].contiguous())).x
    return interpolated(video, seen)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--method", default="gap-wnnm")
    options = parser.parse_args()
    method, side, gains = METHODS[options.method], options.size, []
    print("scene  pattern  four phases apart  one camera   gain (dB, mean over planes and frames)")
    for seed in range(21, 21 + options.seeds):
        pattern = ("rggb", "bggr", "grbg", "gbrg")[seed % 4]
        truth = render(FRAMES, side, side, seed=seed, colour=True)
        masks = bernoulli(FRAMES, side, side, generator=torch.Generator().manual_seed(seed))
        phi, seen = Bayer(mosaic(masks, pattern)), filters(pattern, side, side)
        y = phi.A(truth.flatten(0, 1))
        videos = (apart(method, y, masks, seen), method(y, phi).x.unflatten(0, (3, -1)))
        before, after = (float(psnr(video, truth).mean()) for video in videos)
        gains.append(after - before)
        print(f"{seed:5d}  {pattern:>7}  {before:17.2f}  {after:10.2f}  {after - before:+5.2f}", flush=True)
    print(f"mean gain of {method.name}: {sum(gains) / len(gains):+.2f} dB")


if __name__ == "__main__":
    main()
