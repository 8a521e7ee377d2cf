"""The dictionary: matching pursuit and K-SVD against plain twins, and the denoiser on every kind of video."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
import torch

from laws import close, normal, seeded, uniform
from unsnap import Snapshot, psnr, simulate
from unsnap.kernels import omp
from unsnap.masks import bernoulli, gray
from unsnap.methods import METHODS
from unsnap.priors.dictionary import Dictionary, learning

Array = npt.NDArray[np.float64]
SMALL = Dictionary(patch=4, frames=2, stride=3, steps=1, atoms=(5, 3), rounds=2, most=8)


def problem(count: int = 60, size: int = 20, atoms: int = 45) -> tuple[Array, Array]:
    dictionary = normal(atoms, size, seed=1).numpy()
    return normal(count, size).numpy(), dictionary / np.linalg.norm(dictionary, axis=1, keepdims=True)


def plain_pursuit(z: Array, atoms: Array, target: float, most: int) -> tuple[list[int], Array]:
    support: list[int] = []
    rest, values = z, np.zeros(0)
    while rest @ rest > target and len(support) < most:
        support.append(int(np.abs(atoms @ rest).argmax()))
        values = np.linalg.lstsq(atoms[support].T, z, rcond=None)[0]
        rest = z - values @ atoms[support]
    return support, values


# Matching pursuit


@pytest.mark.parametrize(("target", "most"), [(0.0, 7), (2.0, 20), (8.0, 20), (1e9, 20)])
def test_codes_are_those_of_plain_pursuit(target: float, most: int) -> None:
    z, atoms = problem()
    used, values = omp.code(z, atoms, target, most)
    for p in range(len(z)):
        support, expected = plain_pursuit(z[p], atoms, target, most)
        n = len(support)
        assert used[p, :n].tolist() == support
        assert (used[p, n:] == -1).all()
        np.testing.assert_allclose(values[p, :n], expected, rtol=1e-8, atol=1e-10)
        assert (values[p, n:] == 0).all()


def test_residual_is_orthogonal_to_its_support() -> None:
    z, atoms = problem()
    used, values = omp.code(z, atoms, 0.0, 9)
    rest = z - omp.decode(used, values, atoms)
    products = np.einsum("pd,pnd->pn", rest, atoms[used])
    assert np.abs(products).max() < 1e-10
    assert np.linalg.norm(rest) > 0.1


def test_errors_reach_the_target() -> None:
    z, atoms = problem()
    used, values = omp.code(z, atoms, 3.0, 20)
    assert (((z - omp.decode(used, values, atoms)) ** 2).sum(1) <= 3.0 + 1e-9).all()


def test_awkward_atoms_and_patches() -> None:
    z, atoms = problem()
    twins = np.concatenate([atoms[:5], atoms[:5]])  # linearly dependent
    used, values = omp.code(z, twins, 0.0, 10)
    assert np.isfinite(values).all()
    assert ((used >= 0).sum(1) <= 5).all()
    z[0], z[1] = 0, np.nan
    used, values = omp.code(z, atoms, 0.1, 10)
    assert (used[:2] == -1).all()
    assert np.isfinite(values).all()


# K-SVD


def test_error_never_rises_and_atoms_have_unit_norm() -> None:
    z, atoms = problem(200)
    used, values = omp.code(z, atoms, 0.0, 4)
    errors = [np.linalg.norm(z - omp.decode(used, values, atoms))]
    for _ in range(20):
        atoms, values = omp.renew(z, used, values, atoms)
        errors.append(np.linalg.norm(z - omp.decode(used, values, atoms)))
        np.testing.assert_allclose(np.linalg.norm(atoms, axis=1), 1, rtol=1e-12)
    assert (np.diff(errors) <= 1e-12).all()
    assert errors[-1] < 0.95 * errors[0]


def test_renewing_is_alternating_least_squares() -> None:
    z, atoms = problem(50, atoms=21)
    used, values = omp.code(z, atoms, 0.0, 3)
    found, coefficients = omp.renew(z, used, values, atoms)
    codes = np.zeros((50, 21))
    for p in range(50):
        codes[p, used[p]] = values[p]
    expected = atoms.copy()
    for k in range(21):
        users = codes[:, k] != 0
        if users.any():
            rest = z[users] - codes[users] @ expected + np.outer(codes[users, k], expected[k])
            best = codes[users, k] @ rest
            expected[k] = best / np.linalg.norm(best)
            codes[users, k] = rest @ expected[k]
    np.testing.assert_allclose(found, expected, atol=1e-12)
    np.testing.assert_allclose(coefficients, np.take_along_axis(codes, used, 1), atol=1e-12)


def test_planted_atoms_are_found() -> None:
    _, truth = problem(atoms=12)
    rng = np.random.default_rng(0)
    codes = np.zeros((2000, 12))
    for row in codes:
        row[rng.choice(12, 2, replace=False)] = rng.normal(size=2)
    z, atoms = codes @ truth, problem(size=20, atoms=12)[1] + 0.4 * rng.normal(size=(12, 20)) / 20**0.5
    atoms /= np.linalg.norm(atoms, axis=1, keepdims=True)
    for _ in range(30):
        atoms, _ = omp.renew(z, *omp.code(z, atoms, 0.0, 2), atoms)
    assert np.abs(truth @ atoms.T).max(1).min() > 0.99


# The denoiser


def test_strong_noise_leaves_the_means_and_none_leaves_the_video() -> None:
    x = uniform(2, 4, 4)
    close(SMALL(x, 10.0), x.mean().expand_as(x))
    exact = Dictionary(patch=4, frames=2, steps=1, atoms=(5, 3), rounds=0, most=40)
    close(exact(x, 1e-7), x, 1e-6)


def test_it_denoises_and_few_patches_teach_no_noise() -> None:
    clean = simulate.render(4, 48, 48, seed=0)
    noisy = clean + 0.1 * normal(4, 48, 48).float()
    careful, careless = (
        float(psnr(Dictionary(rounds=4, users=n)(noisy, 0.1), clean).mean()) for n in (Dictionary.users, 1)
    )
    assert careful > careless + 1
    assert careful > float(psnr(noisy, clean).mean()) + 4


def test_learning_helps_where_the_texture_is_no_cosine() -> None:
    # One irregular tile, repeated: a single atom says it all, once it is learned.
    clean = (0.5 + 0.2 * normal(1, 5, 5)).repeat(2, 12, 12).float()
    noisy = clean + 0.1 * normal(2, 60, 60, seed=1).float()
    scores = [float(psnr(Dictionary(frames=2, rounds=n)(noisy, 0.1), clean).mean()) for n in (0, 4)]
    assert scores[1] > scores[0] + 1, scores


def test_a_run_goes_on_with_its_dictionary() -> None:
    eager = replace(SMALL, users=1)  # else so few patches would teach it nothing
    x, denoise = uniform(3, 12, 12), learning(eager)
    first, known = eager.learned(x, 0.1, [])
    second, better = eager.learned(x, 0.1, known)
    assert not torch.equal(first, second)
    for expected in (first, second, eager.learned(x, 0.1, better)[0]):
        assert torch.equal(denoise(x, 0.1), expected)
    np.testing.assert_allclose(np.linalg.norm(known[0], axis=1), 1, rtol=1e-9)


@pytest.mark.parametrize("bad", [{"stride": 0}, {"stride": 9}, {"steps": 5}, {"most": 0}, {"rounds": -1}])
def test_bad_settings(bad: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="Dictionary needs positive sizes"):
        Dictionary(**bad)


@pytest.mark.parametrize("code", [bernoulli, gray])
def test_inside_gap_it_beats_gap_tv(code) -> None:
    truth = simulate.render(8, 24, 24, seed=1)
    phi = Snapshot(code(8, 24, 24, generator=seeded()))
    y = phi.A(truth)
    scores = [float(psnr(METHODS[name](y, phi).x, truth).mean()) for name in ("gap-tv", "gap-dictionary")]
    assert scores[1] > scores[0] + 2, scores
