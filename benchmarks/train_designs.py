"""Which network learns most in the same time: short runs of the trainer, one after the other, at equal minutes.

    python benchmarks/train_designs.py CLIPS VALIDATION [--networks shift,unet,rnn] [--minutes 9] [--json PATH]

Each is put into the recipe that `unsnap train --network NAME` gives it; the score is the best validation PSNR at the
equilibrium (96 x 96 crops). One thread unless --threads says otherwise; leave the machine alone meanwhile.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import torch

from common import console, finish, show
from unsnap.metrics import psnr
from unsnap.models import LowRank
from unsnap.training import Trainer, preset


def learn(network: str, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    config = preset(
        None, network, clips=str(options.clips), validation=str(options.validation), minutes=options.minutes,
        validate_every=250,
    )  # fmt: skip
    trainer = Trainer(config, folder)
    trainer.run()
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    best = max(lines, key=lambda line: line["psnr_fixed"] or 0.0)
    views = trainer.views
    return {
        "network": network,
        "parameters": sum(p.numel() for p in trainer.parameters),
        "steps": trainer.step,
        "start dB": float(psnr(LowRank()(views.y, views.phi), views.truth).mean()),
        "best dB": best["psnr_fixed"],
        "at minute": best["minutes"],
        "last dB": lines[-1]["psnr_fixed"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clips", type=Path)
    parser.add_argument("validation", type=Path)
    parser.add_argument("--networks", default="shift,unet,rnn,certified")
    parser.add_argument("--minutes", type=float, default=9)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for network in options.networks.split(","):
            rows.append(learn(network, Path(folder) / network, options))
            console.print(rows[-1])
    show(f"{options.minutes:g} minutes each", rows, best="best dB")
    finish(options.json, rows)


if __name__ == "__main__":
    main()
