"""Both U-nets: any T, H, W and batch, and the capture as context; one treats all frames alike, one blends windows."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from laws import close, seeded, uniform
from unsnap.algorithms import GAP
from unsnap.errors import InputError
from unsnap.fixed_point import implicit
from unsnap.masks import bernoulli
from unsnap.models import Equilibrium
from unsnap.networks import Capture, Conditioned, ShiftUNet, UNet
from unsnap.networks.scales import _shifted
from unsnap.networks.shift import with_neighbours
from unsnap.networks.unet import WINDOW
from unsnap.networks.windows import blend, windows
from unsnap.operators import Snapshot

Made = Callable[..., Any]


def conditioned(net: Any, y: Tensor, masks: Tensor) -> Callable[[Tensor, float | Tensor], Tensor]:
    """The denoiser for snapshots (B, H, W), from the least-squares video."""
    phi = Snapshot(masks)
    return net.condition(Capture(y, phi, phi.A_dagger(y)))


def small(kind: type[ShiftUNet | UNet], context: bool = True) -> Any:
    torch.manual_seed(0)
    net = kind((4, 5, 6), (1, 1, 1), context=context).double()
    with torch.no_grad():
        net.noise.normal_(generator=seeded(1))
        net.leave.weight.mul_(3)
        if net.context is not None:
            net.context.weight.normal_(0, 0.1, generator=seeded(2))
    return net


@pytest.fixture(params=[ShiftUNet, UNet])
def made(request: pytest.FixtureRequest) -> Made:
    return partial(small, request.param)


@pytest.mark.parametrize("frames", [1, 2, 7, 8, 9, 12, 13, 24])
@torch.no_grad()
def test_any_number_of_frames(made: Made, frames: int) -> None:
    net, masks = made(), uniform(frames, 6, 6)
    x, y = uniform(1, frames, 6, 6, seed=1), uniform(1, 6, 6, seed=2)
    for out in (net(x, 0.1), conditioned(net, y, masks)(x, 0.1)):
        assert out.shape == x.shape
        assert bool(((out - x).abs().amax((-2, -1)) > 1e-4).all()), "every frame is worked on"


@pytest.mark.parametrize("size", [(1, 1), (1, 9), (5, 7), (8, 8), (9, 16), (51, 33)])
@torch.no_grad()
def test_any_size(made: Made, size: tuple[int, int]) -> None:
    net, masks = made(), uniform(9, *size)
    x, y = uniform(1, 9, *size, seed=1), uniform(1, *size, seed=2)
    out = conditioned(net, y, masks)(x, 0.1)
    assert out.shape == x.shape
    assert bool(torch.isfinite(out).all())


@pytest.mark.parametrize("frames", [3, 8, 11])
@torch.no_grad()
def test_any_batch(made: Made, frames: int) -> None:
    net, masks = made(), uniform(2, 3, frames, 5, 7)
    x, y, sigma = uniform(2, 3, frames, 5, 7, seed=1), uniform(2, 3, 5, 7, seed=2), uniform(2, 3, seed=3)
    plain = net(x, sigma)
    shared = conditioned(net, y.flatten(0, 1), masks[0, 0])(x.flatten(0, 1), 0.2)
    own = conditioned(net, y.flatten(0, 1), masks.flatten(0, 1))(x.flatten(0, 1), sigma.flatten())
    for n, (a, b) in enumerate(itertools.product(range(2), range(3))):
        one, snapshot, level = x[a, b][None], y[a, b][None], float(sigma[a, b])
        close(plain[a, b], net(x[a, b], level))
        close(shared[n], conditioned(net, snapshot, masks[0, 0])(one, 0.2)[0])
        close(own[n], conditioned(net, snapshot, masks[a, b])(one, level)[0])


@torch.no_grad()
def test_sigma_matters_and_must_fit(made: Made) -> None:
    net, x = made(), uniform(2, 4, 6, 6)
    assert float((net(x, 0.0) - net(x, 0.2)).norm()) > 1e-4
    close(net(x, torch.tensor([0.2]).double()), net(x, 0.2), 1e-7)
    with pytest.raises(ValueError, match="sigma must be one number, or one per sample"):
        net(x, torch.tensor([0.1, 0.2, 0.3]))


@pytest.mark.parametrize("frames", range(1, 25))
def test_windows_blend_into_what_they_were_cut_from(frames: int) -> None:
    x = uniform(2, frames, 3, 2)
    parts, starts = windows(x, WINDOW)
    assert parts.shape == (2 * len(starts), WINDOW, 3, 2)
    assert starts == sorted(set(starts))
    seen = {t for s in starts for t in range(s, min(s + WINDOW, frames))}
    assert seen == set(range(frames))
    close(blend(parts, starts, x.shape), x)


@torch.no_grad()
def test_all_frames_are_treated_alike() -> None:
    net, frame, mask = small(ShiftUNet), uniform(1, 6, 7), uniform(1, 6, 7, seed=1)
    still, phi = frame.expand(1, 9, 6, 7), Snapshot(mask.expand(9, 6, 7))
    video = net.condition(Capture(uniform(1, 6, 7, seed=2), phi, still))(still, 0.1)
    close(video, video[:, :1].expand_as(video), 1e-10)


@torch.no_grad()
def test_a_frame_reaches_others_and_only_near_ones() -> None:
    torch.manual_seed(0)
    net, x = ShiftUNet((16, 16, 16)).double(), uniform(40, 8, 8)
    changed = x.clone()
    changed[20] += 0.1
    change = (net(changed, 0.1) - net(x, 0.1)).abs().amax((-2, -1))
    assert float(change[19:22].min()) > 1e-4
    assert not bool(change[:14].any() or change[27:].any()), "one frame by the input, one by each of the five blocks"


def test_shifts_by_hand() -> None:
    u = uniform(2, 3, 4, 1, 1)
    expected = u.clone()
    expected[:, 1:, 0], expected[:, :-1, 1] = u[:, :-1, 0], u[:, 1:, 1]
    close(_shifted(u.flatten(0, 1), 3), expected.flatten(0, 1))
    x = uniform(2, 4, 2, 3)
    rows = with_neighbours(x).reshape(2, 4, 3, 2, 3)
    close(rows[:, :, 0], x[:, [0, 0, 1, 2]])
    close(rows[:, :, 1], x)
    close(rows[:, :, 2], x[:, [1, 2, 3, 3]])


@pytest.mark.parametrize("frames", [1, 5, 8, 13, 24])
@torch.no_grad()
def test_a_network_that_adds_nothing_returns_the_video(made: Made, frames: int) -> None:
    net, x = made(), uniform(frames, 5, 7)
    nn.init.zeros_(net.leave.weight)
    nn.init.zeros_(net.leave.bias)
    close(net(x, 0.3), x)


@torch.no_grad()
def test_single_precision_agrees(made: Made) -> None:
    net, masks = made(), uniform(10, 12, 9)
    x, y = uniform(1, 10, 12, 9, seed=1), uniform(1, 12, 9, seed=2)
    exact = conditioned(net, y, masks)(x, 0.1)
    single = conditioned(net.float(), y.float(), masks.float())(x.float(), 0.1)
    close(single, exact, 1e-5)


@pytest.mark.parametrize("frames", [3, 8, 12])
def test_the_context_is_the_same_with_and_without_gradients(made: Made, frames: int) -> None:
    net, masks = made(), uniform(frames, 6, 6)
    x, y = uniform(2, frames, 6, 6, seed=1), uniform(2, 6, 6, seed=2)
    denoise = conditioned(net, y, masks)
    with torch.no_grad():
        quick = [denoise(x, 0.1), denoise(x, 0.1)]
    slow = denoise(x, 0.1)
    for out in quick:
        close(out, slow.detach())
    assert float((slow - net(x, 0.1)).detach().norm()) > 1e-3, "the capture is seen"


@torch.no_grad()
def test_the_scale_of_the_masks_cancels(made: Made) -> None:
    net, masks, x, y = made(), uniform(4, 14, 15), uniform(1, 4, 14, 15, seed=1), uniform(1, 14, 15, seed=2)
    expected = conditioned(net, y, masks)(x, 0.0)
    for c in (255, 1e-9):
        close(conditioned(net, c * y, c * masks)(x, 0.0), expected, 1e-10)


@torch.no_grad()
def test_dark_pixels_stay_finite(made: Made) -> None:
    net, x, y = made(), uniform(1, 2, 8, 8), uniform(1, 8, 8)
    for masks in (torch.zeros(2, 8, 8).double(), torch.stack([torch.ones(8, 8), -torch.ones(8, 8)]).double()):
        assert bool(torch.isfinite(conditioned(net, y, masks)(x, 0.0)).all())


@torch.no_grad()
def test_without_context_the_capture_is_not_seen(made: Made) -> None:
    net, x = made(context=False), uniform(1, 4, 6, 6)
    close(conditioned(net, uniform(1, 6, 6), uniform(4, 6, 6))(x, 0.1), net(x, 0.1))


@torch.no_grad()
def test_masks_picture_and_start_are_all_seen(made: Made) -> None:
    net, masks, x, y = made(), uniform(4, 6, 6), uniform(1, 4, 6, 6, seed=1), uniform(1, 6, 6, seed=2)
    start = uniform(1, 4, 6, 6, seed=3)
    seen = net.condition(Capture(y, Snapshot(masks), start))(x, 0.1)
    half = torch.zeros_like(start)
    half[..., :3] = 0.1
    other = [
        (Capture(y, Snapshot(masks.flip(-1)), start), 0),
        (Capture(y.flip(-1), Snapshot(masks), start), 0),
        (Capture(y, Snapshot(masks), start + half), half / 2),
    ]
    for capture, added in other:
        assert float((net.condition(capture)(x, 0.1) - seen - added).norm()) > 1e-4


@torch.no_grad()
def test_the_noise_is_seen_by_the_one_that_takes_it() -> None:
    phi, y, x = Snapshot(uniform(4, 6, 6)), uniform(1, 6, 6, seed=1), uniform(1, 4, 6, 6, seed=2)
    captures = [Capture(y, phi, x) for _ in range(2)]
    vars(captures[1])["noise"] = torch.full_like(y, 0.1)
    for kind, seen in ((ShiftUNet, True), (UNet, False)):
        quiet, noisy = (small(kind).condition(capture)(x, 0.1) for capture in captures)
        assert (float((quiet - noisy).norm()) > 1e-4) == seen


def test_settings_rebuild_it_and_bad_ones_are_refused(made: Made) -> None:
    net = made()
    again = type(net)(**net.settings).double()
    again.load_state_dict(net.state_dict())
    with pytest.raises(InputError, match="channels"):
        type(net)((0, 4, 4))


class Damped(Conditioned):
    """A contraction, so that there is exactly one equilibrium."""

    def __init__(self, net: Any) -> None:
        super().__init__()
        self.net = net

    def condition(self, capture: Capture) -> Callable[[Tensor, float], Tensor]:
        denoise = self.net.condition(capture)
        return lambda x, sigma: 0.5 * denoise(x, sigma)


def test_implicit_gradients_equal_unrolled_ones(made: Made) -> None:
    model = Equilibrium(GAP(), Damped(made()), 0.1, backward=implicit(tol=1e-12, max_iter=200))
    phi = Snapshot(torch.stack([bernoulli(9, 6, 7, generator=seeded(k)).double() for k in range(2)]))
    y, direction = phi.A(uniform(2, 9, 6, 7)), uniform(2, 9, 6, 7, seed=3)
    solution = model(y, phi, tol=1e-13, max_iter=300)
    assert bool((solution.final < 1e-11).all())
    parameters = dict(model.named_parameters())
    found = torch.autograd.grad((direction * solution.x).sum(), list(parameters.values()))
    f, state = model.bind(y, phi), (phi.A_dagger(y),)
    for _ in range(60):
        state = f(state)
    close(state[0].detach(), solution.x.detach(), 1e-9)
    expected = torch.autograd.grad((direction * state[0]).sum(), list(parameters.values()))
    for name, a, b in zip(parameters, found, expected, strict=True):
        assert float(b.norm()) > 0, name
        close(a, b, 1e-7)
    assert "network.net.context.weight" in parameters
