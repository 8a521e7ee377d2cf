"""Every operator obeys the algebra it stands for, in both precisions, for any mask values and batch shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

import laws
from laws import close, normal, plain, seeded, uniform
from unsnap.errors import InputError
from unsnap.masks import bernoulli
from unsnap.operators import CodedOperator, Multishot, Snapshot

SIZE = (4, 6, 5)


def binary(*shape: int, seed: int = 0) -> Tensor:
    return (uniform(*shape, seed=seed) < 0.5).double()


def dead(masks: Tensor) -> Tensor:
    alive = torch.ones(masks.shape[-2:])
    alive[1:3, 2:4] = 0
    return masks * alive


def dependent(masks: Tensor) -> Tensor:
    """One more shot, which tells nothing new."""
    return torch.cat([masks, (0.3 * masks[..., :1, :, :, :] - 2 * masks[..., 1:2, :, :, :])], -4)


class Case(NamedTuple):
    make: Callable[[Tensor], CodedOperator]
    masks: Tensor
    batch: tuple[int, ...] = ()


CASES = {
    "binary": Case(Snapshot, binary(*SIZE)),
    "grey": Case(Snapshot, uniform(*SIZE), (3,)),
    "negative": Case(Snapshot, normal(*SIZE), (2, 3)),
    "8 bits": Case(Snapshot, (255 * uniform(*SIZE)).round(), (1,)),
    "dead pixels": Case(Snapshot, dead(binary(*SIZE)), (3,)),
    "blind": Case(Snapshot, torch.zeros(SIZE, dtype=torch.float64)),
    "per sample": Case(Snapshot, dead(uniform(3, *SIZE)), (3,)),
    "per sample in colour": Case(Snapshot, uniform(3, *SIZE), (2, 3)),
    "one for all samples": Case(Snapshot, uniform(1, *SIZE), (3,)),
    "one frame": Case(Snapshot, uniform(1, 7, 3), (2,)),
    "one pixel": Case(Snapshot, uniform(3, 1, 1), (2,)),
    "empty batch": Case(Snapshot, uniform(*SIZE), (0,)),
    "multishot": Case(Multishot, binary(2, *SIZE)),
    "multishot grey": Case(Multishot, uniform(3, *SIZE), (2, 3)),
    "multishot dependent": Case(Multishot, dependent(normal(2, *SIZE)), (3,)),
    "multishot dead pixels": Case(Multishot, dead(normal(2, *SIZE)), (1,)),
    "multishot per sample": Case(Multishot, normal(3, 2, *SIZE), (3,)),
    "multishot overdetermined": Case(Multishot, normal(4, 2, 3, 5), (2,)),
    "multishot one frame": Case(Multishot, uniform(2, 1, 5, 3)),
    "multishot empty batch": Case(Multishot, uniform(2, *SIZE), (0,)),
}


class Problem(NamedTuple):
    phi: CodedOperator
    x: Tensor
    z: Tensor
    y: Tensor
    w: Tensor
    tol: float


# In single precision once for every way through the code, of which none depends on the values of masks.
SINGLE = ("grey", "dead pixels", "per sample", "multishot grey", "multishot dependent", "multishot per sample")


@pytest.fixture(
    params=[(name, torch.float64) for name in CASES] + [(name, torch.float32) for name in SINGLE],
    ids=[*CASES, *(f"{name} single" for name in SINGLE)],
)
def problem(request: pytest.FixtureRequest) -> Problem:
    name, dtype = request.param
    make, masks, batch = CASES[name]
    phi = make(masks.to(dtype))
    x, z = (normal(*batch, *masks.shape[-3:], seed=s, dtype=dtype) for s in (1, 2))
    shape = phi.A(x).shape
    y, w = (normal(*shape, seed=s, dtype=dtype) for s in (3, 4))
    # A pseudo-inverse is as exact as its K x K systems are well conditioned.
    tol = 1e-12 if isinstance(phi, Snapshot) else 1e-9
    return Problem(phi, x, z, y, w, tol if dtype == torch.float64 else 1e6 * tol if tol > 1e-12 else 1e-5)


def test_linear_and_adjoint(problem: Problem) -> None:
    phi, x, z, y, _, tol = problem
    laws.linear(phi, x, z, tol)
    laws.adjoint(phi, x, y, tol)


def test_gram_is_a_times_its_adjoint(problem: Problem) -> None:
    laws.gram(problem.phi, problem.y, problem.tol)


def test_pseudo_inverse(problem: Problem) -> None:
    phi, x, z, y, w, tol = problem
    laws.moore_penrose(phi, x, z, y, w, tol)


def test_projection(problem: Problem) -> None:
    phi, x, z, _, _, tol = problem
    laws.projection(phi, x, z, phi.A(uniform(*x.shape).to(x)), tol)


def test_carried_projection_is_a_projection_on_the_carried_snapshot(problem: Problem) -> None:
    phi, x, _, y, w, tol = problem
    moved, carried = phi.project_carried(x, y, w)
    close(carried, w + y - phi.A(x), tol)
    close(moved, phi.project(x, carried), tol)
    close(moved, plain(lambda a: phi.project_carried(a, y, w)[0], x), tol)


def test_prox_is_stationary(problem: Problem) -> None:
    for gamma in (1e-3, 1.0, 50.0):
        laws.proximal(problem.phi, problem.z, problem.y, gamma, problem.tol)


def test_prox_goes_from_the_identity_to_the_projection(problem: Problem) -> None:
    phi, _, z, _, _, tol = problem
    y = phi.A(uniform(*z.shape).to(z))
    close(phi.prox_l2(z, y, 0.0), z, 0.0)
    close(phi.prox_l2(z, y, 1e-20), z, tol)
    if z.dtype == torch.float64:
        close(phi.prox_l2(z, y, 1e9), phi.project(z, y), 1e-5)


def test_fused_kernel_equals_plain_torch(problem: Problem) -> None:
    phi, x, _, y, _, tol = problem
    close(phi.A(x), plain(phi.A, x), tol)
    close(phi.project(x, y), plain(phi.project, x, y), tol)
    close(phi.prox_l2(x, y, 0.7), plain(lambda a, b: phi.prox_l2(a, b, 0.7), x, y), tol)


def test_dtype_is_kept_and_inputs_are_not_touched(problem: Problem) -> None:
    phi, x, _, y, _, _ = problem
    x_before, y_before = x.clone(), y.clone()
    for result in (phi.A(x), phi.A_adjoint(y), phi.A_dagger(y), phi.project(x, y), phi.prox_l2(x, y, 1.0)):
        assert result.dtype == x.dtype
    assert torch.equal(x, x_before)
    assert torch.equal(y, y_before)


def test_deepinv_calling_convention(problem: Problem) -> None:
    physics, x, z, y, _, _ = problem
    assert torch.equal(physics(x), physics.A(x))
    assert physics.A_adjoint(y).shape == physics.A_dagger(y).shape == x.shape
    assert torch.equal(physics.prox_l2(z, y, 0.5), physics.prox_l2(z=z, y=y, gamma=0.5))


@pytest.mark.parametrize("name", [n for n, c in CASES.items() if c.masks.ndim == (3 if c.make is Snapshot else 4)])
def test_dense_matrix_agrees(name: str) -> None:
    make, masks, _ = CASES[name]
    phi, shape = make(masks), tuple(masks.shape[-3:])
    matrix = laws.dense(phi, shape)
    psi = matrix.T @ torch.linalg.pinv(matrix @ matrix.T, hermitian=True, rtol=1e-12) @ matrix
    x, y = normal(*shape, seed=1), phi.A(normal(*shape, seed=2))
    assert abs(phi.norm() - torch.linalg.matrix_norm(matrix, 2)) <= 1e-12 * phi.norm()
    close((phi.A_dagger(phi.A(x))).flatten(), psi @ x.flatten(), 1e-9, scale=x)
    remaining = torch.linalg.eigvalsh(torch.eye(len(psi)) - psi)
    assert torch.minimum(remaining.abs(), (remaining - 1).abs()).max() < 1e-9
    close(phi.project(x, y).flatten(), (x.flatten() - psi @ x.flatten() + phi.A_dagger(y).flatten()), 1e-9)


def test_gram_holds_squares_not_sums() -> None:
    masks = torch.tensor([0.5, 3.0, -2.0]).reshape(3, 1, 1)
    assert Snapshot(masks).gram(torch.ones(1, 1)).item() == 0.25 + 9 + 4


@pytest.mark.parametrize("name", ["dead pixels", "per sample", "multishot dead pixels", "blind"])
def test_dead_pixels_are_left_alone(name: str) -> None:
    make, masks, batch = CASES[name]
    phi, x = make(masks), normal(*batch, *masks.shape[-3:])
    y = 5 + phi.A(x)  # a dead pixel may read anything
    gone = (masks == 0).all(-3) if make is Snapshot else (masks == 0).all(-3).all(-3)
    gone = gone.unsqueeze(-3).expand(x.shape)
    assert gone.any()
    for moved in (phi.project(x, y), phi.prox_l2(x, y, 3.0), plain(phi.project, x, y)):
        assert torch.equal(moved[gone], x[gone])
    assert not phi.A_dagger(y)[gone].any()


@pytest.mark.parametrize("make", [Snapshot, Multishot])
@pytest.mark.parametrize(("dtype", "dim"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_a_dim_pixel_is_not_dead(make: Callable[[Tensor], CodedOperator], dtype: torch.dtype, dim: float) -> None:
    masks = uniform(*([2] if make is Multishot else []), *SIZE, dtype=dtype) + 0.1
    masks[..., 2, 3] *= dim
    phi = make(masks)
    y = phi.A(uniform(*SIZE, seed=1, dtype=dtype))
    found = phi.A(phi.A_dagger(y))
    close(found[..., 2, 3], y[..., 2, 3], 1e-3)


@pytest.mark.parametrize("make", [Snapshot, Multishot])
def test_samples_do_not_depend_on_each_other(make: Callable[[Tensor], CodedOperator]) -> None:
    masks = normal(3, *([2] if make is Multishot else []), *SIZE)
    masks[1] *= 1e-17  # its pixels are dim, not dead, whatever the neighbours are
    x = normal(3, *SIZE, seed=1)
    together = make(masks)
    y = together.A(uniform(3, *SIZE))
    for n in range(3):
        alone = make(masks[n])
        close(together.project(x, y)[n], alone.project(x[n], y[n]), 1e-9)
        close(together.A_dagger(y)[n], alone.A_dagger(y[n]), 1e-9)


def test_gamma_may_differ_between_samples() -> None:
    phi, x, y = Snapshot(uniform(*SIZE)), normal(2, *SIZE), normal(2, *SIZE[1:])
    gammas = torch.tensor([0.1, 7.0], dtype=torch.float64)
    together = phi.prox_l2(x, y, gammas.reshape(2, 1, 1))
    for n in range(2):
        close(together[n], phi.prox_l2(x[n], y[n], float(gammas[n])))
        close(phi.prox_l2(x[0], y[0], gammas.reshape(2, 1, 1))[n], phi.prox_l2(x[0], y[0], float(gammas[n])))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_several_shots_in_half_precision(dtype: torch.dtype) -> None:
    """torch's linear algebra knows no half precision."""
    masks, x = torch.rand(2, 4, 6, 6, generator=seeded()), torch.rand(4, 6, 6, generator=seeded(1))
    phi, half = Multishot(masks), Multishot(masks.to(dtype))
    eps = float(torch.finfo(dtype).eps)
    y = phi.A(x)
    pairs = {
        "norm": (half.squared_norms(), phi.squared_norms()),
        "prox": (half.prox_l2(x.to(dtype), y.to(dtype), 0.5), phi.prox_l2(x, y, 0.5)),
        "gram": (half.gram(y.to(dtype)), phi.gram(y)),
    }
    for name, (found, expected) in pairs.items():
        assert found.dtype == dtype, name
        torch.testing.assert_close(found.float(), expected, rtol=20 * eps, atol=20 * eps)


