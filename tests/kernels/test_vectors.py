"""The solvers' fused passes against numpy written out: any size, batch, dtype and number of threads."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from laws import close, normal
from unsnap.fixed_point import vectors as plain_or_fused
from unsnap.kernels import threads, vectors

RNG = np.random.default_rng(0)
SHAPES = [(3, 1, 1), (1, 2, 2047), (4, 3, 2049), (10, 1, 9000)]
each = pytest.mark.parametrize("shape", SHAPES)


def made(shape: tuple[int, int, int], dtype: type) -> tuple[np.ndarray, ...]:
    columns = RNG.standard_normal(shape).astype(dtype)
    z, g = (RNG.standard_normal(shape[1:]).astype(dtype) for _ in range(2))
    weights, factor = RNG.standard_normal((shape[1], shape[0])).astype(dtype), RNG.random(shape[1]).astype(dtype)
    return columns, z, g, weights, factor


@pytest.fixture(params=[1, 4], ids=["alone", "threads"])
def _workers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "SMALL", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: request.param)


@each
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.usefixtures("_workers")
def test_every_pass_is_its_formula(shape: tuple[int, int, int], dtype: type) -> None:
    columns, z, g, weights, factor = made(shape, dtype)
    tol = {"rtol": 1e-5, "atol": 1e-5} if dtype == np.float32 else {"rtol": 1e-11, "atol": 1e-11}
    out, sums = vectors.residual(g, z)
    np.testing.assert_array_equal(out, g - z)
    np.testing.assert_allclose(sums, np.stack([(out.astype(float) ** 2).sum(1), (g.astype(float) ** 2).sum(1)], 1))
    exact = np.einsum("mbn,vbn->bvm", columns.astype(float), np.stack([z, g]).astype(float))
    np.testing.assert_allclose(vectors.products(columns, z, g), exact, rtol=1e-11, atol=1e-11)
    expected = z + factor[:, None] * g - np.einsum("bm,mbn->bn", weights, columns)
    np.testing.assert_allclose(vectors.combine(z, g, factor, columns, weights), expected, **tol)
    history = np.zeros((2, *z.shape), dtype)
    vectors.differences((z, g), (g, out), 0.3, history[0], history[1])
    np.testing.assert_array_equal(history[1], g - out)
    np.testing.assert_allclose(history[0], z - g + 0.3 * (g - out), **tol)


def test_sums_reach_as_far_as_the_numbers() -> None:
    """The square of 1e-30 is no float32."""
    columns = np.full((1, 1, 5000), 1e-30, np.float32)
    small = float(np.float32(1e-30))
    np.testing.assert_allclose(vectors.products(columns, columns[0], columns[0]), 5000 * small**2, rtol=1e-12)


@each
def test_plain_torch_gives_the_same(shape: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    columns, z, g, weights = (normal(*s, seed=k) for k, s in enumerate((shape, *[shape[1:]] * 2, shape[1::-1])))
    factor = normal(shape[1], seed=5)

    def results() -> list[torch.Tensor]:
        history = torch.zeros_like(columns[:1].repeat(2, 1, 1))
        plain_or_fused.remember_differences((z, g), (g, z), 0.3, history[0], history[1])
        return [
            history,
            *plain_or_fused.residual(g, z),
            *plain_or_fused.products(columns, z, g),
            plain_or_fused.combine(z, g, factor, columns, weights),
        ]

    fused = results()
    monkeypatch.setattr(plain_or_fused, "usable", lambda *tensors: False)
    for a, b in zip(fused, results(), strict=True):
        close(a, b, 1e-11)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_divergence_stays_visible(bad: float) -> None:
    columns, z, g, weights, factor = made((2, 2, 50), np.float32)
    g[0, 7] = bad
    out, sums = vectors.residual(g, z)
    assert not np.isfinite(out[0, 7])
    assert np.isfinite(sums).all(1).tolist() == [False, True]
    assert np.isfinite(vectors.products(columns, z, g)[:, 1]).all(1).tolist() == [False, True]
    assert np.isfinite(vectors.combine(z, g, factor, columns, weights)).all(1).tolist() == [False, True]


def test_long_sums_of_a_half_precision_memory_do_not_overflow() -> None:
    ones = torch.ones(1, 1, 100_000).half()
    for found in plain_or_fused.products(ones, ones[0], ones[0]):
        assert found.tolist() == [[100_000]]
