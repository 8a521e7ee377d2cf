"""Run every example and draw what it is about: `python docs/make_gallery.py [FOLDER]` makes the gallery's pictures."""

from __future__ import annotations

import io
import re
import runpy
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from make_figures import plt, save, show
from PIL import Image
from torch import Tensor

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
Names = dict[str, Any]
"""What an example leaves behind: its variables, and `printed`."""


def run(script: Path) -> Names:
    out = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(out):
        sys.argv = [str(script), folder]
        names = runpy.run_path(str(script), run_name="__main__")
    return {**names, "printed": out.getvalue()}


def curves(path: Path, lines: Mapping[str, tuple[list[float], list[float]]], across: str, up: str, log: bool) -> None:
    figure, axis = plt.subplots(figsize=(6, 2.6))
    for name, (x, y) in lines.items():
        axis.plot(x, y, marker="o" if len(x) < 10 else None, label=name, linewidth=1.4)
    axis.set(xlabel=across, ylabel=up, yscale="log" if log else "linear")
    axis.grid(alpha=0.3)
    if len(lines) > 1:
        axis.legend(fontsize=8)
    save(figure, path)
    with Image.open(path) as picture:
        few = picture.convert("RGB").quantize(64)
    few.save(path, optimize=True)


def reconstruct_a_file(n: Names, path: Path) -> None:
    y, x, truth = n["scene"].measurement[0], n["solution"].x[0], n["scene"].truth[0]
    show(path, [("snapshot", y / y.max()), *((f"frame {k + 1}", x[k]) for k in (0, 3, 7)), ("truth of 8", truth[7])], 5)


def your_own_denoiser(n: Names, path: Path) -> None:
    found = {"box blur": n["box"], "Smooth": n["smooth"], "space-time TV": n["tv"], "Smooth, then TV": n["both"]}
    with torch.no_grad():
        frames = [(name, n["gap"](n["y"], n["phi"], d, n["sigmas"]).x[4]) for name, d in found.items()]
    show(path, [*frames, ("truth", n["truth"][4])], 5)


def compare_algorithms(n: Names, path: Path) -> None:
    lines = {}
    for name, solve in n["algorithms"].items():
        values: list[float] = []
        solve(lambda k, x, change, values=values: values.append(n["objective"](x)))
        lines[name] = (list(range(1, len(values) + 1)), values)
    least = min(min(y) for _, y in lines.values())
    above = {name: (x, [value - least + 1e-7 for value in y]) for name, (x, y) in lines.items()}
    curves(path, above, "iteration", "objective − least", log=True)


def real_camera_masks(n: Names, path: Path) -> None:
    scenes = n["cameras"].items()
    masks = [(name, scene.masks[0] / scene.masks.max()) for name, scene in scenes]
    frames = [("reconstructed", n["reconstruct"](s.measurement, s.masks).x[0, 4]) for _, s in scenes]
    show(path, [*masks, *frames], 6)


def an_equation_a_line(n: Names, path: Path) -> None:
    frames = {"snapshot": n["y"] / n["y"].max(), "Φ⁺y": (n["m"] * n["inverse"] * n["y"])[4], "by hand": n["v"][4]}
    show(path, [*frames.items(), ("by the library", n["solution"].x[4]), ("truth", n["truth"][4])], 5)


def train_an_equilibrium(n: Names, path: Path) -> None:
    found = re.findall(r"step\s+(\d+): .*PSNR ([\d.]+) dB", n["printed"])
    line = ([float(step) for step, _ in found], [float(quality) for _, quality in found])
    curves(path, {"unseen clip": line}, "training step", "PSNR (dB)", log=False)


def certificate(n: Names, path: Path) -> None:
    lines = {}
    for name, masks in n["attacks"].items():
        phi = n["Snapshot"](masks)
        f, x = n["model"].bind(100 * torch.randn(1, 32, 32), phi), torch.randn(1, 4, 32, 32)
        with torch.no_grad():
            points: list[Tensor] = [x]
            for _ in range(40):
                points.append(f((points[-1],))[0])
        sizes = [float((late - early).norm()) for early, late in pairwise(points)]
        lines[name] = (list(range(1, 41)), sizes)
    curves(path, lines, "iteration", "‖f(x) − x‖", log=True)


def plugin(n: Names, path: Path) -> None:
    scene, model = n["scene"], n["model"]
    with torch.no_grad():
        trained = model(scene.measurement, n["phi"]).x[0, 4]
    prior = n["unsnap"].reconstruct(scene.measurement, scene.masks, "gap-median").x[0, 4]
    y = scene.measurement[0]
    show(
        path,
        [("snapshot", y / y.max()), ("gap-median", prior), ("my network", trained), ("truth", scene.truth[0, 4])],
        4,
    )


def your_camera(n: Names, path: Path) -> None:
    found = re.findall(r"^(\S.*?)\s+PSNR\s+([\d.]+) dB", n["printed"], re.MULTILINE)
    figure, axis = plt.subplots(figsize=(6, 2.4))
    bars = axis.barh([name for name, _ in found], [float(quality) for _, quality in found], color="#3f51b5")
    axis.bar_label(bars, fmt="%.1f dB", fontsize=8, padding=2)
    axis.invert_yaxis()
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(labelsize=8)
    save(figure, path)


DRAW: dict[str, Callable[[Names, Path], None]] = {
    "01": reconstruct_a_file,
    "02": your_own_denoiser,
    "03": compare_algorithms,
    "04": real_camera_masks,
    "05": an_equation_a_line,
    "06": train_an_equilibrium,
    "07": certificate,
    "08": plugin,
    "09": your_camera,
}


def main(folder: Path) -> None:
    for script in sorted(EXAMPLES.glob("[0-9]*.py")):
        number = script.name[:2]
        torch.manual_seed(0)
        DRAW[number](run(script), folder / f"gallery-{number}.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "img")