def test_several_shots_do_not_mind_autocast() -> None:
    masks = torch.rand(2, 4, 6, 6, generator=seeded())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = Multishot(masks)
    assert torch.equal(inside.inverse, Multishot(masks).inverse)


def test_memory_order_does_not_matter() -> None:
    masks, x, y = uniform(*SIZE), uniform(2, *SIZE, seed=1), uniform(2, *SIZE[1:], seed=2)
    expected = Snapshot(masks).project(x, y)
    shuffled = Snapshot(masks.mT.contiguous().mT)
    close(shuffled.project(x.mT.contiguous().mT, y.mT.contiguous().mT), expected)
    close(shuffled.A(x.expand(4, 2, *SIZE))[3], Snapshot(masks).A(x))


def test_whole_number_masks_become_float32() -> None:
    masks = bernoulli(*SIZE, generator=laws.seeded())
    for kind in (torch.bool, torch.uint8, torch.int64):
        phi = Snapshot(masks.to(kind))
        assert phi.masks.dtype == torch.float32
        assert torch.equal(phi.masks, masks)


@pytest.mark.parametrize("make", [Snapshot, Multishot])
def test_all_buffers_move_with_the_module(make: Callable[[Tensor], CodedOperator]) -> None:
    masks = uniform(*([2] if make is Multishot else []), *SIZE, dtype=torch.float32)
    phi = make(masks).to(torch.float64)
    assert {b.dtype for b in phi.buffers()} == {torch.float64}
    assert {"masks", "energy", "inverse"} <= {name for name, _ in phi.named_buffers()}
    assert not list(phi.parameters())
    laws.gram(phi, normal(*phi.A(uniform(*SIZE)).shape), 1e-6)


