"""The cache of compiled kernels is a convenience: it must not stop a reconstruction, nor change its result."""

from __future__ import annotations

import importlib.util
import multiprocessing
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from numba.core.caching import CacheImpl, IndexDataCacheFile

from disk import largest_file
from unsnap.kernels import compiled

KERNEL = "from unsnap.kernels.compiled import compiled\n\n\n@compiled\ndef {}(x):\n    return x + 1\n"
forking = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


def load(path: Path) -> Any:
    """The kernel of this file, as a new process finds it."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[path.stem] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.plus_one


def hits(kernel: Any) -> int:
    return sum(kernel.stats.cache_hits.values())


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "shared.py"
    path.write_text(KERNEL.format("plus_one"))
    yield path
    sys.modules.pop(path.stem, None)


def meanwhile(shared: Path, owner: type, method: str, call: Callable[[], object]) -> None:
    """Call while another process stands before this method; it goes on when the call waits for it, or is done."""
    fork, waits = multiprocessing.get_context("fork"), threading.Event()
    here, there = fork.Pipe()
    then = getattr(owner, method)

    def pause(*given: Any) -> Any:
        setattr(owner, method, then)
        there.send("here")
        there.recv()
        return then(*given)

    def compile_it_too() -> None:
        setattr(owner, method, pause)
        load(shared)(2)

    def sleep(seconds: float) -> None:
        waits.set()
        time.sleep(seconds)

    other = fork.Process(target=compile_it_too, daemon=True)
    other.start()
    assert here.poll(600)
    with patch.object(compiled, "sleep", sleep), ThreadPoolExecutor(1) as pool:
        called = pool.submit(call)
        called.add_done_callback(lambda _: waits.set())
        assert waits.wait(600)
        here.send("go on")
        called.result()
    other.join(600)
    assert other.exitcode == 0


@forking
def test_what_another_process_compiles_is_awaited_and_used(shared: Path) -> None:
    kernel = load(shared)
    meanwhile(shared, compiled._Cache, "save_overload", lambda: kernel(5))
    assert hits(kernel) == 1
    assert kernel(5) == 6


@forking
def test_two_processes_keep_what_both_compiled(shared: Path) -> None:
    kernel = load(shared)
    meanwhile(shared, IndexDataCacheFile, "_save_index", lambda: kernel(np.float32(5)))
    assert hits(kernel) == 0  # of another type
    again = load(shared)
    assert (again(5), again(np.float32(5.5))) == (6, 6.5)
    assert hits(again) == 2


def test_nobody_waits_for_ever(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "PATIENCE", 0.1)
    monkeypatch.setattr(compiled, "_lock", lambda *given, **how: False)  # another process has it, always
    kernel = load(shared)
    assert kernel(5) == 6


def test_nobody_waits_where_no_lock_can_be_made(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: object) -> int:
        raise PermissionError(13, "somebody else's file")

    monkeypatch.setattr(compiled, "_open", refuse)
    monkeypatch.setattr(compiled, "sleep", lambda seconds: pytest.fail("it waits"))
    assert load(shared)(5) == 6


@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
@pytest.mark.parametrize("left", [0, 40])
def test_a_damaged_cache_is_made_again(shared: Path, suffix: str, left: int) -> None:
    assert load(shared)(5) == 6
    (damaged,) = shared.parent.rglob(f"*{suffix}")
    damaged.write_bytes(damaged.read_bytes()[:left])
    for kept in (0, 1):
        kernel = load(shared)
        assert kernel(5) == 6
        assert hits(kernel) == kept


def test_a_change_of_any_kernel_makes_all_anew(shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They call one another, and numba looks at the file of the caller only."""
    room = tmp_path / "kernels"
    shutil.copytree(Path(compiled.__file__).parent, room, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(compiled, "__file__", str(room / "compiled.py"))
    for change, kept in (("", 0), ("", 1), ("# changed", 0)):
        with (room / "eigen.py").open("a") as file:
            file.write(change)
        compiled._sources.cache_clear()
        kernel = load(shared)
        assert kernel(5) == 6
        assert hits(kernel) == kept
    compiled._sources.cache_clear()


def test_a_kernel_compiles_on_a_full_disk_and_is_kept_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "fresh_kernel.py").write_text(KERNEL.format("plus_one"))
    from fresh_kernel import plus_one  # type: ignore[import-not-found]

    with largest_file(10):
        assert plus_one(np.float32(2)) == 3
    assert not list(tmp_path.rglob("*.nbc"))
    assert plus_one(2) == 3  # another type, so another compilation
    assert list(tmp_path.rglob("*.nbc"))


def test_kernels_import_where_nothing_can_be_written(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a package installed by root, used by someone without a home."""
    monkeypatch.setattr(CacheImpl, "_locator_classes", [])
    assert load(shared)(5) == 6
    assert not list(shared.parent.rglob("*.nb?"))
