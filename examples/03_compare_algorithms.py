"""Three algorithms, one objective: proximal gradient, FISTA and ADMM all approach the minimum of ½‖y − Φx‖² + λ‖Wx‖₁.

    python examples/03_compare_algorithms.py

The prior is wavelet shrinkage with one shift, whose denoiser is the exact proximal operator: so the minimum is one.
"""

import torch
from torch import Tensor

from unsnap import Snapshot, Wavelet, admm, fista, pgd, psnr
from unsnap.masks import bernoulli
from unsnap.simulate import render

truth = render(8, 48, 48, seed=4).double()
phi = Snapshot(bernoulli(8, 48, 48, generator=torch.Generator().manual_seed(0)).double())
y = phi.A(truth)
prior, weight = Wavelet("haar", temporal=True, shifts=1), 0.1


def objective(x: Tensor) -> float:
    return float((y - phi.A(x)).square().sum() / 2 + weight * prior.value(x))


# What each algorithm hands to the denoiser: α·λ for the gradient methods with step α, λ/ρ for ADMM.
alpha, rho, n = 1 / phi.norm() ** 2, 0.1 * phi.norm() ** 2, 200
algorithms = {
    "pgd": lambda watch: pgd(y, phi, prior, [alpha * weight] * n, alpha=alpha, tol=0, callback=watch),
    "fista": lambda watch: fista(y, phi, prior, [alpha * weight] * n, alpha=alpha, tol=0, callback=watch),
    "admm": lambda watch: admm(y, phi, prior, [weight / rho] * n, rho=rho, tol=0, callback=watch),
}

shown = (1, 10, 30, 100, 200)
print("objective after", "".join(f"{k:>13d}" for k in shown), "iterations")
for name, solve in algorithms.items():
    values: list[float] = []

    def watch(k: int, x: Tensor, change: Tensor, values: list[float] = values) -> None:
        if k in shown:
            values.append(objective(x))

    solution = solve(watch)
    line = "".join(f"{value:13.6f}" for value in values)
    print(f"{name:15s} {line}   PSNR {psnr(solution.x, truth).mean():.2f} dB")