# Derivatives, with respect to everything


def _derivative_cases() -> dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]]:
    return {
        "A": lambda phi, x, y: phi.A(x),
        "A_adjoint": lambda phi, x, y: phi.A_adjoint(y),
        "A_dagger": lambda phi, x, y: phi.A_dagger(y),
        "gram": lambda phi, x, y: phi.gram(y),
        "project": lambda phi, x, y: phi.project(x, y),
        "prox_l2": lambda phi, x, y: phi.prox_l2(x, y, 0.6),
    }


@pytest.mark.parametrize("what", list(_derivative_cases()))
@pytest.mark.parametrize("make", [Snapshot, Multishot])
def test_derivatives_with_respect_to_masks_video_and_snapshot(make: type[CodedOperator], what: str) -> None:
    shots = [2] if make is Multishot else []
    masks, x, y = normal(*shots, 3, 2, 2), normal(3, 2, 2, seed=1), normal(*shots, 2, 2, seed=2)
    function = _derivative_cases()[what]
    inputs = tuple(t.requires_grad_() for t in (masks, x, y))
    assert torch.autograd.gradcheck(lambda m, a, b: function(make(m), a, b), inputs)


def test_norm_of_learnable_masks_is_a_number() -> None:
    masks = normal(2, *SIZE)
    assert Snapshot(masks[0].clone().requires_grad_()).norm() == Snapshot(masks[0]).norm()
    assert Multishot(masks.clone().requires_grad_()).norm() == Multishot(masks).norm()


