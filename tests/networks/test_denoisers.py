"""What all denoisers with weights have in common."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from laws import batch_independent, close, forward_mode, normal, pure, uniform
from unsnap.errors import InputError
from unsnap.networks import CNN, NETWORKS, DnCNN, FFDNet, build

SMALL: list[tuple[str, dict[str, Any]]] = [
    ("cnn", {"channels": 8}),
    ("cnn", {"channels": 8, "bias": True, "spectral": True, "size": 12}),
    ("dncnn", {"layers": 5, "channels": 8}),
    ("ffdnet", {"layers": 4, "channels": 8}),
    ("ffdnet", {"layers": 4, "channels": 8, "layout": "ipol"}),
    ("certified", {"blocks": 2, "channels": 6, "hidden": 9}),
    ("certified", {"blocks": 2, "channels": 6, "hidden": 9, "temporal": True, "contraction": 0.9}),
    ("gradient_step", {"channels": 4, "kernel": 5}),
    ("gradient_step", {"channels": 4, "kernel": 3, "convex": False}),
]
each = pytest.mark.parametrize(("name", "settings"), SMALL)


def made(name: str, settings: dict[str, Any], seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    net = build(name, settings).double().eval()
    with torch.no_grad():
        for k, p in enumerate(net.parameters()):
            p.add_(0.1 * normal(*p.shape, seed=k))
    return net


@each
@pytest.mark.parametrize(
    "shape", [(1, 8, 8), (3, 7, 9), (2, 3, 6, 5), (2, 1, 2, 5, 6), (5, 1, 1)], ids=lambda s: "x".join(map(str, s))
)
def test_any_shape_in_both_precisions(name: str, settings: dict[str, Any], shape: tuple[int, ...]) -> None:
    net, x = made(name, settings), uniform(*shape)
    with torch.no_grad():
        exact = net(x, 0.1)
        single = net.float()(x.float(), 0.1)
    assert exact.dtype == torch.float64
    assert single.dtype == torch.float32
    assert float((exact - x).norm()) > 1e-4 * float(x.norm())
    close(single, exact, 2e-5)


@each
def test_pure_and_batch_independent(name: str, settings: dict[str, Any]) -> None:
    net, x = made(name, settings), uniform(2, 3, 6, 7)
    with torch.no_grad():
        pure(lambda z: net(z, 0.1), x)
        batch_independent(lambda z: net(z, 0.1), x)
        together = net(x, torch.tensor([0.1, 0.3], dtype=torch.float64))
        for n, sigma in enumerate((0.1, 0.3)):
            close(together[n], net(x[n], sigma))


@forward_mode
@each
def test_derivatives_in_both_modes_are_the_difference_quotient(name: str, settings: dict[str, Any]) -> None:
    net, x, v, u = made(name, settings), 0.1 + 0.8 * uniform(2, 5, 6), normal(2, 5, 6, seed=1), normal(2, 5, 6, seed=2)
    f = lambda z: net(z, 0.1)  # noqa: E731
    _, forward = torch.func.jvp(f, (x,), (v,))
    _, pull = torch.func.vjp(f, x)
    h = 1e-7
    with torch.no_grad():
        close(forward.detach(), (f(x + h * v) - f(x - h * v)) / (2 * h), 1e-5)
    with torch.no_grad():
        close((forward * u).sum(), (v * pull(u)[0]).sum(), 1e-10)


@each
def test_every_parameter_learns(name: str, settings: dict[str, Any]) -> None:
    net = made(name, settings).train()
    net(uniform(2, 6, 6), 0.3).square().sum().backward()
    for key, p in net.named_parameters():
        assert p.grad is not None, key
        assert bool(torch.isfinite(p.grad).all()), key
        assert bool((p.grad != 0).any()), key


@each
def test_settings_and_state_rebuild_the_network(name: str, settings: dict[str, Any]) -> None:
    net = made(name, settings)
    assert settings.items() <= net.settings.items()
    twin = build(name, json.loads(json.dumps(net.settings))).double()
    twin.load_state_dict(net.state_dict())
    x = uniform(2, 5, 6)
    with torch.no_grad():
        assert torch.equal(twin.eval()(x, 0.1), net(x, 0.1))
        assert torch.equal(copy.deepcopy(net)(x, 0.1), net(x, 0.1))


@each
def test_new_weights_replace_remembered_ones(name: str, settings: dict[str, Any]) -> None:
    net, other, x = made(name, settings), made(name, settings, seed=5), uniform(2, 5, 6)
    with torch.no_grad():
        net(x, 0.1)
        net.load_state_dict(other.state_dict())
        assert torch.equal(net(x, 0.1), other(x, 0.1))
        next(net.parameters()).data.mul_(-0.5)
        recorded = x.clone()
    with torch.enable_grad():
        fresh = net(recorded.requires_grad_(), 0.1).detach()
    with torch.no_grad():
        close(net(x, 0.1), fresh, 1e-12)


def test_the_papers_network_is_what_the_paper_says() -> None:
    net = CNN()
    shapes = [tuple(p.shape) for p in net.parameters()]
    assert shapes == [(64, 1, 3, 3), (64, 64, 3, 3), (64, 64, 3, 3), (1, 64, 3, 3)]
    assert len(list(DnCNN().parameters())) == 34
    assert len(list(FFDNet().parameters())) == 30


def test_spectral_twin_has_layers_of_norm_one_on_its_size() -> None:
    torch.manual_seed(0)
    net = CNN(channels=6, spectral=True, size=7).double().requires_grad_(False)
    estimates = net.refine(500)
    for (weight, _), norm, conv in zip(net._weights(), estimates, net.convs, strict=True):
        basis = torch.eye(weight.shape[1] * 49, dtype=torch.float64).reshape(-1, weight.shape[1], 7, 7)
        matrix = torch.nn.functional.conv2d(basis, weight, padding=1).flatten(1)
        assert float(torch.linalg.matrix_norm(matrix, 2)) == pytest.approx(1, rel=1e-3)
        close(weight * norm, conv.weight, 1e-9)
    x = uniform(1, 8, 8)
    with torch.no_grad():
        before = net.train()(x)
        assert torch.equal(net(x), before), "a forward pass must not move the estimate"


def test_odd_sides_of_ffdnet_repeat_the_last_row_and_column() -> None:
    net, x = made("ffdnet", {"layers": 3, "channels": 8}), uniform(2, 5, 7)
    extended = torch.cat([x, x[:, -1:]], 1)
    extended = torch.cat([extended, extended[..., -1:]], 2)
    with torch.no_grad():
        close(net(x, 0.2), net(extended, 0.2)[:, :5, :7])


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("vnet", {}, "network 'vnet' is not known; did you mean .*unet"),
        ("cnn", {"depth": 4}, "network 'cnn' has no setting 'depth'; it takes layers, channels"),
        ("cnn", {"layers": 1}, "CNN: layers must be a whole number from 2 to 500, got 1"),
        ("cnn", {"channels": "64"}, "CNN: channels must be a whole number from 1 to 65536, got '64'"),
        ("cnn", {"bias": 1}, "CNN: bias must be true or false, got 1"),
        ("ffdnet", {"layout": "caffe"}, "FFDNet: layout must be one of kair, ipol, got 'caffe'"),
        ("certified", {"kappa": 1.0, "contraction": None}, "Certified: kappa must be a number between 0 and 1, got 1"),
        ("certified", {"kappa": float("nan")}, "Certified: kappa must be a number between 0 and 1, got nan"),
        ("certified", {"contraction": 1.5}, "Certified: contraction must be a number between 0 and 1, got 1.5"),
        ("certified", {"channels": 3}, "Certified: channels must be at least unshuffle² = 4, got 3"),
        ("gradient_step", {"kernel": 4}, "GradientStep: kernel must be odd, got 4"),
        ("rnn", {"channels": 0}, "BidirectionalRNN: channels must be a whole number from 1 to 65536, got 0"),
    ],
)
def test_bad_settings_are_named(name: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match="^" + message.replace("²", ".")):
        build(name, settings)


def test_every_architecture_builds_with_its_defaults() -> None:
    for name, kind in NETWORKS.items():
        net = build(name, {})
        assert type(net) is kind
        assert isinstance(next(net.parameters()), Tensor)
        assert all(p.dtype == torch.float32 for p in net.parameters())
