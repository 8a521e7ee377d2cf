"""Snapshots one after the other: from an iterator, or on a cluster; and where the last video is a good start."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from torch import Tensor

from unsnap.algorithms.iterate import Solution
from unsnap.arrays import as_tensor
from unsnap.campaign.task import one_thread
from unsnap.io import load_scene
from unsnap.methods import DEFAULT, Method, as_method, get
from unsnap.models.file import AnyModel
from unsnap.operators import CodedOperator, Snapshot
from unsnap.scene import Scene

AnyMethod = str | Path | Method | AnyModel


def stream(
    snapshots: Iterable[Tensor | NDArray[Any]],
    masks: Tensor | NDArray[Any] | CodedOperator,
    method: AnyMethod = DEFAULT,
    *,
    iterations: int | None = None,
    tol: float | None = None,
    warm: bool | None = None,
) -> Iterator[Tensor]:
    """The video (T, H, W) behind every snapshot (H, W) of a camera, as they come; nothing is read ahead.

    warm: begin with the last video where the method can; by default where `gains` says so. The first video then takes
    all iterations of the method.

    >>> import torch
    >>> from unsnap.masks import bernoulli
    >>> masks = bernoulli(4, 32, 32, generator=torch.Generator().manual_seed(0))
    >>> videos = stream([masks.sum(0) / 2] * 2, masks, "gap-tv3d", iterations=5)
    >>> sum(video.shape == masks.shape for video in videos)
    2
    """
    phi = masks if isinstance(masks, CodedOperator) else Snapshot(as_tensor(masks, "masks"))
    recipe, last = _recipe(method), None
    for snapshot in snapshots:
        start = begin(recipe, phi, last, iterations, warm)
        count = enough(recipe, phi, start, iterations, warm)
        last = recipe(as_tensor(snapshot, "y").to(phi.masks), phi, iterations=count, tol=tol, start=start).x
        yield last


def gains(method: Method, iterations: int | None) -> bool:
    """Does beginning with the last video help? With few iterations: `python benchmarks/live.py --warm`."""
    return method.warm is not None and iterations is not None and iterations < method.iterations


def enough(
    method: Method, phi: CodedOperator, start: Tensor | None, iterations: int | None, warm: bool | None
) -> int | None:
    """Few iterations are for those that begin with the last video: any other has to get there on its own."""
    alone = start is None and type(phi) is Snapshot and warm is not False
    return None if alone and gains(method, iterations) else iterations


def begin(
    method: Method, phi: CodedOperator, last: Tensor | None, iterations: int | None, warm: bool | None
) -> Tensor | None:
    """The last frame of the last video, as a still: the nearest in time to what follows."""
    wanted = gains(method, iterations) if warm is None else warm and method.warm is not None
    if not wanted or last is None or type(phi) is not Snapshot or last.shape[-3:] != phi.video:
        return None
    return last[..., -1:, :, :].expand_as(last)


def map(
    scenes: Iterable[Scene | str | Path],
    method: AnyMethod = DEFAULT,
    client: Any = None,
    *,
    iterations: int | None = None,
    tol: float | None = None,
) -> Iterator[Solution]:
    """The solution of every scene, or scene file, in their order: here, or on the workers of a Dask client.

    Only so many scenes are taken from the iterator as there are threads to work on them, twice. A worker that is lost
    is no matter; one scene that no worker survives is Dask's KilledWorker.

    >>> from distributed import Client                                          # doctest: +SKIP
    >>> for solution in unsnap.map(paths, "gap-tv3d", Client("tcp://scheduler:8786")): ...  # doctest: +SKIP
    """
    if client is None:
        recipe = _recipe(method)
        for scene in scenes:
            yield _solve(scene, recipe, iterations, tol)
        return
    waiting: deque[Any] = deque()
    for scene in scenes:
        waiting.append(client.submit(_on_worker, scene, method, iterations, tol, pure=False))
        while len(waiting) >= max(2, 2 * sum(client.nthreads().values())):
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def _recipe(method: AnyMethod) -> Method:
    chosen = get(method) if isinstance(method, (str, Path)) else method
    return chosen if isinstance(chosen, Method) else as_method(chosen)


def _solve(scene: Scene | str | Path, recipe: Method, iterations: int | None, tol: float | None) -> Solution:
    known = scene if isinstance(scene, Scene) else load_scene(scene)
    return recipe(known.measurement, known.operator, iterations=iterations, tol=tol)


def _on_worker(scene: Scene | str | Path, method: AnyMethod, iterations: int | None, tol: float | None) -> Solution:
    with one_thread():
        return _solve(scene, _recipe(method), iterations, tol)
