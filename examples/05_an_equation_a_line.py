"""For students: generalised alternating projection written out, one line per equation, beside the library's.

    python examples/05_an_equation_a_line.py

x is the video (T, H, W), y the snapshot (H, W), m the masks (T, H, W); white is 1. The equations are numbered as on
docs/cookbook/index.md.
"""

import torch

from unsnap import TV, Snapshot, gap, psnr
from unsnap.masks import bernoulli
from unsnap.simulate import render

truth = render(8, 96, 96, seed=4).double()
m = bernoulli(8, 96, 96, generator=torch.Generator().manual_seed(0)).double()
y = (m * truth).sum(0)  # (1)  y = Σ m_t ⊙ x_t
denoise, sigma, n = TV(temporal=0.15), 0.05, 40

# By hand ------------------------------------------------------------------------------------------------------------
energy = m.square().sum(0)  # (3)  ΦΦᵀ = diag(Σ m_t²)
inverse = torch.where(energy > 0, 1 / energy, 0.0)  # (4)  the pseudo-inverse: 0 where nothing was measured
v = m * (inverse * y)  # the video of least norm that explains y
for _ in range(n):
    x = v + m * (inverse * (y - (m * v).sum(0)))  # (10) the nearest video that explains the snapshot exactly
    v = denoise(x, sigma)  # (12) clean it

# By the library -----------------------------------------------------------------------------------------------------
solution = gap(y, Snapshot(m), denoise, [sigma] * n, accelerate=False, early=False)

print(f"by hand:        PSNR {psnr(v, truth).mean():.3f} dB")
print(f"by the library: PSNR {psnr(solution.x, truth).mean():.3f} dB")
print(f"largest difference between the two videos: {(v - solution.x).abs().max():.1e}")
