"""Some of the cookbook's demonstrations, each a pure function from its parameters to a figure, within a second."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

from unsnap.algorithms import GAP, admm
from unsnap.algorithms.schedules import constant
from unsnap.bench.pictures import new_plot
from unsnap.fixed_point import anderson, fixed_point, picard
from unsnap.masks import bernoulli
from unsnap.metrics import psnr
from unsnap.models import Equilibrium
from unsnap.operators import Snapshot
from unsnap.priors import TV
from unsnap.simulate import render

_BLUE, _ORANGE, _GREY = "#0072b2", "#d55e00", "#9a9a9a"


@cache
def _scene(side: int, frames: int = 8) -> tuple[Tensor, Snapshot, Tensor]:
    """The page's example: snapshot, camera and truth."""
    phi = Snapshot(bernoulli(frames, side, side, generator=torch.Generator().manual_seed(0)))
    truth = render(frames, side, side, seed=0)
    return phi.A(truth)[None], phi, truth[None]


def penalty(rho: float, iterations: int = 30) -> Any:
    """ADMM's residual and PSNR per iteration for a penalty ρ‖Φ‖², beside the default ρ = 0.1 (same TV strength λ)."""
    y, phi, truth = _scene(32)
    figure, (left, right) = new_plot("iteration", "relative change", "iteration", "PSNR (dB)")
    left.set_yscale("log")
    for value, colour, name in ((0.1, _GREY, "ρ = 0.1, the default"), (rho, _BLUE, f"ρ = {rho:.3g}")):
        quality: list[float] = []
        found = admm(
            y,
            phi,
            TV(iterations=5),
            constant(0.006 / value, iterations),
            rho=value * phi.squared_norm(),
            early=False,
            callback=lambda k, x, change, into=quality: into.append(float(psnr(x, truth).mean())),  # type: ignore[misc]
        )
        left.plot(range(1, iterations + 1), found.residual[:, 0].tolist(), color=colour, label=name)
        right.plot(range(1, iterations + 1), quality, color=colour, label=name)
    left.legend(frameon=False)
    return figure


def overshoot(x: Tensor, sigma: float | Tensor, amount: float = 2.5) -> Tensor:
    """The cookbook's denoiser of one line: it takes away `amount` times what a small blur would."""
    blurred = avg_pool2d(x, 3, stride=1, padding=1, count_include_pad=False)
    return 0.95 * x - amount * (x - blurred)


def mixing(delta: float, points: int) -> tuple[Any, dict[str, Any]]:
    """Anderson with damping δ and s points: on the page's example (eigenvalues near −2.3), and on diag(−3, 0.9, 5).

    The facts: whether it converged on the page's example, and after how many evaluations.
    """
    y, phi, _ = _scene(48)
    figure, (left, right) = new_plot("evaluations", "residual", "evaluations", "residual")
    chosen = anderson(memory=points, damping=delta)
    solution = Equilibrium(GAP(), overshoot, solver=chosen, tol=1e-4)(y, phi)
    _residuals(left, solution.residual[:, 0], _BLUE, f"δ = {delta:g}, s = {points}")
    plain = Equilibrium(GAP(), overshoot, solver=picard(), tol=1e-4, max_iter=25)(y, phi)
    _residuals(left, plain.residual[:, 0], _GREY, "plain: δ = 1, s = 1")
    left.set_title("DE-GAP that overshoots", fontsize=10)
    matrix, answer = torch.diag(torch.tensor([-3.0, 0.9, 5.0])).double(), torch.tensor([[1.0, -2.0, 0.5]]).double()
    linear = fixed_point(
        lambda z: answer + (z - answer) @ matrix,
        torch.zeros(1, 3).double(),
        solver=anderson(memory=points, damping=delta, ridge=0),
        tol=1e-9,
        max_iter=40,
    )
    _residuals(right, linear.residual[:, 0], _BLUE, f"δ = {delta:g}, s = {points}")
    right.set_title("the linear map diag(−3, 0.9, 5)", fontsize=10)
    return figure, {"converged": bool(solution.converged.all()), "evaluations": int(solution.evaluations)}


