"""What a run tells people: a line per validation in log.jsonl, and curves and pictures in TensorBoard if asked."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unsnap.errors import InputError
from unsnap.io import write_text
from unsnap.models import Batch, Model

NAME = "log.jsonl"
_LOSS_EVERY = 10


class Log:
    """The log of a run directory, as it was at `step`: what an interrupted run wrote after that is dropped."""

    def __init__(self, folder: Path, step: int, board: Any = None) -> None:
        self.path, self.board = folder / NAME, board
        self.lines = [line for line in _read(self.path) if line["step"] <= step]

    def loss(self, step: int, loss: float, rate: float, skipped: int) -> None:
        if self.board is None or step % _LOSS_EVERY:
            return
        for name, value in {"loss": loss, "rate": rate, "skipped": skipped}.items():
            self.board.add_scalar(f"train/{name}", value, step)

    def validation(self, facts: dict[str, Any], model: Model, views: Batch) -> None:
        """Write the facts (numbers; what is not finite is None)."""
        self.lines = [*[line for line in self.lines if line["step"] < facts["step"]], facts]
        # Rewritten as a whole: a few kilobytes, and a full disk or a kill leaves the old log.
        write_text(self.path, "".join(json.dumps(line, allow_nan=False) + "\n" for line in self.lines))
        if self.board is None:
            return
        for name, value in facts.items():
            if name != "step" and value is not None:
                self.board.add_scalar(f"validation/{name}", value, facts["step"])
        self.board.add_image("validation/picture", picture(model, views), facts["step"], dataformats="HW")
        self.board.flush()

    def close(self) -> None:
        if self.board is not None:
            self.board.close()


@torch.no_grad()
def picture(model: Model, views: Batch) -> Tensor:
    """(rows · H, 2 · W) in [0, 1]: the first frame of up to four clips, beside it what the model makes of them."""
    some = views.select(slice(4))
    x = model(some.y, some.phi).x
    pairs = torch.cat([some.truth[:, 0], x[:, 0]], -1)
    return pairs.reshape(-1, pairs.shape[-1]).clamp(0, 1).nan_to_num().cpu()


def gain_per_hour(lines: list[dict[str, Any]], score: str = "psnr_fixed") -> float | None:
    """What one more hour of processor time would add to the score, if it went on as it did; None if that is unknown.

    A straight line through the score against the logarithm of the CPU-hours, fitted to the later half of the
    validations (three at least), which is how the curves of long runs look. Runs differ from it where stages change.
    """
    points = [(math.log(h), v) for h, v in ((x.get("cpu_hours"), x.get(score)) for x in lines) if h and v is not None]
    points = points[len(points) // 2 if len(points) >= 6 else -3 :]
    if len(points) < 3:
        return None
    times = [t for t, _ in points]
    middle = sum(times) / len(times)
    spread = sum((t - middle) ** 2 for t in times)
    if spread < 1e-6:
        return None
    slope = sum((t - middle) * v for t, v in points) / spread
    return float(slope * math.log1p(1 / math.exp(times[-1])))


def board(folder: Path, step: int) -> Any:
    """TensorBoard's writer for a run that goes on from `step`."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise InputError(
            "--tensorboard needs the package tensorboard, which is not installed; run `pip install 'unsnap[train]'`"
        ) from error
    return SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)


def _read(path: Path) -> list[dict[str, Any]]:
    lines = []
    for text in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []:
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict) and isinstance(line.get("step"), int):
            lines.append(line)
    return lines
