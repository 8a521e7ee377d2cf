"""One process or many (torchrun): every process draws the same batch, works on its rows, and shares what it learned."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, distributed, nn

from unsnap.errors import InputError
from unsnap.io import write_text


@dataclass(frozen=True)
class World:
    """Who we are among how many, and where our tensors live."""

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def first(self) -> bool:
        return self.rank == 0

    def rows(self, count: int) -> slice:
        """Our share of a batch; all shares are equal, so that the mean of means is the mean."""
        if count % self.size:
            raise ValueError(f"a batch of {count} cannot be shared equally by {self.size} processes")
        share = count // self.size
        return slice(self.rank * share, (self.rank + 1) * share)

    def average(self, parameters: Sequence[nn.Parameter], loss: Tensor) -> Tensor:
        """Average the gradients in place over all processes, and the loss.

        A process that skipped its backward pass contributes zeros; its loss, which is not finite, tells the others.
        """
        if self.size == 1:
            return loss
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        flat = torch.cat([*[g.reshape(-1) for g in gradients], loss.reshape(1)])
        distributed.all_reduce(flat)
        flat /= self.size
        parts = torch.split(flat[:-1], [g.numel() for g in gradients])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.reshape(gradient.shape))
        return flat[-1]

    def gather(self, rows: Tensor) -> Tensor:
        """Our rows and everyone else's, in order."""
        if self.size == 1:
            return rows
        rows = rows.contiguous()
        parts = [torch.empty_like(rows) for _ in range(self.size)]
        distributed.all_gather(parts, rows)
        return torch.cat(parts)

    def agree(self, value: float) -> float:
        """The first process's value."""
        if self.size == 1:
            return value
        shared = torch.tensor([value], dtype=torch.float64, device=self.device)
        distributed.broadcast(shared, 0)
        return float(shared)


def join(device: str | torch.device = "cpu") -> World:
    """Join the processes that torchrun has started, if any; each takes a GPU of its own where there are GPUs."""
    place, size = torch.device(device), int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        return World(device=place)
    if str(place) == "cuda":
        place = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(place)
    if not distributed.is_initialized():
        distributed.init_process_group("nccl" if place.type == "cuda" else "gloo")
    return World(distributed.get_rank(), size, place)


def leave() -> None:
    """Part from the other processes, if there are any."""
    if distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()


_MARK = ".unsnap-elastic"


@contextmanager
def elastic(folder: Path, save: Callable[[], None], first: bool) -> Iterator[Callable[[], None]]:
    """Around a run under `torchrun --max-restarts N`: whoever is started again finds a mark and a checkpoint.

    Yields what to call when the run is over.
    """
    mark = folder / _MARK
    if first and int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0")) > 0:
        save()
        write_text(mark, os.environ.get("TORCHELASTIC_RUN_ID", ""))
    try:
        yield lambda: mark.unlink(missing_ok=True)
    except InputError:  # would come again
        mark.unlink(missing_ok=True)
        raise


def restarted(folder: Path) -> bool:
    """Has torchrun started us again, to go on with what is in the folder?"""
    again = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0
    try:
        return again and (folder / _MARK).read_text(encoding="utf-8") == os.environ.get("TORCHELASTIC_RUN_ID", "")
    except OSError:
        return False
