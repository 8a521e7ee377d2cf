"""Three algorithms, one objective: FISTA, ADMM and proximal gradient all reach the minimum of ½‖y − Φx‖² + λ‖Wx‖₁.

    python examples/03_compare_algorithms.py

The prior is wavelet shrinkage with one shift, whose denoiser is the exact proximal operator; so the minimum is the same.
"""

import torch
from torch import Tensor

from unsnap import Snapshot, Wavelet, admm, fista, pgd, psnr
from unsnap.masks import bernoulli
from unsnap.procedural import render

truth = render(8, 64, 64, seed=4).double()
phi = Snapshot(bernoulli(8, 64, 64, generator=torch.Generator().manual_seed(0)).double())
y = phi.A(truth)
prior, weight = Wavelet(shifts=1), 0.02


def objective(x: Tensor) -> float:
    return float((y - phi.A(x)).square().sum() / 2 + weight * prior.value(x))


# What each algorithm hands to prox: step × λ for the gradient methods, λ / ρ for ADMM.
alpha, rho = 1 / phi.norm() ** 2, 0.1 * phi.norm() ** 2
algorithms = {
    "pgd": lambda n: pgd(y, phi, prior, [alpha * weight] * n, alpha=alpha, tol=0),
    "fista": lambda n: fista(y, phi, prior, [alpha * weight] * n, alpha=alpha, tol=0),
    "admm": lambda n: admm(y, phi, prior, [weight / rho] * n, rho=rho, tol=0),
}

lengths = (10, 30, 100, 300, 1000)
print("objective after  ", "".join(f"{n:>13d}" for n in lengths), "      PSNR")
for name, solve in algorithms.items():
    solutions = [solve(n).x for n in lengths]
    values = "".join(f"{objective(x):13.8f}" for x in solutions)
    print(f"{name:17s} {values}  {psnr(solutions[-1], truth).mean():8.3f}")
