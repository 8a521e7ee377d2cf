"""Compiled kernels: found again by the next process, and right when there are more iterations than rows."""

from __future__ import annotations

import numpy as np
import pytest
from numba.core.dispatcher import Dispatcher

from unsnap.kernels import data, tv

KERNELS = [f for module in (data, tv) for f in vars(module).values() if isinstance(f, Dispatcher)]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.__name__)
def test_compiled_kernels_can_be_found_again(kernel: Dispatcher) -> None:
    """numba's cache key holds a function's closure; one with compiled functions in it differs in every process."""
    assert kernel.py_func.__closure__ is None
    assert kernel.stats.cache_path is not None


@pytest.mark.parametrize("iterations", [1, 3, 50])
@pytest.mark.parametrize("shape", [(2, 3, 1), (1, 1, 4), (3, 2, 2)])
def test_more_iterations_than_rows(shape: tuple[int, int, int], iterations: int) -> None:
    """The ring of dual rows wraps around; the mean is kept only if nothing was lost or counted twice."""
    x = np.random.default_rng(0).random((2, *shape))
    for temporal in (0.0, 0.5):
        out = tv.denoise(x, 0.3, iterations, temporal=temporal, isotropic=False, smoothing=0.0)
        np.testing.assert_allclose(out.mean((1, 2, 3)), x.mean((1, 2, 3)), rtol=1e-12)
        assert (out.std((1, 2, 3)) < x.std((1, 2, 3))).all()
