"""The fast convolutions are the definition, rounded no worse; frames in chunks are frames at once."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from laws import close, normal
from unsnap.kernels import winograd
from unsnap.networks import CNN
from unsnap.networks.frames import conv_stack, frames_of, per_frame, plain_stack, sigma_of


def stack(*channels: int, bias: bool = True) -> list[tuple[Tensor, Tensor | None]]:
    sizes = list(itertools.pairwise(channels))
    return [
        (
            normal(b, a, 3, 3, seed=k, dtype=torch.float32) / (3 * a**0.5),
            normal(b, seed=k + 99).float() if bias else None,
        )
        for k, (a, b) in enumerate(sizes)
    ]


def exactly(
    layers: list[tuple[Tensor, Tensor | None]], x: Tensor, between: tuple[float, float] = winograd.RELU
) -> Tensor:
    return plain_stack([(w.double(), None if b is None else b.double()) for w, b in layers], x.double(), between)


@pytest.mark.parametrize(
    ("channels", "shape"),
    [
        ((1, 64, 64, 64, 1), (3, 40, 36)),
        ((5, 64, 64, 4), (2, 33, 31)),
        ((32, 64, 32), (1, 17, 50)),
        ((20, 24, 17), (2, 5, 3)),
        ((1, 3, 1), (1, 1, 1)),
        ((9, 9), (1, 7, 9)),
        ((2, 3), (2, 1, 13)),
        ((16, 1), (2, 13, 1)),
        ((3, 2, 5, 9), (1, 8, 9)),
        ((16, 3, 16), (2, 9, 9)),
        ((1, 16, 16, 1), (1, 600, 5)),
    ],
)
@pytest.mark.parametrize("bias", [True, False])
def test_fast_convolutions_are_the_definition(
    channels: tuple[int, ...], shape: tuple[int, int, int], bias: bool
) -> None:
    layers = stack(*channels, bias=bias)
    x = normal(shape[0], channels[0], *shape[1:], dtype=torch.float32)
    fast, truth = winograd.conv_stack(layers, x), exactly(layers, x)
    close(fast, truth, 2e-6)
    assert (fast - truth).abs().max() <= 1e-5 * truth.abs().max()


@pytest.mark.parametrize("channels", [(16, 32, 16), (1, 16, 20, 1), (4, 9, 9)])
def test_a_clip_between_layers(channels: tuple[int, ...]) -> None:
    layers, between = stack(*channels), (-0.3, 0.2)
    x = normal(2, channels[0], 13, 18, dtype=torch.float32)
    close(winograd.conv_stack(layers, x, between), exactly(layers, x, between), 2e-6)
    x[1] = torch.nan  # which no clip may hide
    assert bool(winograd.conv_stack(layers, x, between)[1].isnan().all())


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_and_strips_leave_every_pixel_alone(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(winograd, "STRIP", 1)  # as for an image too large for one piece: 128 rows at a time
    layers = stack(1, 16, 16, 1)
    x = normal(2, 1, 310, 40, dtype=torch.float32)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        out = winograd.conv_stack(layers, x)
    finally:
        torch.set_num_threads(before)
    close(out, exactly(layers, x), 2e-6)


def test_images_do_not_leak_into_each_other() -> None:
    """The buffers of one image serve the next; an image of NaN between two others must leave no trace."""
    layers = stack(1, 16, 16, 1)
    x = normal(3, 1, 21, 30, dtype=torch.float32)
    x[1] = torch.nan
    out = winograd.conv_stack(layers, x)
    assert torch.equal(out[::2], winograd.conv_stack(layers, x[::2]))
    assert bool(out[1].isnan().all())


def test_strange_strides_and_dtypes_are_read_correctly() -> None:
    layers = stack(4, 16, 4)
    x = normal(2, 8, 12, 4, dtype=torch.float32).permute(0, 3, 2, 1)
    turned = [(w.flip(0), None) for w, _ in layers]
    close(winograd.conv_stack(turned, x), exactly(turned, x), 2e-6)


def test_changed_weights_are_noticed() -> None:
    layers = stack(1, 32, 32, 1)
    x = normal(1, 1, 16, 16, dtype=torch.float32)
    with torch.no_grad():
        conv_stack(layers, x)
        layers[1][0].data.mul_(-3)
        close(conv_stack(layers, x), exactly(layers, x), 2e-6)


def test_gradients_take_the_plain_path_and_agree() -> None:
    net = CNN(channels=16)
    x = normal(2, 3, 10, 12, dtype=torch.float32)
    recorded = net(x.requires_grad_(), 0.0)
    (slope,) = torch.autograd.grad(recorded.sum(), x)
    assert slope.shape == x.shape
    with torch.no_grad():
        close(net(x, 0.0), recorded, 2e-6)


def test_chunks_are_the_whole() -> None:
    layers = [(w.double(), None) for w, _ in stack(1, 8, 8, 1)]
    x = normal(7, 1, 9, 11)
    net = lambda z: plain_stack(layers, z)  # noqa: E731
    with torch.no_grad():
        whole = net(x)
        for chunk in (1, 2, 3, 7, 20):
            close(per_frame(net, x, chunk), whole)


def test_sigma_goes_to_every_frame_of_its_sample() -> None:
    x = torch.zeros(2, 3, 4, 5)
    values = sigma_of(torch.tensor([0.1, 0.2]), x)
    assert values.flatten().tolist() == pytest.approx([0.1] * 3 + [0.2] * 3)
    assert sigma_of(0.5, x).shape == (6, 1, 1, 1)
    with pytest.raises(ValueError, match=r"one per sample \(2,\), got shape \(3,\)"):
        sigma_of(torch.ones(3), x)
    with pytest.raises(ValueError, match="axes"):
        frames_of(torch.zeros(4, 4))
