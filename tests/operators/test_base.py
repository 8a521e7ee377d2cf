"""What every camera has from the base, and that an incomplete one cannot be made."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import laws
from laws import close, uniform
from unsnap.operators import CodedOperator, Multishot, Snapshot
from unsnap.operators.whole import Whole

CAMERAS = [Snapshot(uniform(3, 5, 4)), Multishot(uniform(2, 3, 5, 4))]
OWN = [Snapshot(uniform(6, 3, 5, 4)), Multishot(uniform(6, 2, 3, 5, 4))]
named = {"ids": lambda phi: type(phi).__name__}


class Forgetful(Snapshot):
    A_adjoint = CodedOperator.A_adjoint


def test_an_incomplete_camera_is_refused_when_it_is_made() -> None:
    with pytest.raises(TypeError, match=r"abstract method '?A_adjoint"):
        Forgetful(uniform(3, 5, 4))
    with pytest.raises(TypeError, match="abstract"):
        CodedOperator(uniform(3, 5, 4))  # type: ignore[abstract]


@pytest.mark.parametrize("phi", CAMERAS, **named)
def test_laws_of_a_camera(phi: CodedOperator) -> None:
    laws.camera(phi, uniform(4, *phi.video, seed=1), uniform(4, *phi.image, seed=2))


@pytest.mark.parametrize("phi", OWN, **named)
@pytest.mark.parametrize("rows", [slice(1, 4), torch.tensor([4, 0])], ids=["slice", "indices"])
def test_select_takes_the_masks_of_some_samples(phi: CodedOperator, rows: slice | Tensor) -> None:
    x = uniform(6, *phi.video, seed=1)
    close(phi.select(rows).A(x[rows]), phi.A(x)[rows])


@pytest.mark.parametrize("phi", CAMERAS, **named)
def test_select_of_shared_masks_is_the_camera_itself(phi: CodedOperator) -> None:
    assert phi.select(slice(1)) is phi


@pytest.mark.parametrize("phi", OWN, **named)
def test_scaled_by_one_number_per_sample(phi: CodedOperator) -> None:
    x, factor = uniform(6, *phi.video, seed=1), uniform(6, seed=2) + 0.5
    shaped = factor.reshape(6, *[1] * len(phi.image))
    close(phi.scaled(factor).A(x), shaped * phi.A(x))
    close(phi.scaled(factor).squared_norms(), factor.square() * phi.squared_norms())


@pytest.mark.parametrize("phi", CAMERAS + OWN, **named)
def test_without_some_pixels_measures_zero_there_and_the_same_elsewhere(phi: CodedOperator) -> None:
    gone = uniform(*phi.samples, *phi.image, seed=3) > 0.6
    x = uniform(6, *phi.video, seed=1)
    close(phi.without(gone).A(x), torch.where(gone, 0, phi.A(x)))
    assert phi.without(torch.zeros_like(gone)) is phi


@pytest.mark.parametrize("phi", CAMERAS + OWN, **named)
@pytest.mark.parametrize("lead", [(), (6,), (2, 6)])
def test_aligned_makes_one_batch_axis_of_all(phi: CodedOperator, lead: tuple[int, ...]) -> None:
    y = uniform(*lead, *phi.image, seed=4)
    flat, camera, axes = phi.aligned(y)
    assert flat.shape == (torch.Size(axes).numel(), *phi.image)
    expected = phi.A_adjoint(y.expand(*axes, *phi.image))
    close(camera.A_adjoint(flat).reshape(expected.shape), expected)


@pytest.mark.parametrize("phi", CAMERAS + OWN, **named)
def test_energy_is_the_diagonal_of_the_gram_matrix(phi: CodedOperator) -> None:
    probe = torch.zeros(phi.image, dtype=torch.float64)
    probe.view(-1)[7] = 1
    diagonal = phi.gram(probe.expand(*phi.samples, *phi.image)).flatten(len(phi.samples))[..., 7]
    close(phi.energy.flatten(len(phi.samples))[..., 7], diagonal)
    assert float(phi.squared_norms().max()) == pytest.approx(phi.norm() ** 2)


def test_a_camera_that_measures_nothing_still_has_step_sizes() -> None:
    blind = Snapshot(torch.zeros(3, 5, 4))
    assert (blind.norm(), blind.squared_norm()) == (0, 1)
    assert bool((blind.scaled(1 / blind.positive_squared_norms()).masks == 0).all())


def test_what_is_made_of_a_part_of_a_picture_is_a_part_of_it() -> None:
    whole = Whole({"norm": [7.0]})
    for phi in (camera.part_of(whole) for camera in CAMERAS + OWN):
        y = uniform(6, *phi.image, seed=4)
        gone = torch.ones(phi.image, dtype=torch.bool)
        made = [phi.select(slice(2)), phi.scaled(3.0), phi.weighted(uniform(*phi.image)), phi.without(gone)]
        made += [
            phi.unit(y)[1],
            phi.aligned(y.expand(2, *y.shape))[1],
            phi.scaled(2.0**-100).normalised(y * 2.0**-100)[1],
        ]
        for other in made:
            assert other.whole is whole
            assert other.norm() == 7
