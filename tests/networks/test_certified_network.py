"""The bound of 1 holds at every point, for every weight; and the measurement would notice if it did not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from laws import close, forward_mode, normal, uniform
from unsnap.errors import InputError
from unsnap.networks import Capture, Certified, certified
from unsnap.networks.rowsums import gram_sums, row_sums, squared_norm
from unsnap.operators import Snapshot

SETTINGS: list[dict[str, Any]] = [
    {"blocks": 3, "channels": 6, "hidden": 10},
    {"blocks": 2, "channels": 5, "hidden": 7, "temporal": True},
    {"blocks": 2, "channels": 1, "hidden": 4, "unshuffle": 1},
    {"blocks": 1, "channels": 12, "hidden": 8, "unshuffle": 3, "kappa": 0.9},
    {"blocks": 2, "channels": 5, "hidden": 7, "temporal": True, "bound": "row_sums"},
    {"blocks": 2, "channels": 5, "hidden": 7, "temporal": True, "activation": "clip"},
    {"blocks": 2, "channels": 13, "hidden": 7, "temporal": True, "activation": "clip", "neighbours": 1},
]
NAMES = ("space", "time", "flat", "thirds", "row sums", "clip", "neighbours")
BOUNDS = pytest.mark.parametrize("bound", certified.BOUNDS)
WEIGHTS = ("random", "huge", "tiny", "smooth", "uneven", "dead")
# All weights with each of the two bounds, which are what depends on them; other shapes of networks with two.
each = pytest.mark.parametrize(
    ("settings", "weights"),
    [
        pytest.param(settings, weights, id=f"{weights}-{name}")
        for name, settings in zip(NAMES, SETTINGS, strict=True)
        for weights in (WEIGHTS if name in ("space", "row sums", "clip") else ("random", "smooth"))
    ],
)


def made(settings: dict[str, Any], weights: str = "random", seed: int = 0) -> Certified:
    """A network in float64 whose weights are random, out of scale, or like trained ones (smooth, of one sign)."""
    torch.manual_seed(seed)
    net = Certified(**{"contraction": None, **settings}).double().eval().requires_grad_(False)
    scale = {"huge": 100.0, "tiny": 1e-6}.get(weights, 1.0)
    with torch.no_grad():
        for block in [*net.space, *net.time]:
            block.bias.add_(0.3 * normal(*block.bias.shape, seed=seed + 1))
            block.weight.mul_(scale)
            block.log_q.add_(3)  # as far from the identity as the bound allows
            if weights == "smooth":
                block.weight.copy_(block.weight.abs() + 0.2)
            if weights == "uneven":
                block.log_q.add_(normal(*block.log_q.shape, seed=seed + 2))
                block.weight.mul_(normal(len(block.weight), 1, 1, 1, seed=3).exp())
            if weights == "dead":
                block.weight[::2] = 0
    return net


def measured(net: Certified, x: Tensor, steps: int = 15) -> float:
    """The largest ‖J‖ of N at the points x (n, T, H, W) by power iteration on JᵀJ; a lower bound."""

    def length(u: Tensor) -> Tensor:
        return u.square().sum((-3, -2, -1), keepdim=True).sqrt()

    _, pull = torch.func.vjp(net.nonexpansive, x)
    v = normal(*x.shape, seed=7)
    size = 0.0
    for _ in range(steps):
        _, forward = torch.func.jvp(net.nonexpansive, (x,), (v / length(v).clamp(min=1e-300),))
        size = max(size, float(length(forward).max()))
        (v,) = pull(forward)
    return size


@forward_mode
@each
def test_no_jacobian_exceeds_the_bound(settings: dict[str, Any], weights: str) -> None:
    net = made(settings, weights)
    assert measured(net, torch.stack([uniform(2, 6, 7), 10 * uniform(2, 6, 7, seed=1) - 5])) <= 1 + 1e-12


@forward_mode
@BOUNDS
def test_the_measurement_has_teeth(monkeypatch: pytest.MonkeyPatch, bound: str) -> None:
    """With T a third of what it must be, the same measurement finds expansion."""
    nets = [made({**SETTINGS[0], "bound": bound}, "smooth") for _ in range(2)]  # each remembers its own T
    with torch.no_grad():
        for block in (*nets[0].space, *nets[1].space):
            block.bias.fill_(3)
    x = uniform(1, 2, 8, 8)
    assert 0.5 < measured(nets[0], x) <= 1 + 1e-12
    honest = certified._inverse
    monkeypatch.setattr(certified, "_inverse", lambda *arguments: 3 * honest(*arguments))
    net = nets[1]
    assert measured(net, x) > 1.1
    report = net.lipschitz_bound()
    assert report["kind"] == "none"
    assert report["bound"] > 1.5


@each
def test_pairs_searched_for_expansion_do_not_expand(settings: dict[str, Any], weights: str) -> None:
    """Gradient ascent on ‖N(a) − N(b)‖ / ‖a − b‖."""
    net = made(settings, weights)
    a = uniform(2, 6, 6)
    pair = torch.stack([a, a + 0.3 * normal(2, 6, 6, seed=3)]).requires_grad_()
    optimiser = torch.optim.Adam([pair], lr=0.05)
    best = 0.0
    for _ in range(30):
        optimiser.zero_grad()
        ratio = net.nonexpansive(pair).diff(dim=0).norm() / pair.diff(dim=0).norm()
        best = max(best, float(ratio.detach()))
        (-ratio).backward()
        optimiser.step()
    assert 0.3 < best <= 1 + 1e-12


@each
def test_distances_never_grow(settings: dict[str, Any], weights: str) -> None:
    """For D itself, far and near pairs, in the precision it is used in, through the fast kernels."""
    net = made(settings, weights).float()
    rounding = 20 * torch.finfo(torch.float32).eps
    with torch.no_grad():
        for k, size in enumerate((10.0, 1.0, 0.1, 1e-3)):
            a = uniform(3, 9, 7, seed=k).float()
            b = a + size * normal(3, 9, 7, seed=k + 10).float()
            moved = (net(a, 0.1) - net(b, 0.1)).double().norm()
            assert moved <= (a - b).double().norm() + rounding * (a.norm() + b.norm())


@each
def test_evidence(settings: dict[str, Any], weights: str) -> None:
    net = made(settings, weights).float()
    report = net.lipschitz_bound()
    assert report["bound"] == 1
    assert report["kind"] == "averaged and clamped"
    assert len(report["layers"]) == settings["blocks"] * (2 if settings.get("temporal") else 1)
    for layer in report["layers"]:
        assert layer["bound"] == 1
        assert 1 - 1e-5 < layer["squared_norm"] <= 1
        assert layer["row_sum"] >= 0.92 * layer["squared_norm"]  # the coarser bound, but for what lies between the grid


@pytest.mark.parametrize("frames", [1, 2, 5])
def test_every_frame_between_its_neighbours_is_an_isometry_and_its_way_back_the_adjoint(frames: int) -> None:
    """So that blocks without effect leave the video as it is, its first and last frame too."""
    x = uniform(2, frames, 4, 5)
    z = certified._beside_neighbours(x)
    close(z.square().sum(), x.square().sum())
    close(certified._back_together(z, frames), x)
    other = normal(*z.shape, seed=1)
    close((z * other).sum(), (x * certified._back_together(other, frames)).sum())
    net = made(SETTINGS[-1])
    with torch.no_grad():
        for block in [*net.space, *net.time]:
            block.weight.zero_()
    close(net.nonexpansive(x), x)


def test_neighbours_need_room() -> None:
    with pytest.raises(InputError, match="3 unshuffle² = 12, got 11"):
        Certified(channels=11, neighbours=6)
    with pytest.raises(InputError, match="at most 2, got 3"):
        Certified(blocks=2, neighbours=3)


def test_blocks_without_neighbours_come_first() -> None:
    """A network that was given blocks with neighbours goes on from what it did; all of its blocks may have them."""
    small, large, all_of_them = (
        made({**SETTINGS[-1], "blocks": b, "neighbours": n}) for b, n in ((1, 0), (2, 1), (1, 1))
    )
    large.load_state_dict(small.state_dict(), strict=False)
    all_of_them.load_state_dict({k.replace(".1.", ".0."): v for k, v in large.state_dict().items() if ".1." in k})
    x = uniform(2, 3, 6, 8)
    close(large.nonexpansive(x, 0.1), all_of_them.nonexpansive(small.nonexpansive(x, 0.1), 0.1))


@pytest.mark.parametrize(("said", "count"), [(False, 0), (True, 2)])
def test_files_that_say_whether_and_not_how_many(said: bool, count: int) -> None:
    assert Certified(blocks=2, channels=12, hidden=4, neighbours=said).settings["neighbours"] == count


@BOUNDS
def test_new_blocks_are_near_the_identity(bound: str) -> None:
    """With either bound they begin alike, whatever their size, and log_q alone takes them further."""
    for settings in SETTINGS[:4]:
        net = Certified(**{**settings, "bound": bound})
        for layer in net.lipschitz_bound()["layers"]:
            assert layer["squared_norm"] == pytest.approx(certified.REACH if bound == "frequencies" else 1, rel=1e-3)


def test_evidence_of_broken_weights_is_no_evidence() -> None:
    net = made(SETTINGS[0])
    net.space[0].weight.data[0, 0, 0, 0] = torch.nan
    report = net.lipschitz_bound()
    assert report["kind"] == "none"
    assert report["bound"] == float("inf")


def test_row_sums_dominate_the_gram_matrix_of_the_padded_convolution() -> None:
    weight, log_q = normal(4, 3, 3, 3), normal(4, seed=1)
    basis = torch.eye(3 * 30, dtype=torch.float64).reshape(-1, 3, 5, 6)
    k = torch.nn.functional.conv2d(basis, weight, padding=1).flatten(1).T
    t = row_sums(weight, log_q).repeat_interleave(30).diag()
    assert float(torch.linalg.eigvalsh(t - k @ k.T).min()) > 0
    assert float(squared_norm(weight)) >= float(torch.linalg.matrix_norm(k, 2)) ** 2
    # The Perron weights reach the spectral radius of the matrix of sums, the least any weights can.
    least = float(torch.linalg.eigvalsh(gram_sums(weight)).max())
    assert least <= float(squared_norm(weight)) <= least * (1 + 1e-5)


def test_clamp_contraction_and_average() -> None:
    x, z = 4 * uniform(2, 6, 6) - 2, 4 * uniform(2, 6, 6, seed=1) - 2
    plain, clamped = made({**SETTINGS[0], "clamp": False}), made(SETTINGS[0])
    strict = made({**SETTINGS[0], "contraction": 0.8})
    with torch.no_grad():
        assert float(clamped(x).min()) >= 0
        assert float(clamped(x).max()) <= 1
        close(clamped(x), plain(x).clamp(0, 1))
        close(strict(x), 0.5 + 0.8 * (clamped(x) - 0.5))
        close(plain(x), 0.5 * x + 0.5 * plain.nonexpansive(x), 1e-4)
        assert (strict(x) - strict(z)).norm() <= 0.8 * (x - z).norm()
    assert strict.lipschitz_bound()["bound"] == 0.8
    assert strict.lipschitz_bound()["kind"] == "contraction"
    assert plain.lipschitz_bound()["kind"] == "averaged"


HOSTILE = {
    "true": lambda x: x,
    "black": lambda x: 0 * x,
    "nearly black": lambda x: 0.01 * x,
    "negative": lambda x: -x,
    "absurd": lambda x: 1e6 * normal(*x.shape, seed=9),
    "broken": lambda x: torch.where(x > 0.5, torch.nan, x),
}


@pytest.mark.parametrize("start", HOSTILE.values(), ids=HOSTILE)
def test_anchors_are_videos_and_never_black(start: Any) -> None:
    """So D lies between (1 − c)r and (1 − c)r + c, and no output is shorter than (1 − c) FLOOR."""
    net, x, phi = made({**SETTINGS[0], "contraction": 0.8}, "huge"), uniform(3, 4, 8, 7), Snapshot(uniform(4, 8, 7))
    capture = Capture(phi.A(x), phi, start(x))
    anchor, denoise = certified._anchor(capture.start), net.condition(capture)
    assert float(anchor.min()) >= 0
    assert float(anchor.max()) <= 1
    assert float(anchor.mean((-3, -2, -1)).min()) >= certified.FLOOR * (1 - 1e-12)
    with torch.no_grad():
        out = denoise(1e3 * normal(*x.shape, seed=3), 0.1)
        a, b = normal(*x.shape, seed=4), normal(*x.shape, seed=5)
        assert (denoise(a, 0.0) - denoise(b, 0.0)).norm() <= 0.8 * (a - b).norm()
        rows = torch.tensor([0, 2])
        close(net.condition(capture.select(rows))(x[rows], 0.1), denoise(x, 0.1)[rows])
    assert float((out - 0.2 * anchor).min()) >= -1e-12
    assert float((out - 0.2 * anchor).max()) <= 0.8 + 1e-12


def test_a_good_start_is_the_anchor_itself() -> None:
    x = uniform(2, 4, 8, 7)
    assert torch.equal(certified._anchor(x), x)


def test_an_averaged_network_has_no_anchor() -> None:
    net, phi = made(SETTINGS[0]), Snapshot(uniform(4, 8, 8))
    assert net.condition(Capture(uniform(1, 8, 8), phi, uniform(1, 4, 8, 8))) is net


def test_temporal_blocks_see_the_neighbouring_frames_and_no_others() -> None:
    """A block looks one frame ahead and back, twice: once for the hidden maps, once on the way out."""
    net, x = made(SETTINGS[1] | {"blocks": 1}), uniform(7, 6, 6)
    changed = x.clone()
    changed[3] += 0.2
    with torch.no_grad():
        moved = (net(changed) - net(x)).abs().amax((-2, -1)) > 1e-9
    assert moved.tolist() == [False, True, True, True, True, True, False]


def test_sigma_shifts_the_result_without_touching_the_bound() -> None:
    net, x = made(SETTINGS[0]), uniform(2, 6, 6)
    with torch.no_grad():
        for block in net.space:
            block.noise.copy_(normal(*block.noise.shape, seed=4))
        assert float((net(x, 0.0) - net(x, 0.5)).norm()) > 1e-3
        for sigma in (0.0, 0.5, 100.0):
            a, b = uniform(2, 6, 6, seed=1), uniform(2, 6, 6, seed=2)
            assert (net(a, sigma) - net(b, sigma)).norm() <= (a - b).norm()


def test_weights_are_not_rearranged_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    net, x = made(SETTINGS[0]), uniform(2, 6, 6)
    with torch.no_grad():
        net(x)
        monkeypatch.setattr(certified, "_inverse", None)
        net(x)
        net.space[0].weight.mul_(1.1)
        with pytest.raises(TypeError):
            net(x)


@forward_mode
def test_what_is_remembered_of_weights_takes_no_derivative_away() -> None:
    """Neither that of x through frozen weights, nor that of the weights by any route of torch."""
    frozen, net, x = made(SETTINGS[0]), made(SETTINGS[0]).requires_grad_(), uniform(2, 6, 6)
    weight, direction = net.space[0].weight, normal(*net.space[0].weight.shape, seed=3)

    def loss(weight: Tensor) -> Tensor:
        return torch.func.functional_call(frozen, {"space.0.weight": weight}, (x,)).square().sum()

    (expected,) = torch.autograd.grad(net(x).square().sum(), weight)
    with torch.inference_mode():
        frozen(x)  # fills the memory
    tracked = x.clone().requires_grad_()
    (found,) = torch.autograd.grad(frozen(tracked).square().sum(), tracked)
    (wanted,) = torch.autograd.grad(net(tracked).square().sum(), tracked)
    assert torch.equal(found, wanted)
    close(torch.func.grad(loss)(weight.detach()), expected)
    slope = torch.func.jvp(loss, (weight.detach(),), (direction,))[1]
    close(slope, (expected * direction).sum(), 1e-10)
    assert float(expected.norm()) > 1e-3
