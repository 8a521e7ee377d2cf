"""Published networks that are a reconstruction or a stage of one: of the published size, for any video."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from laws import close, uniform
from unsnap import GAP, Snapshot, Unfolded
from unsnap.algorithms import Recurrent
from unsnap.errors import InputError
from unsnap.masks import bernoulli
from unsnap.models.cost import cost
from unsnap.networks import Birnat, EfficientSCI, FullUNet, StageUNet, STFormer
from unsnap.networks.birnat import _Attention
from unsnap.networks.spacetime import SpaceTimeConv
from unsnap.networks.stformer import WINDOW, TimeAttention, WindowAttention
from unsnap.operators import Multishot
from unsnap.training import preset

SMALL = {
    "unet": (GAP(), lambda: FullUNet(4, 12)),
    "gap-net": (GAP(), lambda: StageUNet(4, 4)),
    "stformer": (GAP(), lambda: STFormer(4, 1, 4)),
    "efficientsci": (Recurrent(), lambda: EfficientSCI(8, 1)),
    "birnat": (Recurrent(), lambda: Birnat(4)),
}


PUBLISHED: dict[str, tuple[dict[str, Any], float, int]] = {
    "unet": ({}, 0.82, 53),
    "gap-net": ({}, 5.62, 78),
    "efficientsci": ({}, 0.95, 142),
    "efficientsci, base": ({"settings": {"width": 64, "blocks": 8, "groups": 4}}, 8.82, 1426),
    "stformer": ({}, 1.23, 192),
}
"""Presets: parameters in millions and 10⁹ multiply-adds for 8 frames of 256×256, as their papers print them."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_weights_and_operations_are_those_published(name: str) -> None:
    """Of what `unsnap train --model` makes."""
    changes, millions, gmac = PUBLISHED[name]
    with torch.device("meta"):  # what is counted are shapes: no weight has to be drawn
        counted = cost(preset(name.partition(",")[0], minutes=1, **changes).model())
    assert counted.parameters / 1e6 == pytest.approx(millions, abs=0.0051)
    assert counted.gmac == pytest.approx(gmac, abs=1.0)


def small(name: str) -> Unfolded:
    torch.manual_seed(0)
    iteration, make = SMALL[name]
    return Unfolded(iteration, make(), [0.0]).eval()


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("video", [(4, 16, 16), (1, 9, 10), (3, 8, 17), (7, 5, 3)])
@torch.no_grad()
def test_any_video_and_every_sample_by_itself(name: str, video: tuple[int, int, int]) -> None:
    model = small(name)
    phi = Snapshot(bernoulli(*video, generator=torch.Generator().manual_seed(0)))
    y = phi.A(uniform(2, *video, dtype=torch.float32))
    together = model(y, phi).x
    assert together.shape == (2, *video)
    assert bool(torch.isfinite(together).all())
    close(torch.stack([model(each, phi).x for each in y]), together, 1e-5)


@pytest.mark.parametrize("name", SMALL)
@torch.no_grad()
def test_the_scale_of_masks_does_not_matter(name: str) -> None:
    model, x = small(name), uniform(4, 16, 16, dtype=torch.float32)
    masks = bernoulli(4, 16, 16, generator=torch.Generator().manual_seed(0))
    grey = Snapshot(113 * masks)
    close(model(grey.A(x), grey).x, model(Snapshot(masks).A(x), Snapshot(masks)).x, 1e-5)


@pytest.mark.parametrize("name", ["efficientsci", "birnat"])
@torch.no_grad()
def test_several_shots_are_served(name: str) -> None:
    phi = Multishot(bernoulli(8, 12, 12, generator=torch.Generator().manual_seed(0)).reshape(2, 4, 12, 12))
    assert small(name)(phi.A(uniform(4, 12, 12, dtype=torch.float32)), phi).x.shape == (4, 12, 12)


@pytest.mark.parametrize(("size", "stride"), [(3, 1), (3, 2), ((1, 3, 3), 1), ((3, 7, 7), 1), (5, 1), (1, 1)])
@pytest.mark.parametrize("frames", [1, 2, 5])
def test_convolution_frame_by_frame_is_torchs(size: int | tuple[int, int, int], stride: int, frames: int) -> None:
    conv = SpaceTimeConv(3, 4, size, stride).double()
    u = uniform(2 * frames, 3, 8, 6).requires_grad_()
    ours = conv(u, frames)
    plain = nn.Conv3d.forward(conv, u.unflatten(0, (2, frames)).transpose(1, 2)).transpose(1, 2).flatten(0, 1)
    close(ours.detach(), plain.detach(), 1e-12)
    weight = torch.randn(ours.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    close(torch.autograd.grad(ours, u, weight)[0], torch.autograd.grad(plain, u, weight)[0], 1e-12)


@torch.no_grad()
def test_attention_in_time_is_the_sum_that_defines_it() -> None:
    torch.manual_seed(0)
    attention = TimeAttention(8, heads=2, bias=True, frames=3).double()
    attention.relative_position_bias_table.normal_()
    u = uniform(5, 1, 1, 8)  # one pixel in five frames, two more than have a position of their own
    q, k, v = attention.qkv(u[:, 0, 0]).reshape(5, 3, 2, 2).unbind(1)
    found = torch.zeros(5, 2, 2).double()
    for head in range(2):
        for t in range(5):
            apart = [max(-2, min(2, t - s)) + 2 for s in range(5)]
            place = attention.relative_position_bias_table[apart, head]
            scores = (k[:, head] @ q[t, head]) * 4**-0.5 + place
            found[t, head] = scores.softmax(0) @ v[:, head]
    close(attention(u, 5)[:, 0, 0], attention.proj(found.flatten(1)), 1e-12)


@pytest.mark.parametrize("shift", [0, WINDOW // 2])
def test_attention_reaches_as_far_as_its_window(shift: int) -> None:
    """A token depends on exactly the tokens of its (shifted) window, never on those that a roll put beside it."""
    torch.manual_seed(0)
    attention, size = WindowAttention(8, shift).double(), 3 * WINDOW
    u = uniform(1, size, size, 8).requires_grad_()

    def window(n: int) -> int:
        return (n - shift) // WINDOW

    for at in [(0, 0), (1, 9), (10, 12), (size - 1, size - 1), (size - 1, 2)]:
        (gradient,) = torch.autograd.grad(attention(u)[0, at[0], at[1]].sum(), u, retain_graph=True)
        seen = gradient[0].abs().sum(-1) > 1e-12
        expected = torch.tensor(
            [[window(i) == window(at[0]) and window(j) == window(at[1]) for j in range(size)] for i in range(size)]
        )
        assert torch.equal(seen, expected)


@torch.no_grad()
def test_attention_over_all_pixels_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    attention, u = _Attention(8).double(), uniform(1, 8, 5, 7)
    attention.gamma1.fill_(0.5)
    whole = attention(u)
    monkeypatch.setattr("unsnap.networks.birnat._ROWS", 4)
    close(attention(u), whole, 1e-12)


@pytest.mark.parametrize(
    "make", [lambda: STFormer(1, 1), lambda: EfficientSCI(16, 1, 3), lambda: EfficientSCI(1, 1, 2)]
)
def test_widths_that_cannot_be_shared_are_refused(make: Callable[[], nn.Module]) -> None:
    with pytest.raises(InputError, match=r"share"):
        make()
