"""Leading eigenvectors of many small symmetric matrices (a few dozen rows) at once, without a call into LAPACK.

All arrays end in an axis of lanes, one per matrix: every operation is the same for all of them and fills the vector
registers, where a library would work on one matrix at a time. Householder reflections make the matrices tridiagonal,
bisection finds their eigenvalues, inverse iteration the eigenvectors, and the reflections carry them back.
Golub & Van Loan, *Matrix Computations*, 8.3 and 8.4.
On WNNM's groups 2.8, 2.4, 1.8 and 1.8 times faster than batched `torch.linalg.eigh` for 36, 49, 64 and 81 rows, 4.5 to
2.6 times faster than numpy's (`python benchmarks/hand_written.py`): only the eigenvectors that are kept are computed.
"""

from __future__ import annotations

import numpy as np

from unsnap.kernels.compiled import compiled


@compiled
def leading(a, least, values, vectors):  # type: ignore[no-untyped-def]
    """Eigenpairs with eigenvalue > least (L,) of symmetric matrices a (m, m, L) of trace 1, which are destroyed.

    values (m, L) and vectors (m, m, L), first axis over eigenvalues, are filled from the largest down; returned is how
    many there are of each (L,). What lies beyond that number is of no use.
    """
    d, e, beta, w = np.empty_like(values), np.empty_like(values), np.empty_like(values), np.empty_like(values)
    _tridiagonalise(a, d, e, beta, w)
    counts = np.empty_like(least)
    _count_above(d, e, least, counts)
    most = int(counts.max())
    for r in range(most):
        _bisect(d, e, least, r, values)
        _eigenvector(d, e, values[r], vectors, r)
    _reflect_back(a, beta, vectors[:most])
    return counts


@compiled
def _tridiagonalise(a, d, e, beta, w):  # type: ignore[no-untyped-def]
    """Diagonals d and off-diagonals e; reflection k is 1 - beta_k v vᵀ, its v left in a[k, k + 1:]."""
    m, lanes = d.shape
    zero, one = a.dtype.type(0), a.dtype.type(1)
    total = np.empty(lanes, a.dtype)
    for k in range(m - 2):
        total[:] = 0
        for j in range(k + 1, m):
            for i in range(lanes):
                total[i] += a[k, j, i] * a[k, j, i]
        for i in range(lanes):
            norm, first = np.sqrt(total[i]), a[k, k + 1, i]
            d[k, i], e[k, i] = a[k, k, i], -norm if first > 0 else norm
            a[k, k + 1, i] = first - e[k, i]
            size = total[i] + abs(first) * norm
            beta[k, i] = one / size if size > 0 else zero
        _symmetric_update(a, beta, w, total, k)
    for i in range(lanes):
        if m > 1:
            d[m - 2, i], e[m - 2, i] = a[m - 2, m - 2, i], a[m - 2, m - 1, i]
        d[m - 1, i], e[m - 1, i] = a[m - 1, m - 1, i], zero


@compiled
def _symmetric_update(a, beta, w, total, k):  # type: ignore[no-untyped-def]
    """A <- H A H = A - v wᵀ - w vᵀ behind row k, with w = p - (beta/2)(pᵀv) v and p = beta A v."""
    m, lanes = w.shape
    along = np.zeros(lanes, a.dtype)
    for r in range(k + 1, m):
        total[:] = 0
        for j in range(k + 1, m):
            for i in range(lanes):
                total[i] += a[r, j, i] * a[k, j, i]
        for i in range(lanes):
            w[r, i] = beta[k, i] * total[i]
            along[i] += w[r, i] * a[k, r, i]
    for i in range(lanes):
        along[i] *= beta[k, i] / a.dtype.type(2)
    for j in range(k + 1, m):
        for i in range(lanes):
            w[j, i] -= along[i] * a[k, j, i]
    for r in range(k + 1, m):
        for j in range(k + 1, m):
            for i in range(lanes):
                a[r, j, i] -= a[k, r, i] * w[j, i] + w[r, i] * a[k, j, i]


@compiled
def _count_above(d, e, shift, counts):  # type: ignore[no-untyped-def]
    """How many eigenvalues exceed the shift: the positive pivots of T - shift (Sylvester)."""
    m, lanes = d.shape
    zero, one, tiny = d.dtype.type(0), d.dtype.type(1), np.finfo(d.dtype).tiny
    pivots = np.ones(lanes, d.dtype)
    counts[:] = 0
    for j in range(m):
        for i in range(lanes):
            coupling = e[j - 1, i] * e[j - 1, i] if j > 0 else zero
            pivot = d[j, i] - shift[i] - coupling / pivots[i]
            pivot = tiny if abs(pivot) <= tiny else pivot
            pivots[i] = pivot
            counts[i] += one if pivot > 0 else zero


