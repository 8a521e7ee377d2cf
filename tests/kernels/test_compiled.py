"""The cache of compiled kernels is a convenience: a full disk must not stop a reconstruction."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from disk import largest_file

KERNEL = "from unsnap.kernels.compiled import compiled\n\n\n@compiled\ndef {}(x):\n    return x + 1\n"


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


def test_kernels_import_where_nothing_can_be_written(tmp_path: Path) -> None:
    """As a package installed by root, used by someone without a home."""
    (tmp_path / "lonely.py").write_text(KERNEL.format("plus_one") + "\n\nprint(plus_one(2))\n")
    nowhere = "import sys, numba.core.caching as c; c.CacheImpl._locator_classes = []"
    code = f"{nowhere}; sys.path.insert(0, {str(tmp_path)!r}); import lonely"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=False)
    assert done.stdout == "3\n", done.stderr
