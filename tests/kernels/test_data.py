"""The data kernels against numpy written out, for shared and per-sample masks."""

from __future__ import annotations

import numpy as np
import pytest

from unsnap.kernels import data

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (2, 3, 4, 5), (1, 8, 3, 17)])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_forward_and_step(shape: tuple[int, int, int, int], shared: bool, dtype: type) -> None:
    n, t, h, w = shape
    x, y = RNG.random(shape).astype(dtype), RNG.random((n, h, w)).astype(dtype)
    masks = RNG.standard_normal((1 if shared else n, t, h, w)).astype(dtype)
    gain = RNG.random((len(masks), h, w)).astype(dtype)
    forward = (masks.astype(float) * x).sum(1)
    tol = 1e-12 if dtype == np.float64 else 1e-4
    np.testing.assert_allclose(data.forward(x, masks), forward, rtol=tol, atol=tol)
    np.testing.assert_allclose(
        data.step(x, y, masks, gain), x + masks * (gain * (y - forward))[:, None], rtol=tol, atol=tol
    )
    assert data.forward(x, masks).dtype == data.step(x, y, masks, gain).dtype == dtype


@pytest.mark.parametrize("size", [1, 1023, 1024, 1025, 5000])
def test_change_sums_in_blocks(size: int) -> None:
    new, old = (RNG.random((2, size)).astype(np.float32) for _ in range(2))
    expected = np.stack([((new - old).astype(float) ** 2).sum(1), (new.astype(float) ** 2).sum(1)], 1)
    np.testing.assert_allclose(data.change(new, old), expected, rtol=1e-5)


def test_change_does_not_lose_small_terms_in_a_large_sum() -> None:
    """Ten million equal float32 terms: a single-precision sum would be off by percents."""
    new = np.full((1, 10_000_000), 0.1, np.float32)
    (_, size), exact = data.change(new, new)[0], 1e7 * float(np.float32(0.1)) ** 2
    assert abs(size / exact - 1) < 1e-6


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_divergence_stays_visible(bad: float) -> None:
    x, masks = np.ones((1, 2, 3, 3)), np.ones((1, 2, 3, 3))
    x[0, 1, 2, 2] = bad
    assert not np.isfinite(data.forward(x, masks)[0, 2, 2])
    assert np.isfinite(data.forward(x, masks)[0, :2]).all()
    assert not np.isfinite(data.change(x, masks)).any()
