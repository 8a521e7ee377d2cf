"""What all models share: batches, the loss, and weights that nobody changes on the way."""

from __future__ import annotations

import copy
import math
import warnings

import pytest
import torch
from torch import Tensor, nn

from laws import close, seeded, uniform
from unsnap.algorithms import ADMM, GAP
from unsnap.errors import InputError
from unsnap.fixed_point import unroll
from unsnap.masks import bernoulli
from unsnap.methods import as_method
from unsnap.models import Batch, Equilibrium, Unfolded
from unsnap.models.base import Model, fitted, log_rmse
from unsnap.networks import CNN, NETWORKS, Certified, ShiftUNet
from unsnap.operators import CodedOperator, Multishot, Snapshot

PHI = Snapshot(bernoulli(3, 16, 16, generator=torch.Generator().manual_seed(0)))
Y = PHI.A(uniform(2, 3, 16, 16).float())


def models() -> dict[str, nn.Module]:
    torch.manual_seed(0)
    return {
        "equilibrium": Equilibrium(
            GAP(), Certified(blocks=1, channels=4, hidden=4), nn.Parameter(torch.tensor(0.1)), max_iter=5
        ),
        "unfolded": Unfolded(GAP(), ShiftUNet((4, 4, 4)), [0.2, 0.1], learn_sigmas=True),
        "spectral": Equilibrium(GAP(), CNN(2, 4, spectral=True, size=8), max_iter=5),
    }


@pytest.mark.parametrize("name", ["equilibrium", "unfolded"])
def test_other_kinds_of_numbers_than_the_weights_are_named(name: str) -> None:
    model = models()[name]
    with pytest.raises(InputError, match=r"weights of torch.float32 .* snapshot of torch.float64 .* model.to\(y\)"):
        model(Y.double(), PHI.with_masks(PHI.masks.double()))
    with pytest.raises(InputError, match=r"masks of torch.float64"):
        model(Y, PHI.with_masks(PHI.masks.double()))


def test_an_error_of_the_network_itself_stays_what_it_is() -> None:
    def fails(x: Tensor, sigma: float | Tensor) -> Tensor:
        raise RuntimeError("of my own")

    with pytest.raises(RuntimeError, match="of my own"):
        Equilibrium(GAP(), fails)(Y, PHI)


def test_the_warning_of_a_lost_gradient_names_the_line_that_asks_for_it() -> None:
    with pytest.warns(RuntimeWarning, match="leaves out the way through the start") as found:
        Unfolded(GAP(), ShiftUNet((4, 4, 4), context=False), [0.1])(Y.clone().requires_grad_(), PHI)
    assert found[0].filename == __file__


def test_a_result_that_depends_on_its_start_warns_of_the_gradient_that_is_lost() -> None:
    """An unrolled iteration does, wherever it is asked for; an equilibrium does not."""
    y, half = Y.clone().requires_grad_(), lambda x, sigma: 0.5 * x
    for build, call in (({"backward": unroll(3)}, {}), ({}, {"backward": unroll(3)})):
        with pytest.warns(RuntimeWarning, match="leaves out the way through the start"):
            Equilibrium(GAP(), half, **build)(y, PHI, **call)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Equilibrium(GAP(), half)(y, PHI)
        Equilibrium(GAP(), half, backward=unroll(3))(y, PHI, start=PHI.A_dagger(y))


def unchanged(module: nn.Module, before: nn.Module) -> None:
    """Bit by bit, and the very tensors."""
    assert module.state_dict().keys() == before.state_dict().keys()
    for key, value in module.state_dict().items():
        assert value.dtype == before.state_dict()[key].dtype, key
        assert torch.equal(value, before.state_dict()[key]), key


@pytest.mark.parametrize("kind", models())
def test_fitted_is_itself_or_a_copy_in_the_right_type(kind: str) -> None:
    m = models()[kind]
    before, tensors = copy.deepcopy(m), [id(p) for p in m.parameters()]
    assert fitted(m, Y) is m
    double = fitted(m, Y.double())
    assert {p.dtype for p in [*double.parameters(), *double.buffers()]} == {torch.float64}
    unchanged(double.float(), before)
    with torch.no_grad():
        for p in double.parameters():
            p.add_(1)
    unchanged(m, before)
    assert [id(p) for p in m.parameters()] == tensors


@pytest.mark.parametrize("kind", models())
def test_a_call_in_double_precision_leaves_the_weights_alone(kind: str) -> None:
    """And what it gives agrees with single precision."""
    m = models()[kind]
    before, method = copy.deepcopy(m), as_method(m)
    single = method(Y, PHI).x
    double = method(Y.double(), Snapshot(PHI.masks.double())).x
    assert (single.dtype, double.dtype) == (torch.float32, torch.float64)
    close(single, double, 1e-4)
    unchanged(m, before)
    assert torch.equal(method(Y, PHI).x, single)


def test_integers_fit_any_type() -> None:
    net = nn.BatchNorm2d(2)  # counts its batches
    assert fitted(net, Y) is net
    assert fitted(net, Y.double()).num_batches_tracked.dtype == torch.int64


def test_log_rmse_is_psnr_in_other_units() -> None:
    truth = uniform(2, 3, 5, 4)
    x = truth + torch.tensor([0.1, 0.001], dtype=torch.float64).reshape(2, 1, 1, 1)
    assert float(log_rmse(x, truth)) == pytest.approx((math.log(0.01 + 1e-6) + math.log(2e-6)) / 4)
    still = truth.clone().requires_grad_()
    (slope,) = torch.autograd.grad(log_rmse(still, truth), still)
    assert torch.equal(slope, torch.zeros_like(slope)), "finite where there is nothing left to learn"


CAMERAS = [Snapshot(uniform(3, 5, 4)), Snapshot(uniform(4, 3, 5, 4)), Multishot(uniform(4, 2, 3, 5, 4))]


@pytest.mark.parametrize("phi", CAMERAS, ids=["shared", "own", "shots"])
@pytest.mark.parametrize("rows", [torch.tensor([3, 1]), slice(1, 4)], ids=["some", "slice"])
def test_a_batch_is_its_samples(phi: CodedOperator, rows: Tensor | slice) -> None:
    m, truth = Equilibrium(ADMM(), lambda x, sigma: 0.9 * x, start=lambda y, phi: phi.A_adjoint(y)), uniform(4, 3, 5, 4)
    plain = Batch(truth, phi.A(truth), phi)
    assert plain.select(rows).start is None
    batch = plain.started(m)
    assert torch.equal(batch.start, phi.A_adjoint(batch.y))
    assert [part.shape for part in batch.state] == [truth.shape] * 2
    part = batch.select(rows)
    assert torch.equal(part.truth, truth[rows])
    close(part.phi.A(part.truth), part.y)
    for a, b in zip([part.start, *part.state], [batch.start, *batch.state], strict=True):
        assert torch.equal(a, b[rows])
    assert torch.equal(part.started(m).start, part.start)


@pytest.mark.parametrize("name", ["certified", "cnn", "dense_stage", "frame_rnn", "shift", "unet"])
def test_no_snapshots_are_no_videos(name: str) -> None:
    phi = Snapshot(bernoulli(4, 16, 16, generator=seeded()))
    network = NETWORKS[name]()
    model: Model = Unfolded(GAP(), network, [0.1, 0.1])
    if name != "dense_stage":
        assert Equilibrium(GAP(), network)(phi.masks.new_zeros(0, 16, 16), phi).x.shape == (0, 4, 16, 16)
    assert model(phi.masks.new_zeros(0, 16, 16), phi).x.shape == (0, 4, 16, 16)
