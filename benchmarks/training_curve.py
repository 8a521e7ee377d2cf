"""The learning curve of a model, from the logs of its runs one after the other.

python benchmarks/training_curve.py training/de-gap.jsonl -o docs/img/de-gap-training.png
python benchmarks/training_curve.py RUN1/log.jsonl RUN2/log.jsonl --join training/de-gap.jsonl   # first write one log
"""

from __future__ import annotations

import argparse
import itertools
import json
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

CURVES = {
    "psnr_fixed": "at rest, from the model's start (unfolded: its last stage)",
    "psnr_other": "40 evaluations from least squares",
    "psnr_20": "20 plain iterations",
    "psnr_5": "5 plain iterations",
    "psnr_start": "the start",
}


def joined(paths: list[Path]) -> list[dict[str, Any]]:
    """The lines of all logs, in order; the hours of a run that begins anew are added to those before it."""
    lines: list[dict[str, Any]] = []
    before = spent = 0.0
    for path in paths:
        for text in path.read_text().splitlines():
            line = json.loads(text)
            if before + line["cpu_hours"] < spent:
                before = spent
            spent = before + line["cpu_hours"]
            lines.append({**line, "cpu_hours": round(spent, 5), "run": line.get("run", path.parent.name)})
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("logs", type=Path, nargs="+")
    parser.add_argument("--join", type=Path, help="write the joined log here")
    parser.add_argument("-o", "--output", type=Path, help="draw the curve here")
    options = parser.parse_args()
    lines = joined(options.logs)
    if options.join:
        options.join.write_text("".join(json.dumps(line) + "\n" for line in lines))
    if options.output:
        draw(lines, options.output)
    best = max(lines, key=lambda line: line["psnr_fixed"])
    summary = f"best {best['psnr_fixed']:.2f} dB ({best['run']})"
    print(f"{len(lines)} validations in {lines[-1]['cpu_hours']:.2f} CPU-hours; {summary}")


def draw(lines: list[dict[str, Any]], path: Path) -> None:
    figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
    hours = [line["cpu_hours"] for line in lines]
    for key, label in CURVES.items():
        if all(key in line for line in lines):  # an unfolded model has an end and a start
            axes.plot(hours, [line[key] for line in lines], marker=".", label=label)
    for one, two in itertools.pairwise(lines):
        if one["run"] != two["run"]:
            axes.axvline((one["cpu_hours"] + two["cpu_hours"]) / 2, color="0.8", lw=1, zorder=0)
    axes.set(xlabel="CPU-hours", ylabel="validation PSNR, dB")
    axes.legend(fontsize=8)
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
