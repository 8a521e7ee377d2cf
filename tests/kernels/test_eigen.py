"""The eigenvectors of many small matrices at once are LAPACK's."""

from __future__ import annotations

import numpy as np
import pytest

from unsnap.kernels.eigen import leading

RANDOM = np.random.default_rng(0)


def hard_cases(m: int) -> np.ndarray:
    """Symmetric, trace 1: full rank, low rank, multiple eigenvalues, nothing, and one already tridiagonal."""
    tall = RANDOM.standard_normal((6, m, 2 * m))
    tall[1] = tall[1, :, :1]
    tall[2, :, 3:] = 0
    tall[3] = 0
    tall[4] = np.eye(m, 2 * m)
    tall[5, :, :m] = np.diag(np.repeat([3.0, 1.0], [m // 2, m - m // 2]))
    tall[5, :, m:] = 0
    ladder = 2 * np.eye(m) + np.eye(m, k=1) + np.eye(m, k=-1)
    square = np.concatenate([tall @ tall.transpose(0, 2, 1), ladder[None]])
    trace = np.trace(square, axis1=1, axis2=2)
    return square / np.where(trace > 0, trace, 1)[:, None, None]


@pytest.mark.parametrize("m", [1, 2, 3, 16, 36])
def test_equals_lapack(m: int) -> None:
    """In single precision, the only one that patches are shrunk in."""
    dtype, tol = np.float32, 2e-6
    matrices = hard_cases(m).astype(dtype)
    least = np.full(len(matrices), 0.3 / m, dtype)
    values, vectors = np.empty((m, len(matrices)), dtype), np.empty((m, m, len(matrices)), dtype)
    counts = leading(np.ascontiguousarray(matrices.transpose(1, 2, 0)), least, values, vectors)
    for lane, matrix in enumerate(matrices.astype(float)):
        w, v = np.linalg.eigh(matrix)
        above = w > least[lane]
        assert counts[lane] == above.sum()
        found, u = values[: above.sum(), lane], vectors[: above.sum(), :, lane]
        np.testing.assert_allclose(found, w[above][::-1], atol=tol)
        np.testing.assert_allclose(u @ u.T, np.eye(len(u)), atol=100 * tol)
        np.testing.assert_allclose((u.T * found) @ u, (v[:, above] * w[above]) @ v[:, above].T, atol=10 * tol)


def test_not_a_number_ends() -> None:
    matrices, values, vectors = (np.full(shape, np.nan, np.float32) for shape in ((9, 9, 2), (9, 2), (9, 9, 2)))
    counts = leading(matrices, np.full(2, 0.1, np.float32), values, vectors)
    assert (counts == 0).all()
