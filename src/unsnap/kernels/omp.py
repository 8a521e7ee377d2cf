"""Sparse codes of many patches in one dictionary, and the dictionary's atoms renewed from them.

Codes are pairs of arrays (N, most): the atoms used, in order, then −1; and their coefficients.
Rubinstein, Zibulevsky & Elad, *Efficient implementation of the K-SVD algorithm using batch orthogonal matching
pursuit*, Technion 2008.
Against all patches at once in torch, with batched solves (`python benchmarks/hand_written.py`): 7 times faster.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from unsnap.kernels import threads
from unsnap.kernels.compiled import compiled

Array = npt.NDArray[Any]
BAND = 1024  # patches coded in one go


def code(patches: Array, atoms: Array, target: float, most: int) -> tuple[Array, Array]:
    """Orthogonal matching pursuit of patches (N, d) in unit atoms (K, d) until the squared error is <= target."""
    most = min(most, *atoms.shape)
    used = np.full((len(patches), most), -1, np.int32)
    values = np.zeros((len(patches), most), patches.dtype)
    gram, limit = atoms @ atoms.T, patches.dtype.type(target)

    def band(first: int, stop: int) -> None:
        some = patches[first:stop]
        _code(some @ atoms.T, (some * some).sum(1), gram, limit, used[first:stop], values[first:stop])

    edges = threads.bands(len(patches), -(-len(patches) // BAND))
    threads.run([partial(band, *edge) for edge in edges], threads.worker_count(len(patches) * len(atoms)))
    return used, values


def decode(used: Array, values: Array, atoms: Array) -> Array:
    """Patches (N, d) that the codes stand for."""
    patches = np.zeros((len(used), atoms.shape[1]), atoms.dtype)
    _decode(used, values, atoms, patches)
    return patches


def renew(patches: Array, used: Array, values: Array, atoms: Array, users: int = 1) -> tuple[Array, Array]:
    """K-SVD's dictionary step: each atom, and the coefficients of all who use it, in turn the best for the rest.

    An atom with less than so many users stays as it is: it would learn their noise.
    """
    atoms, values = atoms.copy(), values.copy()
    order = np.argsort(used, axis=None, kind="stable").astype(np.int64)
    starts = np.searchsorted(used.ravel()[order], np.arange(len(atoms) + 1))
    _renew(patches - decode(used, values, atoms), used.shape[1], order, starts, users, values.reshape(-1), atoms)
    return atoms, values


@compiled
def _code(products, energies, gram, target, used, values):  # type: ignore[no-untyped-def]
    """Batch OMP: correlations with the residual follow from the Gram matrix, the residual itself is never formed."""
    most, tiny = used.shape[1], np.finfo(products.dtype).eps
    root, row, gamma = np.empty((most, most), gram.dtype), np.empty(most, gram.dtype), np.empty(most, gram.dtype)
    left = np.empty(gram.shape[0], gram.dtype)
    for p in range(products.shape[0]):
        for k in range(left.size):
            left[k] = products[p, k]
        error, n = energies[p], 0
        while error > target and error > tiny * energies[p] and n < most:
            best = _strongest(left)
            if best < 0 or not _extend(root, row, gram, used[p], n, best, tiny):
                break
            used[p, n] = best
            n += 1
            _solve(root, products[p], used[p], n, gamma)
            for k in range(left.size):
                left[k] = products[p, k]
            error = energies[p]
            for i in range(n):
                atom = gram[used[p, i]]
                error -= gamma[i] * products[p, used[p, i]]
                for k in range(left.size):
                    left[k] -= gamma[i] * atom[k]
        for i in range(n):
            values[p, i] = gamma[i]


@compiled
def _strongest(left):  # type: ignore[no-untyped-def]
    best, most = -1, left.dtype.type(0)
    for k in range(left.size):
        if abs(left[k]) > most:
            best, most = k, abs(left[k])
    return best


@compiled
def _extend(root, row, gram, used, n, best, tiny):  # type: ignore[no-untyped-def]
    """One more row of the Cholesky factor of the used atoms' Gram matrix; False if the new atom adds nothing."""
    rest = gram[best, best]
    for i in range(n):
        total = gram[best, used[i]]
        for j in range(i):
            total -= root[i, j] * row[j]
        row[i] = total / root[i, i]
        rest -= row[i] * row[i]
    if rest <= 100 * tiny:
        return False
    for i in range(n):
        root[n, i] = row[i]
    root[n, n] = np.sqrt(rest)
    return True


@compiled
def _solve(root, products, used, n, gamma):  # type: ignore[no-untyped-def]
    """L Lᵀ γ = the products with the used atoms."""
    for i in range(n):
        total = products[used[i]]
        for j in range(i):
            total -= root[i, j] * gamma[j]
        gamma[i] = total / root[i, i]
    for i in range(n - 1, -1, -1):
        total = gamma[i]
        for j in range(i + 1, n):
            total -= root[j, i] * gamma[j]
        gamma[i] = total / root[i, i]


@compiled
def _decode(used, values, atoms, patches):  # type: ignore[no-untyped-def]
    for p in range(used.shape[0]):
        for i in range(used.shape[1]):
            if used[p, i] < 0:
                break
            atom, value = atoms[used[p, i]], values[p, i]
            for a in range(atom.size):
                patches[p, a] += value * atom[a]


@compiled
def _renew(residual, most, order, starts, users, values, atoms):  # type: ignore[no-untyped-def]
    """One power iteration per atom: the best atom for its coefficients, then the best coefficients for the atom."""
    fresh = np.empty(atoms.shape[1], atoms.dtype)
    for k in range(atoms.shape[0]):
        atom = atoms[k]
        fresh[:] = 0
        for i in range(starts[k], starts[k + 1]):
            value, rest = values[order[i]], residual[order[i] // most]
            for a in range(fresh.size):
                rest[a] += value * atom[a]
                fresh[a] += value * rest[a]
        norm = np.sqrt((fresh * fresh).sum())
        if norm > 0 and starts[k + 1] - starts[k] >= users:
            for a in range(atom.size):
                atom[a] = fresh[a] / norm
        for i in range(starts[k], starts[k + 1]):
            rest = residual[order[i] // most]
            value = (rest * atom).sum()
            values[order[i]] = value
            for a in range(atom.size):
                rest[a] -= value * atom[a]
