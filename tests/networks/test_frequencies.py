"""The bound from a grid of frequencies: never below the norm, whatever the kernels; and tight."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from laws import close, normal, uniform
from unsnap import zoo
from unsnap.algorithms import GAP
from unsnap.errors import InputError
from unsnap.models import Equilibrium, load, save
from unsnap.networks import Certified, certified, frequencies
from unsnap.networks.frequencies import squared_gain
from unsnap.networks.rowsums import row_sums

SHAPES = [(4, 3, 3, 3), (3, 5, 3, 3), (6, 4, 3, 1), (1, 1, 3, 3), (5, 1, 7, 7), (2, 3, 1, 1), (3, 2, 2, 5)]
each = pytest.mark.parametrize("shape", SHAPES, ids=str)
SMALL: dict[str, Any] = {"blocks": 2, "channels": 5, "hidden": 7, "temporal": True, "contraction": 0.8}


def on_fine_grid(weight: Tensor, points: int = 240) -> Tensor:
    """max over ω of ‖K̂(ω)‖² by FFT, from below; differentiable."""
    height, width = (points if n > 1 else 1 for n in weight.shape[-2:])
    responses = torch.fft.rfft2(weight, s=(height, width)).movedim((-2, -1), (0, 1))  # of real kernels, ω and −ω alike
    gram = responses.mH @ responses if weight.shape[1] <= len(weight) else responses @ responses.mH
    return torch.linalg.eigvalsh(gram)[..., -1].max()


def slack(shape: tuple[int, ...]) -> float:
    return frequencies._between(shape[-2]) * frequencies._between(shape[-1])


@each
def test_never_below_the_norm_and_hardly_above(shape: tuple[int, ...]) -> None:
    for seed in range(5):
        weight = normal(*shape, seed=seed)
        true, bound = float(on_fine_grid(weight)), float(squared_gain(weight))
        assert true * (1 - 1e-12) <= bound <= 1.0825 * true
        assert float(squared_gain(1e6 * weight)) == pytest.approx(1e12 * bound, rel=1e-12)


def test_never_below_the_norm_of_the_padded_convolution() -> None:
    weight = normal(4, 3, 3, 3)
    basis = torch.eye(3 * 30, dtype=torch.float64).reshape(-1, 3, 5, 6)
    k = torch.nn.functional.conv2d(basis, weight, padding=1).flatten(1)
    assert float(squared_gain(weight)) >= float(torch.linalg.matrix_norm(k, 2)) ** 2


@pytest.mark.parametrize("points", [2, 8, 9])
@pytest.mark.parametrize("length", [2, 3, 5])
def test_the_worst_kernels_reach_the_bound(monkeypatch: pytest.MonkeyPatch, points: int, length: int) -> None:
    r"""$\|\hat Kx\|^2 = 4\cos^2(d(\omega - \omega_0)/2)$ with its peak halfway between two points: nothing to spare.

    $\hat K = [[a, -b], [b, a]]$ has the eigenvectors (1, ∓i), which real kernels need for a peak without its mirror.
    """
    monkeypatch.setattr(frequencies, "POINTS", points)
    frequencies._waves.cache_clear()
    try:
        d = length - 1
        angle = torch.tensor(torch.pi / points, dtype=torch.float64)  # d ω_0, ω_0 = π/N
        a, b = torch.zeros(2, length, dtype=torch.float64)
        a[0], a[-1], b[-1] = 1, angle.cos(), angle.sin()
        line = torch.stack([torch.stack([a, -b]), torch.stack([b, a])])
        plane = torch.einsum("hmu,HMv->hHmMuv", line, line).reshape(4, 4, length, length)
        for weight, peak in ((line[..., None], 4.0), (plane, 16.0)):
            assert float(on_fine_grid(weight, 2 * points * d)) == pytest.approx(peak, rel=1e-12)
            assert float(squared_gain(weight)) == pytest.approx(peak, rel=1e-12)
    finally:
        frequencies._waves.cache_clear()


def test_kernels_searched_for_do_not_exceed_the_bound() -> None:
    weight = normal(3, 3, 3, 3, seed=1).requires_grad_()
    optimiser = torch.optim.Adam([weight], lr=0.02)
    ratios = []
    for _ in range(60):
        optimiser.zero_grad()
        ratio = on_fine_grid(weight, 32) / squared_gain(weight)
        ratios.append(float(ratio.detach()))
        (-ratio).backward()
        optimiser.step()
    assert ratios[0] < max(ratios) <= 1 + 1e-12
    assert max(ratios) * slack(weight.shape) > 1  # the grid alone would be below the norm


@each
def test_gradients(shape: tuple[int, ...]) -> None:
    weight, log_q = normal(*shape).requires_grad_(), normal(shape[0], seed=1).requires_grad_()
    assert torch.autograd.gradcheck(squared_gain, weight, fast_mode=True)
    assert torch.autograd.gradcheck(lambda w, q: certified._inverse(w, q, True), (weight, log_q), fast_mode=True)


def test_maps_without_weights_do_nothing_and_break_no_gradient() -> None:
    weight = normal(4, 3, 3, 3)
    weight[1] = 0
    weight.requires_grad_()
    inverse = certified._inverse(weight, torch.zeros(4, dtype=torch.float64), True)
    assert inverse[1] == 0
    inverse.sum().backward()
    assert bool(torch.isfinite(weight.grad).all())
    nothing = certified._inverse(torch.zeros(4, 3, 3, 3), torch.zeros(4), True)
    assert nothing.tolist() == [0] * 4
    assert bool(squared_gain(torch.full((2, 2, 3, 3), torch.nan)).isnan())


@pytest.mark.parametrize("kernel", [(3, 3), (3, 1)], ids=str)
def test_t_dominates_the_gram_matrix_and_is_tight(kernel: tuple[int, int]) -> None:
    weight, log_q = normal(6, 4, *kernel), normal(6, seed=1)
    inverse = certified._inverse(weight, log_q, True)
    basis = torch.eye(4 * 30, dtype=torch.float64).reshape(-1, 4, 5, 6)
    k = torch.nn.functional.conv2d(basis, weight, padding=(1, kernel[1] // 2)).flatten(1).T
    t = (1 / inverse).repeat_interleave(30).diag()
    assert float(torch.linalg.eigvalsh(t - k @ k.T).min()) > 0
    loose = [
        float(1 / on_fine_grid(weight * x.sqrt().reshape(-1, 1, 1, 1))) for x in (inverse, 1 / row_sums(weight, log_q))
    ]
    assert 1 <= loose[0] <= 1.0825
    assert loose[1] > 1.5


def conditioned(net: Certified, x: Tensor) -> Tensor:
    with torch.no_grad():
        return net(x, 0.1)


def test_a_file_says_which_bound_its_weights_were_trained_with(tmp_path: Path) -> None:
    torch.manual_seed(0)
    x, new, old = uniform(3, 6, 6).float(), Certified(**SMALL), Certified(**SMALL, bound="row_sums")
    old.load_state_dict(new.state_dict())
    assert float((conditioned(new, x) - conditioned(old, x)).norm()) > 1e-3
    for net in (new, old):
        loaded = load(save(tmp_path / "m.safetensors", Equilibrium(GAP(), net)))
        close(conditioned(loaded.network, x), conditioned(net, x), 0)
        assert loaded.network.lipschitz_bound()["construction"] == net.lipschitz_bound()["construction"]
    with pytest.raises(InputError, match="bound must be row_sums or frequencies, got 'tight'"):
        Certified(bound="tight")


def test_shipped_weights_keep_their_row_sums() -> None:
    """N by the book with T from row sums, in float64."""
    net = deepcopy(zoo.equilibrium("guided-certified").network).double().requires_grad_(False)
    assert net.lipschitz_bound()["construction"] == "row_sums"
    x = uniform(4, 8, 8)
    z = torch.nn.functional.pixel_unshuffle(x[:, None], 2)
    z = torch.cat([z, z.new_zeros(4, 28, 4, 4)], 1)
    for space, time in zip(net.space, net.time, strict=True):
        z = by_the_book(space, z)
        z = by_the_book(time, z.permute(2, 1, 0, 3)).permute(2, 1, 0, 3)
    expected = torch.nn.functional.pixel_shuffle(z[:, :4], 2)[:, 0]
    close(net.nonexpansive(x), expected, 1e-6)


def by_the_book(block: certified.Block, z: Tensor) -> Tensor:
    t = row_sums(block.weight, block.log_q).reshape(-1, 1, 1, 1)
    padding = (block.weight.shape[-2] // 2, block.weight.shape[-1] // 2)
    inner = torch.nn.functional.conv2d(z, block.weight, block.bias, padding=padding).relu()
    return z - torch.nn.functional.conv_transpose2d(inner, 2 * block.weight / t, padding=padding)
