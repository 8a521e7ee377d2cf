"""Threads share out the work without changing the result."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Iterator
from functools import partial

import pytest
import torch

from laws import uniform
from unsnap.algorithms.gap import GAPState
from unsnap.algorithms.iterate import relative_change
from unsnap.algorithms.noisy_gap import noisy_gap_step, size
from unsnap.kernels import threads
from unsnap.operators import Snapshot
from unsnap.priors import TV


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Four threads for any amount of work."""
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    monkeypatch.setattr(threads, "SMALL", 1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("length", [1, 2, 7, 100])
@pytest.mark.parametrize("count", [0, 1, 3, 8, 1000])
def test_bands_cover_the_range_once(length: int, count: int) -> None:
    pieces = threads.bands(length, count)
    assert [i for first, stop in pieces for i in range(first, stop)] == list(range(length))
    sizes = [stop - first for first, stop in pieces]
    assert len(pieces) == max(1, min(count, length))
    assert max(sizes) - min(sizes) <= 1


def test_small_work_stays_on_one_thread(many: None) -> None:
    assert threads.worker_count(0) == 1
    assert threads.worker_count(3) == 3
    assert threads.worker_count(10**9) == 4


@pytest.mark.parametrize("workers", [1, 3])
def test_all_tasks_run(workers: int) -> None:
    done: list[int] = []
    threads.run([partial(done.append, n) for n in range(20)], workers)
    assert sorted(done) == list(range(20))


@pytest.mark.parametrize("workers", [1, 3])
def test_an_exception_in_a_task_is_raised(workers: int) -> None:
    def fail() -> None:
        raise ZeroDivisionError("in a worker")

    with pytest.raises(ZeroDivisionError, match="in a worker"):
        threads.run([fail, lambda: None], workers)


def test_pools_do_not_nest(many: None) -> None:
    counts: list[int] = []
    names: list[str] = []

    def task() -> None:
        counts.append(threads.worker_count(10**9))
        names.append(threading.current_thread().name)

    threads.run([task, task], 2)
    assert counts == [1, 1]
    assert all(name.startswith("unsnap-kernel") for name in names)


SHAPES = [(1, 2, 97, 5), (1, 1, 301, 3), (3, 4, 9, 7), (1, 3, 2, 40), (7, 1, 1, 1)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("iterations", [1, 5, 60])
@pytest.mark.parametrize("prior", [TV(), TV(temporal=0.5, isotropic=False)], ids=["2d", "3d"])
def test_tv_does_not_depend_on_threads(
    request: pytest.FixtureRequest, shape: tuple[int, ...], iterations: int, prior: TV
) -> None:
    x = uniform(*shape)
    prior = TV(temporal=prior.temporal, isotropic=prior.isotropic, iterations=iterations)
    alone = prior(x, 0.2)
    request.getfixturevalue("many")
    assert torch.equal(prior(x, 0.2), alone)


@pytest.mark.parametrize("shape", SHAPES)
def test_data_steps_do_not_depend_on_threads(request: pytest.FixtureRequest, shape: tuple[int, ...]) -> None:
    x, z = uniform(*shape), uniform(*shape, seed=1)
    y = uniform(shape[0], *shape[2:], seed=2)
    for masks in (uniform(*shape[1:], seed=3), uniform(*shape, seed=3)):
        phi = Snapshot(masks)

        def results(phi: Snapshot = phi) -> list[torch.Tensor]:
            return [phi.A(x), phi.prox_l2(x, y, 0.3), *phi.project_carried(x, y, y), relative_change(x, z)]

        alone = results()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(threads, "SMALL", 1)
            patch.setattr(torch, "get_num_threads", lambda: 4)
            shared = results()
        assert all(torch.equal(a, b) for a, b in zip(alone, shared, strict=True))


def test_means_of_pictures_do_not_depend_on_threads() -> None:
    """torch shares out the mean of a picture of more than 32,768 pixels, and then one in four has another last bit."""
    before = torch.get_num_threads()
    try:
        for seed in range(16):
            phi, y = Snapshot(uniform(2, 182, 182, seed=seed).float()), uniform(182, 182, seed=seed + 40).float()
            found = []
            for count in (1, 3):
                torch.set_num_threads(count)
                state = noisy_gap_step(GAPState(phi.masks, 0 * y), y, phi, lambda x, sigma: x, 0.1, y)
                found.append((phi.contrast(), size(y, phi), state.carried))
            assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
    finally:
        torch.set_num_threads(before)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_makes_its_own_pool() -> None:
    """Threads do not survive a fork; a child that waited for its parent's would wait for ever."""
    done: list[int] = []
    tasks = [lambda: done.append(1)] * 4
    threads.run(tasks, 2)

    def again() -> None:
        threads.run(tasks, 2)
        os._exit(len(done))

    child = multiprocessing.get_context("fork").Process(target=again)
    child.start()
    child.join(60)
    child.kill()
    child.join()
    assert child.exitcode == 8
