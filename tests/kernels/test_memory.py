"""Freed memory goes back to the system."""

from __future__ import annotations

import platform
import resource
from pathlib import Path

import numpy as np
import pytest

from unsnap.kernels import memory


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other systems keep memory in other ways")
def test_what_was_freed_between_arrays_that_live_goes_back() -> None:
    arrays = [np.ones(100_000, np.uint8) for _ in range(400)]  # small enough to lie in malloc's heap
    kept = arrays[::8]
    del arrays
    before = resident()
    memory.give_back(memory.MUCH - 1)
    assert abs(before - resident()) < 1e6
    memory.give_back(memory.MUCH)
    assert before - resident() > 25e6
    assert all(int(array.sum()) == 100_000 for array in kept)


def test_nothing_happens_where_malloc_cannot_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda name: object())
    memory._trim.cache_clear()
    try:
        assert memory._trim()(0) == 0
        memory.give_back(memory.MUCH)
    finally:
        memory._trim.cache_clear()