def strength(amount: float, iterations: int = 40) -> tuple[Any, dict[str, float]]:
    """The plain DE-GAP with a denoiser that overshoots by `amount`: does it diverge?

    Facts: ε, the Lipschitz constant of D − I, and the spectral radius of the iteration; above 1 it moves away.
    """
    y, phi, _ = _scene(24, 4)
    model = Equilibrium(GAP(), lambda x, sigma: overshoot(x, sigma, amount), solver=picard(), tol=0.0)
    with torch.no_grad():
        residual = model(y, phi, max_iter=iterations).residual[:, 0]
    radius, epsilon = _radius(phi, amount), _distance_from_identity(amount)
    figure, (axes,) = new_plot("iteration", "residual")
    verdict = "contracts" if radius < 1 else "diverges"
    _residuals(axes, residual, _ORANGE if radius >= 1 else _BLUE, f"plain iteration: {verdict}")
    axes.set_title(f"ε = ‖D − I‖ = {epsilon:.2f}, spectral radius {radius:.2f}", fontsize=10)
    return figure, {"epsilon": epsilon, "radius": radius, "last": float(residual[-1]), "first": float(residual[0])}


def rate(factor: float, iterations: int = 150) -> tuple[Any, dict[str, float]]:
    """DE-GAP with D = factor · blur, a contraction: the residual, and the rate that its Jacobian predicts."""
    phi = Snapshot(bernoulli(4, 8, 8, generator=torch.Generator().manual_seed(0)).double())
    y = phi.A(render(4, 16, 16, seed=0)[:, :8, :8].double())[None]
    radius = float(_eigenvalues(phi, lambda x: factor * _blur(x)).abs().max())
    zero, sizes = torch.zeros_like(y), []
    start = torch.rand(1, *phi.video, dtype=y.dtype, generator=torch.Generator().manual_seed(0))  # all modes are in it
    step = factor * _blur(phi.project(start, y)) - start  # x_1 − x_0
    for _ in range(iterations):
        sizes.append(float(step.norm()))
        step = factor * _blur(phi.project(step, zero))  # the iteration is affine: differences without cancellation
    half = 2 * iterations // 3  # the first steps still hold what falls faster
    measured = (sizes[-1] / sizes[half]) ** (1 / (iterations - 1 - half))
    figure, (axes,) = new_plot("iteration", "‖x_{k+1} − x_k‖")
    axes.set_yscale("log")
    axes.plot(
        range(1, iterations + 1), sizes, "o", color=_BLUE, markersize=3, label=f"measured, {measured:.4f} per step"
    )
    line = [sizes[half] * radius ** (k - half) for k in range(iterations)]
    axes.plot(range(1, iterations + 1), line, color=_ORANGE, label=f"predicted: spectral radius {radius:.4f}")
    axes.legend(frameon=False)
    return figure, {"predicted": radius, "measured": measured}


def _blur(x: Tensor) -> Tensor:
    return avg_pool2d(x, 3, stride=1, padding=1, count_include_pad=False)


def _eigenvalues(phi: Snapshot, denoise: Any) -> Tensor:
    """Of x -> D(x − Φ⁺Φx), the linear part of DE-GAP, as a dense matrix."""
    size = math.prod(phi.video)
    units = torch.eye(size, dtype=torch.float64).reshape(size, *phi.video)
    zero = torch.zeros(size, *phi.image, dtype=torch.float64)
    columns = denoise(phi.project(units, zero)).reshape(size, size)
    found: Tensor = torch.linalg.eigvals(columns)
    return found


@cache
def _radius(phi: Snapshot, amount: float) -> float:
    """Spectral radius of the plain DE-GAP, by repeated application of its linear part."""
    phi = Snapshot(phi.masks.double())
    x = torch.randn(1, *phi.video, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    zero, grown = torch.zeros(1, *phi.image, dtype=torch.float64), 0.0
    for _ in range(60):
        new = overshoot(phi.project(x, zero), 0.0, amount)
        grown = float(new.norm() / x.norm())
        x = new / new.norm()
    return grown


def _distance_from_identity(amount: float) -> float:
    """‖D − I‖ of `overshoot`, which is linear: by power iteration on (D − I)ᵀ(D − I)."""
    x = torch.randn(1, 24, 24, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    size = 0.0
    for _ in range(40):
        point = x.clone().requires_grad_()
        difference = overshoot(point, 0.0, amount) - point
        size = float(difference.detach().norm() / x.norm())
        (back,) = torch.autograd.grad(difference, point, difference.detach())
        x = back / back.norm().clamp(min=1e-300)
    return size


def _residuals(axes: Any, history: Tensor, colour: str, name: str) -> None:
    values = [float(v) if math.isfinite(float(v)) and v > 0 else math.nan for v in history]
    axes.set_yscale("log")
    axes.plot(range(1, len(values) + 1), values, color=colour, label=name, marker="." if len(values) < 4 else "")
    axes.legend(frameon=False)
