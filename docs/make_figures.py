"""Make every picture of the cookbook from the built-in scene: `python docs/make_figures.py [FOLDER]`."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import avg_pool2d

from unsnap import GAP, TV, Equilibrium, Snapshot, Solution, Wavelet, admm, fista, gap, pgd, psnr, reconstruct
from unsnap.algorithms.schedules import geometric
from unsnap.fixed_point import anderson, broyden, picard
from unsnap.fixed_point.solver import Solver
from unsnap.masks import bernoulli, gray
from unsnap.networks import Certified
from unsnap.simulate import render

mpl.use("Agg")
from matplotlib import pyplot as plt

SIZE, FRAMES, SEED = 128, 8, 0
RESIDUAL = "residual ‖f(x) − x‖ / ‖f(x)‖"
SOLVERS: dict[str, Solver] = {
    "Picard": picard(),
    "Anderson": anderson(),
    "safeguarded Anderson": anderson(safeguard=0.9),
    "Broyden": broyden(),
}


def snap(size: int = SIZE) -> tuple[Tensor, Tensor, Tensor]:
    """The scene of all figures: truth and 0/1 masks (T, H, W), and the snapshot (H, W)."""
    truth = render(FRAMES, size, size, seed=SEED)
    masks = bernoulli(FRAMES, size, size, generator=torch.Generator().manual_seed(SEED))
    return truth, masks, (masks * truth).sum(0)


def show(path: Path, pictures: Sequence[tuple[str, Tensor]], columns: int) -> None:
    """Grey pictures in rows, each with its caption."""
    rows = -(-len(pictures) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(1.75 * columns, 1.95 * rows), squeeze=False)
    for axis in axes.flat:
        axis.axis("off")
    for axis, (caption, picture) in zip(axes.flat, pictures, strict=False):
        axis.imshow(picture, cmap="gray", vmin=0, vmax=max(1.0, float(picture.max())), interpolation="nearest")
        axis.set_title(caption, fontsize=8)
    save(figure, path)
    with Image.open(path) as picture:
        grey = picture.convert("L")
    grey.save(path, optimize=True)


def plot(
    path: Path, curves: dict[str, Sequence[float]], ylabel: str, *, xlabel: str = "iteration", log: bool = False
) -> None:
    """One line per name, from iteration 1."""
    figure, axis = plt.subplots(figsize=(6, 3.2))
    for name, values in curves.items():
        axis.plot(range(1, len(values) + 1), values, label=name, linewidth=1.4)
    axis.set_xlabel(xlabel)
    axis.set_ylabel(ylabel)
    axis.set_yscale("log" if log else "linear")
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8)
    save(figure, path)


def save(figure: Any, path: Path) -> None:
    figure.tight_layout(pad=0.4)
    figure.savefig(path, dpi=100, bbox_inches="tight", metadata={"Software": None})
    plt.close(figure)


def overview(folder: Path) -> None:
    truth, masks, y = snap()
    video = reconstruct(y, masks).x.clamp(0, 1)
    chosen = (0, 3, 7)
    found = [("the snapshot", y), *((f"frame {t + 1}, reconstructed", video[t]) for t in chosen)]
    true = [("one of the masks", masks[0]), *((f"frame {t + 1}, true", truth[t]) for t in chosen)]
    show(folder / "overview.png", [*found, *true], columns=4)


def forward_model(folder: Path) -> None:
    truth, masks, y = snap()
    pictures = [
        ("frame $x_1$", truth[0]),
        ("mask $m_1$", masks[0]),
        ("$m_1 \\odot x_1$", masks[0] * truth[0]),
        ("snapshot $y$", y),
        ("$(\\Phi^+ y)_1$", Snapshot(masks).A_dagger(y)[0]),
    ]
    show(folder / "forward-model.png", pictures, columns=5)


def gram(folder: Path) -> None:
    """How the misfit falls when the data step divides by Σm², and by Σm as much public code does."""
    video = render(FRAMES, SIZE, SIZE, seed=SEED)
    curves: dict[str, Sequence[float]] = {}
    for name, high in (("masks 0 to 1", 1.0), ("masks 0 to 3", 3.0)):
        masks = gray(FRAMES, SIZE, SIZE, high=high, generator=torch.Generator().manual_seed(SEED))
        y, energy = (masks * video).sum(0), masks.square().sum(0)
        for divisor, value in (("Σm²", energy), ("Σm", masks.sum(0))):
            curves[f"{name}, divided by {divisor}"] = misfits(y, masks, value)
    plot(folder / "gram.png", curves, "misfit ‖y − Φx‖ / ‖y‖", log=True)


def misfits(y: Tensor, masks: Tensor, divisor: Tensor, steps: int = 15) -> list[float]:
    x, found = torch.zeros_like(masks), []
    for _ in range(steps):
        misfit = y - (masks * x).sum(0)
        x = x + masks * (misfit / divisor)
        found.append(float((y - (masks * x).sum(0)).norm() / y.norm()))
    return [max(value, 1e-8) for value in found]


def objective(folder: Path) -> None:
    """½‖y − Φx‖² + λ‖Wx‖₁ above its minimum, for the algorithms that minimise it with the exact prox."""
    _, masks, snapshot = snap(size=64)
    phi, y, weight = Snapshot(masks.double()), snapshot.double(), 0.1
    prior = Wavelet("haar", temporal=True, shifts=1)
    alpha, rho = 1 / phi.norm() ** 2, 0.1 * phi.norm() ** 2

    def cost(x: Tensor) -> float:
        return float((y - phi.A(x)).square().sum() / 2 + weight * prior.value(x))

    runs: dict[str, Callable[..., Solution]] = {
        "proximal gradient": lambda n, **w: pgd(y, phi, prior, [alpha * weight] * n, alpha=alpha, **w),
        "FISTA": lambda n, **w: fista(y, phi, prior, [alpha * weight] * n, alpha=alpha, **w),
        "ADMM": lambda n, **w: admm(y, phi, prior, [weight / rho] * n, rho=rho, **w),
    }
    best = min(cost(run(1000, tol=0.0).x) for run in runs.values())
    curves: dict[str, Sequence[float]] = {}
    for name, run in runs.items():
        costs: list[float] = []
        run(150, tol=0.0, callback=lambda _k, x, _change, costs=costs: costs.append(cost(x)))
        curves[name] = [max(c / best - 1, 1e-10) for c in costs]
    plot(folder / "objective.png", curves, "objective above its minimum, relative", log=True)


def history(run: Callable[..., Solution], truth: Tensor) -> list[float]:
    """PSNR after every iteration."""
    found: list[float] = []
    run(early=False, callback=lambda _k, x, _change: found.append(float(psnr(x, truth).mean())))
    return found


def acceleration(folder: Path) -> None:
    truth, masks, y = snap()
    phi, prior = Snapshot(masks), TV(temporal=0.15, isotropic=False, iterations=4)
    curves = {
        "GAP (10)": history(lambda **w: gap(y, phi, prior, [0.1] * 60, accelerate=False, **w), truth),
        "accelerated GAP (11)": history(lambda **w: gap(y, phi, prior, [0.1] * 60, **w), truth),
    }
    plot(folder / "gap.png", curves, "PSNR (dB)")


def schedule(folder: Path) -> None:
    truth, masks, y = snap()
    phi, prior = Snapshot(masks), Wavelet(shifts=2)
    curves = {
        name: history(lambda sigmas=sigmas, **w: gap(y, phi, prior, sigmas, accelerate=False, **w), truth)
        for name, sigmas in (
            ("σ = 0.4 throughout", [0.4] * 40),
            ("σ = 0.03 throughout", [0.03] * 40),
            ("σ from 0.4 down to 0.03", geometric(0.4, 0.03, 40)),
        )
    }
    plot(folder / "schedule.png", curves, "PSNR (dB)")


def priors(folder: Path) -> None:
    clean = render(FRAMES, SIZE, SIZE, seed=SEED)
    noisy = clean + 0.1 * torch.randn(clean.shape, generator=torch.Generator().manual_seed(SEED))
    cleaned = [
        ("TV()", TV(iterations=50)(noisy, 0.1)),
        ("TV(temporal=0.15)", TV(temporal=0.15, iterations=50)(noisy, 0.1)),
        ("Wavelet()", Wavelet()(noisy, 0.2)),
    ]
    pictures = [("clean", clean), ("noisy", noisy), *cleaned]
    show(folder / "priors.png", [(name, x[3].clamp(0, 1)) for name, x in pictures], columns=5)


def overshoot(x: Tensor, sigma: float | Tensor) -> Tensor:
    """Takes away two and a half times what a small blur would: a denoiser whose plain iteration diverges."""
    blurred = avg_pool2d(x, 3, stride=1, padding=1, count_include_pad=False)
    return 0.95 * x - 2.5 * (x - blurred)


def residuals(network: Any, names: Sequence[str], n: int) -> dict[str, Sequence[float]]:
    """Relative residual at every evaluation of DE-GAP with this network, by solver."""
    _, masks, y = snap(size=64)
    phi, curves = Snapshot(masks), {}
    for name in names:
        model = Equilibrium(GAP(), network, solver=SOLVERS[name])
        with torch.no_grad():
            found = model(y[None], phi, tol=1e-6, max_iter=n).residual[:, 0]
        curves[name] = [value for value in found.tolist() if math.isfinite(value)]
    return curves


def solvers(folder: Path) -> None:
    plot(folder / "solvers.png", residuals(overshoot, list(SOLVERS), 60), RESIDUAL, xlabel="evaluation", log=True)


def certified(folder: Path) -> None:
    torch.manual_seed(SEED)
    curves = residuals(Certified(blocks=3, channels=16, hidden=16), list(SOLVERS)[:3], 120)
    plot(folder / "certified.png", curves, RESIDUAL, xlabel="evaluation", log=True)


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "img"
    folder.mkdir(parents=True, exist_ok=True)
    for make in (overview, forward_model, gram, objective, acceleration, schedule, priors, solvers, certified):
        make(folder)


if __name__ == "__main__":
    main()
