"""Plug your own denoiser in: anything that can be called as denoiser(x, sigma) is a prior.

python examples/02_your_own_denoiser.py
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, conv3d, pad

from unsnap import TV, Snapshot, gap, psnr
from unsnap.algorithms.schedules import geometric
from unsnap.masks import bernoulli
from unsnap.simulate import render

truth = render(8, 96, 96, seed=4)
phi = Snapshot(bernoulli(8, 96, 96, generator=torch.Generator().manual_seed(0)))
y = phi.A(truth)

# 1. A function of one line. It ignores sigma, as a denoiser without a dial must.
box = lambda x, sigma: avg_pool2d(x, 3, stride=1, padding=1, count_include_pad=False)  # noqa: E731


# 2. A module, as a trained network would be: axes (..., T, H, W), sigma where white is 1. This one has fixed weights:
#    a small space-time blur, applied the more strongly the larger sigma is.
class Smooth(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        tap = torch.tensor([0.25, 0.5, 0.25])
        self.register_buffer("kernel", torch.einsum("t,h,w->thw", tap, tap, tap)[None, None])

    def forward(self, x: Tensor, sigma: float | Tensor) -> Tensor:
        clips = x.reshape(-1, 1, *x.shape[-3:])
        blurred = conv3d(pad(clips, (1,) * 6, mode="replicate"), self.kernel).reshape(x.shape)
        return x + min(1.0, 5 * float(sigma)) * (blurred - x)


# 3. One denoiser after another is a denoiser, too.
tv = TV(temporal=0.15, isotropic=False)
smooth = Smooth()
both = lambda x, sigma: tv(smooth(x, 0.2 * sigma), sigma)  # noqa: E731

sigmas = geometric(0.2, 0.05, 40)
for name, denoiser in (("box blur", box), ("Smooth module", smooth), ("space-time TV", tv), ("Smooth, then TV", both)):
    with torch.no_grad():
        solution = gap(y, phi, denoiser, sigmas)
    print(f"{name:16s} PSNR {psnr(solution.x, truth).mean():6.2f} dB, last change {solution.residual[-1]:.1e}")
