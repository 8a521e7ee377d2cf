"""One thread per process: small tensors gain nothing from more, and a busy machine or `pytest -n` loses much.

Tests that take many seconds come first, so that none of them is left to one process at the end.

Signals as in a terminal: tests send some to themselves and to commands, which would ignore them after `nohup` or `&`.
"""

from __future__ import annotations

import gc
import signal

import pytest
import torch

torch.set_num_threads(1)
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGTERM, signal.SIG_DFL)
if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

LONG = (
    "tests/hostile/",
    "tests/studio/test_browser.py",
    "tests/campaign/test_real_processes.py",
    "tests/training/test_processes.py",
    "tests/training/test_families.py",
    "tests/test_examples.py",
    "tests/test_docs.py",
    "tests/cookbook/",
    "tests/models/test_export.py",
)


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: no need to look through it for garbage again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.nodeid.startswith(LONG))
