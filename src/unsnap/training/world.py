"""One process or many (torchrun): every process draws the same batch, works on its rows, and shares what it learned."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

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
        backend = "nccl" if place.type == "cuda" else "gloo"
        if _restarts():
            store, rank, size = next(rendezvous("env://"))
            distributed.init_process_group(backend, store=_meeting(store, rank, size), rank=rank, world_size=size)
        else:
            distributed.init_process_group(backend)
    return World(distributed.get_rank(), size, place)


def _meeting(store: Any, rank: int, size: int) -> Any:
    """A part of the store for those who were started together, and for nobody who was started before.

    torch names that part after the number of restarts, which each node counts for itself: after a failure of one node
    the processes of the others would wait for it elsewhere, for ever. Here the first process draws a name and hands it
    to everyone who greets it with a number of his own.
    """
    store = getattr(store, "underlying_store", store)
    if rank > 0:
        own = secrets.token_hex(8)
        store.set(f"unsnap/hello/{rank}", own)
        name = store.get(f"unsnap/reply/{own}").decode()
        store.set(f"unsnap/{name}/{rank}", "here")
        return PrefixStore(name, store)
    name, absent = secrets.token_hex(8), set(range(1, size))
    while absent:  # a greeting may be one of a process that has died: the next of the same rank replaces it
        for other in sorted(absent):
            if store.check([f"unsnap/hello/{other}"]):
                store.set(f"unsnap/reply/{store.get(f'unsnap/hello/{other}').decode()}", name)
        absent = {other for other in absent if not store.check([f"unsnap/{name}/{other}"])}
        time.sleep(0.02)
    return PrefixStore(name, store)


def leave() -> None:
    """Part from the other processes, if there are any."""
    if distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()


_MARK = ".unsnap-elastic"


def _restarts() -> bool:
    """Would torchrun start us again?"""
    return int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0")) > 0


@contextmanager
def elastic(folder: Path, save: Callable[[], None], first: bool) -> Iterator[Callable[[], None]]:
    """Around a run under `torchrun --max-restarts N`: whoever is started again finds a mark and a checkpoint.

    Yields what to call when the run is over.
    """
    mark = folder / _MARK
    if first and _restarts():
        save()
        write_text(mark, os.environ.get("TORCHELASTIC_RUN_ID", ""))
    try:
        yield lambda: mark.unlink(missing_ok=True)
    except InputError:  # would come again
        mark.unlink(missing_ok=True)
        raise


def restarted(folder: Path, device: str | torch.device) -> bool:
    """Has torchrun started us again, to go on with what is in the folder? Each node counts its own failures only."""
    if not _restarts():
        return False
    world = join(device)
    count = torch.tensor([int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))], device=world.device)
    if world.size > 1:
        distributed.all_reduce(count, distributed.ReduceOp.MAX)
    try:
        mark = (folder / _MARK).read_text(encoding="utf-8")
    except OSError:
        return False
    return bool(count > 0) and mark == os.environ.get("TORCHELASTIC_RUN_ID", "")