@laws.forward_mode
@pytest.mark.parametrize("name", ["grey", "dead pixels", "multishot"])
def test_function_transforms(name: str) -> None:
    make, masks, _ = CASES[name]
    phi, x = make(masks), normal(3, *SIZE, seed=1)
    y, direction = phi.A(uniform(3, *SIZE)), normal(3, *SIZE, seed=2)
    close(torch.func.vmap(phi.A)(x), phi.A(x))
    close(torch.func.vmap(phi.project)(x, y), phi.project(x, y), 1e-10)
    close(torch.func.vmap(lambda a, b: phi.prox_l2(a, b, 0.3))(x, y), phi.prox_l2(x, y, 0.3), 1e-10)
    value, slope = torch.func.jvp(lambda a: phi.project(a, y), (x,), (direction,))
    close(value, phi.project(x, y), 1e-10)
    close(slope, phi.project(direction, torch.zeros_like(y)), 1e-10)
    gradient = torch.func.grad(lambda a: 0.5 * phi.A(a).square().sum())(x)
    close(gradient, phi.A_adjoint(phi.A(x)))
    backwards = torch.func.vjp(phi.A, x)[1](y)[0]
    close(backwards, phi.A_adjoint(y))


# Bad arguments


@pytest.mark.parametrize(
    ("masks", "complaint"),
    [
        (torch.ones(4, 4), r"masks must be \(T, H, W\) or \(N, T, H, W\).*\(4, 4\)"),
        (torch.ones(2, 2, 2, 4, 4), "masks must be"),
        (torch.ones(0, 4, 4), "not empty"),
        (torch.ones(2, 4, 4, dtype=torch.complex64), "masks must be real"),
        (torch.full((2, 4, 4), torch.nan), "masks must be finite"),
        (torch.full((2, 4, 4), torch.inf), "masks must be finite"),
    ],
)
def test_bad_masks_are_named(masks: Tensor, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        Snapshot(masks)
    if masks.ndim == 3:
        with pytest.raises(InputError, match=complaint):
            Multishot(masks.unsqueeze(0))


def test_multishot_needs_an_axis_of_shots() -> None:
    with pytest.raises(InputError, match=r"masks must be \(K, T, H, W\) or \(N, K, T, H, W\).*\(4, 6, 5\)"):
        Multishot(torch.ones(SIZE))


@pytest.mark.parametrize("make", [Snapshot, Multishot])
def test_shapes_that_do_not_fit_are_named(make: Callable[[Tensor], CodedOperator]) -> None:
    shots = [2] if make is Multishot else []
    phi = make(uniform(*shots, *SIZE))
    good_x, good_y = torch.ones(SIZE), torch.ones(*shots, *SIZE[1:])
    for bad_x in (torch.ones(3, 6, 5), torch.ones(4, 5, 6), torch.ones(1, 6, 5), torch.ones(6, 5)):
        for call in (phi.A, lambda x: phi.project(x, good_y), lambda x: phi.prox_l2(x, good_y, 1.0)):
            with pytest.raises(ValueError, match="video must end in"):
                call(bad_x)
    for bad_y in (torch.ones(*shots, 5, 6), torch.ones(*shots, 6, 1), torch.ones(5)):
        prox = lambda y: phi.prox_l2(good_x, y, 1.0)  # noqa: E731
        carry = lambda y: phi.project_carried(good_x, y, y)  # noqa: E731
        for call in (phi.A_adjoint, phi.A_dagger, phi.gram, lambda y: phi.project(good_x, y), prox, carry):
            with pytest.raises(ValueError, match=r"snapshots? must end in"):
                call(bad_y)


@pytest.mark.parametrize("kind", [Snapshot, Multishot])
def test_more_digits_are_not_filled_with_rounded_ones(kind: type[CodedOperator]) -> None:
    masks = uniform(*((2,) if kind is Multishot else ()), *SIZE).float()
    phi, x = kind(masks).double(), normal(*SIZE)
    y = normal(*phi.image, seed=1)
    close(phi.A(phi.project(x, y)), y, 1e-12)


def test_one_over_a_small_energy_is_finite_in_half_precision() -> None:
    masks = torch.tensor([[[2.0, 0.003]]])
    for phi in (Snapshot(masks.half()), Snapshot(masks).half()):
        assert torch.isfinite(phi.A_dagger(torch.zeros(1, 2).half())).all()


def test_masks_may_be_an_array() -> None:
    masks = uniform(*SIZE)
    assert torch.equal(Snapshot(masks.numpy()).masks, masks)  # type: ignore[arg-type]


def test_a_single_frame_has_the_contrast_of_its_mask() -> None:
    masks = uniform(1, 7, 3)
    close(Snapshot(masks).contrast().reshape(()), masks.square().mean().sqrt())