@compiled
def _bisect(d, e, least, r, values):  # type: ignore[no-untyped-def]
    """values[r] <- the eigenvalue that r others exceed, if it is > least."""
    lanes = d.shape[1]
    half, eps = d.dtype.type(0.5), np.finfo(d.dtype).eps
    low, middle, counts = least.copy(), np.empty(lanes, d.dtype), np.empty(lanes, d.dtype)
    high = np.full(lanes, d.dtype.type(1.001)) if r == 0 else values[r - 1].copy()
    width = d.dtype.type(1)
    while width > eps:
        for i in range(lanes):
            middle[i] = half * (low[i] + high[i])
        _count_above(d, e, middle, counts)
        for i in range(lanes):
            above = counts[i] > r
            low[i] = middle[i] if above else low[i]
            high[i] = high[i] if above else middle[i]
        width *= half
    for i in range(lanes):
        values[r, i] = high[i]


@compiled
def _eigenvector(d, e, value, vectors, r):  # type: ignore[no-untyped-def]
    """vectors[r] <- that eigenvector of T, orthogonal to the vectors before it, by inverse iteration."""
    m, lanes = d.shape
    upper = np.empty((3, m, lanes), d.dtype)
    factor, swap = np.empty((m, lanes), d.dtype), np.empty((m, lanes), d.dtype)
    _factorise(d, e, value, upper, factor, swap)
    x = vectors[r]
    noise = r + 1  # starts must differ at random, or multiple eigenvalues would not get independent vectors
    for j in range(m):
        noise = (noise * 1103515245 + 12345) % 2147483648
        x[j] = noise / 1073741824 - 1
    for _ in range(2):
        _orthogonalise(vectors, r)
        _solve(upper, factor, swap, x)
    _orthogonalise(vectors, r)


@compiled
def _factorise(d, e, value, upper, factor, swap):  # type: ignore[no-untyped-def]
    """LU factors of T - value with row exchanges; upper holds 1/diagonal and the two diagonals above."""
    m, lanes = d.shape
    zero, one, eps = d.dtype.type(0), d.dtype.type(1), np.finfo(d.dtype).eps
    p, q = d[0] - value, e[0].copy()
    for j in range(m - 1):
        for i in range(lanes):
            below, diagonal = e[j, i], d[j + 1, i] - value[i]
            beyond = e[j + 1, i]
            exchange = abs(below) > abs(p[i])
            pivot = below if exchange else p[i]
            pivot = pivot if abs(pivot) > eps else eps
            other = p[i] if exchange else below
            ratio = other / pivot
            second, third = (diagonal if exchange else q[i]), (beyond if exchange else zero)
            upper[0, j, i], upper[1, j, i], upper[2, j, i] = one / pivot, second, third
            factor[j, i], swap[j, i] = ratio, one if exchange else zero
            rest, last = (q[i] if exchange else diagonal), (zero if exchange else beyond)
            p[i] = rest - ratio * second
            q[i] = last - ratio * third
    for i in range(lanes):
        pivot = p[i] if abs(p[i]) > eps else eps
        upper[0, m - 1, i] = one / pivot


@compiled
def _solve(upper, factor, swap, x):  # type: ignore[no-untyped-def]
    m, lanes = x.shape
    for j in range(m - 1):
        for i in range(lanes):
            first, second = x[j, i], x[j + 1, i]
            exchange = swap[j, i] > 0
            top, rest = (second if exchange else first), (first if exchange else second)
            x[j, i] = top
            x[j + 1, i] = rest - factor[j, i] * top
    for i in range(lanes):
        x[m - 1, i] *= upper[0, m - 1, i]
    for j in range(m - 2, -1, -1):
        for i in range(lanes):
            total = x[j, i] - upper[1, j, i] * x[j + 1, i]
            total -= upper[2, j, i] * x[j + 2, i] if j < m - 2 else x.dtype.type(0)
            x[j, i] = total * upper[0, j, i]


@compiled
def _orthogonalise(vectors, r):  # type: ignore[no-untyped-def]
    """Remove from vectors[r] what lies along those before it, and give it length 1."""
    m, lanes = vectors.shape[1:]
    x = vectors[r]
    total = np.empty(lanes, x.dtype)
    for k in range(r + 1):
        total[:] = 0
        for j in range(m):
            for i in range(lanes):
                total[i] += vectors[k, j, i] * x[j, i]
        if k == r:
            break
        for j in range(m):
            for i in range(lanes):
                x[j, i] -= total[i] * vectors[k, j, i]
    for i in range(lanes):
        total[i] = x.dtype.type(1) / np.sqrt(total[i]) if total[i] > 0 else x.dtype.type(0)
    for j in range(m):
        for i in range(lanes):
            x[j, i] *= total[i]


@compiled
def _reflect_back(a, beta, vectors):  # type: ignore[no-untyped-def]
    """From the tridiagonal basis to the original one: the reflections, last first."""
    m, lanes = beta.shape
    total = np.empty(lanes, a.dtype)
    for k in range(m - 3, -1, -1):
        for r in range(vectors.shape[0]):
            total[:] = 0
            for j in range(k + 1, m):
                for i in range(lanes):
                    total[i] += a[k, j, i] * vectors[r, j, i]
            for i in range(lanes):
                total[i] *= beta[k, i]
            for j in range(k + 1, m):
                for i in range(lanes):
                    vectors[r, j, i] -= total[i] * a[k, j, i]
