"""Every ready-made recipe reconstructs every kind of capture it may meet."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from laws import close, seeded
from unsnap import masks, methods, metrics, simulate
from unsnap.errors import InputError
from unsnap.kernels import threads
from unsnap.methods import METHODS
from unsnap.methods.method import SHIPPED
from unsnap.operators import RGB, Bayer, Multishot, Snapshot
from unsnap.operators.bayer import mosaic
from unsnap.run import reconstruct

FRAMES, HEIGHT, WIDTH = 5, 22, 18
VIDEO = simulate.render(FRAMES, HEIGHT, WIDTH, seed=1)
BINARY = masks.bernoulli(FRAMES, HEIGHT, WIDTH, generator=seeded())


# What needs other people's weights or packages is tried with stand-ins in test_plug_and_play.py and priors/test_bm.py.
# DeSCI, which takes minutes for what gap-wnnm does in seconds, has its own laws in priors/test_wnnm.py; the finer
# grades of gap-wnnm are the same code with larger numbers.
SLOW = ("desci", "gap-wnnm-fine", "gap-wnnm-best", "shift-wnnm-fine")
SPARSE = ("interpolation",)  # for shutters open in few frames only: models/test_interpolation.py
OURS = [name for name, method in METHODS.items() if method.needs in ("", SHIPPED) and name not in SLOW + SPARSE]


@pytest.fixture(params=OURS)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


def few(name: str, usual: int | None = None) -> int | None:
    """Iterations for laws that hold at every number of them: the slowest recipe takes long for all of its own."""
    usual = {"gmm-online": 2}.get(name, usual)
    return None if usual is None else at_most(name, usual)


def at_most(name: str, count: int) -> int:
    """An unfolded model has so many stages and no more."""
    return min(count, METHODS[name].iterations) if METHODS[name].family == "unfolded" else count


def quality(estimate: Tensor, truth: Tensor = VIDEO) -> float:
    return float(metrics.psnr(estimate, truth).mean())


def dead(code: Tensor) -> Tensor:
    """A hot row and scattered pixels that see nothing."""
    alive = (torch.rand(code.shape[-2:], generator=seeded(5)) > 0.02).to(code)
    alive[7] = 0
    return code * alive


def test_beats_least_squares_and_converges(name: str) -> None:
    phi = Snapshot(masks.gray(FRAMES, HEIGHT, WIDTH, generator=seeded(1)))
    y = phi.A(VIDEO)
    solution = METHODS[name](y, phi)
    assert bool(solution.converged)
    assert not bool(solution.diverged)
    assert bool(torch.isfinite(solution.x).all())
    assert quality(solution.x) > quality(phi.A_dagger(y)) + 4
    assert METHODS[name].early or solution.iterations == METHODS[name].iterations, "a schedule runs to its end"
    assert not solution.x.requires_grad


def test_difficult_masks_do_not_diverge(name: str) -> None:
    """Shifted ones with dead pixels, and beside them, in one batch, negative ones of 8 bits."""
    phi = Snapshot(torch.stack([dead(masks.shifted(FRAMES, HEIGHT, WIDTH, generator=seeded(2))), -255 * BINARY]))
    y = phi.A(VIDEO.expand(2, -1, -1, -1))
    solution = METHODS[name](y, phi, iterations=few(name))
    assert not bool(solution.diverged.any())
    for x, free in zip(solution.x, phi.A_dagger(y), strict=True):
        assert quality(x) >= quality(free)
        assert x.abs().max() < 3


@pytest.mark.parametrize("frames", [1, 8])
def test_any_number_of_frames(name: str, frames: int) -> None:
    truth = simulate.render(frames, 19, 16, seed=2)
    phi = Snapshot(0.1 + 0.9 * masks.bernoulli(frames, 19, 16, generator=seeded(3)))
    y = phi.A(truth)
    solution = METHODS[name](y, phi, iterations=few(name, 8))
    assert solution.x.shape == truth.shape
    assert not bool(solution.diverged)
    assert quality(solution.x, truth) > (20 if frames == 1 else quality(phi.A_dagger(y), truth))


def test_a_batch_is_its_samples(name: str) -> None:
    part = VIDEO[:, :16, :18]
    video = torch.stack([part, 0.3 * part.flip(-1)])
    phi = Snapshot(BINARY[:, :16, :18].contiguous())
    together = METHODS[name](phi.A(video), phi, iterations=few(name, 6))
    # Anderson's small systems amplify the rounding of float32 convolutions, up to the tolerance it solves to.
    tol = METHODS[name].tol if METHODS[name].family == "equilibrium" else 1e-5
    for n in range(2):
        close(METHODS[name](phi.A(video[n]), phi, iterations=few(name, 6)).x, together.x[n], max(tol, 1e-5))


def test_the_default_is_worth_its_network() -> None:
    """It is gap-wnnm but for what it begins with: without a gain, the network would only cost time."""
    video = torch.stack([simulate.render(8, 64, 64, seed=seed) for seed in (31, 32, 33)])
    phi = Snapshot(masks.bernoulli(8, 64, 64, generator=seeded(7)))
    y = phi.A(video)
    without, found = (metrics.psnr(METHODS[n](y, phi).x, video).mean(-1) for n in ("gap-wnnm", methods.DEFAULT))
    assert bool((found > without).all()), (without, found)
    assert float((found - without).mean()) > 0.25, (without, found)


UNLIKE = [n for n in OURS if METHODS[n].family == "optimisation"] + [
    "gap-tv3d",
    "gap-wnnm",
    "shift-wnnm",
    "interpolation",
]


@pytest.mark.parametrize("name", UNLIKE)
def test_masks_of_another_kind_leave_a_neighbour_alone(name: str) -> None:
    """One much brighter, and one that is open in one of sixteen frames, which begins differently."""
    size = 16, 16, 16
    video = torch.stack([simulate.render(*size, seed=seed) for seed in range(3)])
    bright, usual = 50 * masks.gray(*size, generator=seeded(1)), masks.bernoulli(*size, generator=seeded(2))
    sparse = torch.nn.functional.one_hot(torch.randint(16, size[1:], generator=seeded(3)), 16).movedim(-1, 0).float()
    phi = Snapshot(torch.stack([bright, usual, sparse]))
    y = phi.A(video)
    together = METHODS[name](y, phi, iterations=6).x
    for n, code in enumerate((bright, usual, sparse)):
        close(METHODS[name](y[n], Snapshot(code), iterations=6).x, together[n], 1e-4)


@pytest.mark.parametrize("wrong", [0, -1, 2.5])
def test_no_iterations_are_refused(name: str, wrong: int) -> None:
    with pytest.raises(InputError, match="iterations must be a whole number of at least 1"):
        METHODS[name](Snapshot(BINARY).A(VIDEO), Snapshot(BINARY), iterations=wrong)


def test_no_snapshots_are_no_videos(name: str) -> None:
    found = METHODS[name](VIDEO.new_zeros(0, HEIGHT, WIDTH), Snapshot(BINARY))
    assert (found.x.shape, found.converged.shape, found.iterations) == ((0, *VIDEO.shape), (0,), 1)


@pytest.mark.parametrize("name", [n for n in OURS if issubclass(Multishot, METHODS[n].serves)])
def test_several_shots_help(name: str) -> None:
    """Whatever needs only the base of all cameras serves this one too, the default included."""
    video = simulate.render(FRAMES, 48, 48, seed=1)[:, :28, :26]  # not so small that chance decides
    code = torch.stack([masks.bernoulli(*video.shape, generator=seeded(seed)) for seed in (0, 8)])
    both = METHODS[name](Multishot(code).A(video), Multishot(code))
    one = METHODS[name](Snapshot(code[0]).A(video), Snapshot(code[0]))
    assert bool(both.converged)
    assert quality(both.x, video) > quality(one.x, video) + 1


def test_arguments_override_the_recipe(name: str) -> None:
    phi, seen = Snapshot(BINARY), []
    y = phi.A(VIDEO)
    solution = METHODS[name](y, phi, iterations=3, callback=lambda k, x, r: seen.append(k))
    assert [k for k in seen if k > 0] == [1, 2, 3]
    assert solution.iterations == 3
    assert seen == sorted(seen), "a start counts up to 0"
    if METHODS[name].family == "unfolded":
        for options in ({"tol": 0.9}, {"iterations": METHODS[name].iterations + 1}):
            with pytest.raises(InputError, match="stages"):
                METHODS[name](y, phi, **options)
    else:
        assert METHODS[name](y, phi, tol=0.9).iterations < 5  # a tolerance of one's own stops early


@pytest.mark.parametrize("size", [(8, 12, 40), (4, 3, 5)], ids=str)
def test_the_default_of_a_picture_too_small_for_patches_is_the_networks_video(size: tuple[int, int, int]) -> None:
    frames, height, width = size
    truth = simulate.render(frames, 48, 48, seed=0)[:, :height, :width]
    phi = Snapshot(masks.bernoulli(*size, generator=seeded()))
    found = METHODS[methods.DEFAULT](phi.A(truth), phi).x
    assert torch.equal(found, METHODS["shift-net"](phi.A(truth), phi).x)


def test_the_default_beats_what_needs_no_weights() -> None:
    phi = Snapshot(BINARY)
    y = phi.A(VIDEO)
    fast = ("gap-tv", "gap-tv3d", "gap-wavelet")
    assert quality(METHODS[methods.DEFAULT](y, phi).x) > max(quality(METHODS[name](y, phi).x) for name in fast)


def test_recipes_are_described() -> None:
    for name, method in METHODS.items():
        assert method.name == name
        assert all((method.family, method.summary, method.reference))
        assert method.iterations > 0
        assert method.tol > 0


@pytest.mark.parametrize(("typed", "meant"), [("gap-tv3", "gap-tv3d"), ("gaptv", "gap-tv"), ("fista", "fista-tv3d")])
def test_unknown_names_get_a_suggestion(typed: str, meant: str) -> None:
    with pytest.raises(InputError, match=f"method {typed!r} is not known; did you mean .*{meant}"):
        methods.get(typed)


def test_a_hopeless_name_is_told_where_the_list_is() -> None:
    with pytest.raises(InputError, match=r"^method '\?{5}' is not known; `unsnap methods` lists them \(what a plug-in"):
        methods.get("?????")


def test_reconstruct_takes_masks_or_an_operator() -> None:
    y = Snapshot(BINARY).A(VIDEO)
    expected = METHODS[methods.DEFAULT](y, Snapshot(BINARY), iterations=4).x
    for camera in (BINARY, BINARY.bool(), Snapshot(BINARY)):
        assert torch.equal(reconstruct(y, camera, iterations=4).x, expected)
    assert torch.equal(reconstruct(y, BINARY).x, METHODS[methods.DEFAULT](y, Snapshot(BINARY)).x)
    assert reconstruct(y, BINARY, "gap-tv", iterations=2).iterations == 2


def test_masks_that_measure_nothing_leave_a_finite_video() -> None:
    for name in ("pgd-tv3d", "fista-tv3d", "admm-tv3d", "gap-tv"):
        assert bool(torch.isfinite(reconstruct(torch.zeros(8, 8), torch.zeros(3, 8, 8), name).x).all())


def test_a_pixel_without_light_is_no_salt() -> None:
    generator = torch.Generator().manual_seed(0)
    codes = masks.bernoulli(8, 32, 36, generator=generator)
    codes[:, 10, 10:14] *= 0.01
    truth = torch.full((2, 8, 32, 36), 0.4)
    y = (codes * truth).sum(1) + 0.05 * torch.randn(2, 32, 36, generator=generator)
    x = reconstruct(y, codes, "gap-wnnm").x
    assert float((x - truth)[..., 9:12, 9:15].abs().max()) < 0.15
    per_sample = reconstruct(y, codes.expand(2, 8, 32, 36), "gap-wnnm").x
    torch.testing.assert_close(per_sample, x, rtol=0, atol=1e-4)


def test_snapshots_in_sequence_help_one_another() -> None:
    truth = simulate.render(12, 48, 48, seed=2).reshape(2, 6, 48, 48)
    codes = masks.bernoulli(6, 48, 48, generator=seeded())
    y = Snapshot(codes).A(truth)
    alone, together = (reconstruct(y, codes, "gap-wnnm", together=choice).x for choice in (False, True))
    assert quality(together, truth) > quality(alone, truth) + 0.3
    assert torch.equal(reconstruct(y[:1], codes, "gap-wnnm", together=True).x, alone[:1])
    for wrong in (y[0], y[None]):
        with pytest.raises(InputError, match="in sequence must be"):
            reconstruct(wrong, codes, "gap-wnnm", together=True)
    with pytest.raises(InputError, match="takes every snapshot alone"):
        reconstruct(y, codes, "gap-tv", together=True)
    colour = RGB(codes.expand(3, 6, 48, 48))
    with pytest.raises(InputError, match="must be grey"):
        reconstruct(torch.rand(2, *colour.image), colour, "gap-wnnm", together=True)


@pytest.mark.parametrize("method", ["gap-wnnm", "shift-wnnm", "shift-net"])
def test_a_snapshot_of_another_size_is_refused_in_the_name_of_no_method(method: str) -> None:
    with pytest.raises(ValueError, match=r"^snapshot must end in \(20, 24\)"):
        reconstruct(torch.rand(24, 20), masks.bernoulli(3, 20, 24, generator=seeded()), method)


def test_pictures_without_room_for_patches_take_as_many_iterations_as_asked() -> None:
    codes = masks.bernoulli(3, 8, 9, generator=seeded())
    y = Snapshot(codes).A(torch.rand(3, 8, 9))
    for asked, done in ((None, 40), (3, 3)):
        assert reconstruct(y, codes, "gap-wnnm", iterations=asked).iterations == done


@pytest.mark.parametrize("together", [False, True])
def test_the_number_of_threads_changes_no_bit_of_low_rank(together: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "SMALL", 64)  # so that this little work is shared out
    codes = masks.bernoulli(2, 100, 90, generator=seeded())
    y = Snapshot(codes).A(simulate.render(4, 100, 90).reshape(2, 2, 100, 90))
    before, found = torch.get_num_threads(), []
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            found.append(reconstruct(y, codes, "gap-wnnm", iterations=1, together=together).x)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*found)


def test_interpolation_keeps_colours_apart() -> None:
    seen = torch.nn.functional.one_hot(torch.randint(8, (16, 16), generator=seeded()), 8).permute(2, 0, 1).float()
    phi = Bayer(mosaic(seen, "rggb"))
    red = torch.zeros(3, 8, 16, 16)
    red[0] = 1
    x = METHODS["interpolation"](phi.A(red.flatten(0, 1)), phi).x.unflatten(0, (3, -1))
    assert float(x[0].min()) > 0.95
    assert float(x[1:].max()) < 0.05
