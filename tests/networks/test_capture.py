"""What a network is told of the capture: by definition, in no units of the masks, and the same from equal shots."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from laws import close, normal, uniform
from unsnap.algorithms.noise import noise_map
from unsnap.errors import InputError
from unsnap.networks import Capture
from unsnap.networks.capture import around_start
from unsnap.operators import RGB, CodedOperator, Multishot, Snapshot
from unsnap.operators.whole import Whole

VIDEO = (4, 16, 15)
IMAGE = VIDEO[1:]
OWN = uniform(3, *VIDEO) * torch.tensor([0.1, 1, 255]).double().reshape(3, 1, 1, 1)
MASKS = {"shared": OWN[1], "own": OWN, "dead": OWN * (uniform(*IMAGE, seed=1) > 0.3), "signed": normal(*VIDEO, seed=2)}
each = pytest.mark.parametrize("masks", MASKS.values(), ids=MASKS)
FACTS = ("masks", "picture", "noise")


def taken(phi: CodedOperator, noise: float = 0.05) -> Capture:
    """Three snapshots of planes, with noise."""
    plane = (torch.linspace(0, 1, 16)[:, None] + torch.linspace(0, 0.5, 15)).double().expand(3, *VIDEO)
    clean = phi.A(plane)
    size = clean.abs().amax((-2, -1), keepdim=True)
    y = clean + noise * size * normal(*clean.shape, seed=3)
    return Capture(y, phi, phi.A_dagger(y))


@each
def test_of_one_shot_they_are_their_definitions(masks: Tensor) -> None:
    capture = taken(Snapshot(masks))
    peak = masks.abs().amax((-3, -2, -1), keepdim=True)
    close(capture.masks, masks / peak)
    assert float(capture.masks.abs().max()) == 1
    light = masks.sum(-3)
    seen = light.abs() > 1e-3 * peak.squeeze(-3)
    close(capture.picture, torch.where(seen, capture.y / light, 0))
    close(capture.noise, noise_map(capture.y, masks) / peak.squeeze(-3))
    assert float(capture.noise.min()) > 0


@each
def test_the_picture_of_a_still_is_the_still(masks: Tensor) -> None:
    phi, still = Snapshot(masks), uniform(3, 1, *IMAGE, seed=4)
    y = phi.A(still.expand(3, *VIDEO))
    dark = (phi.energy == 0).expand(y.shape)
    close(Capture(y, phi, still).picture, torch.where(dark, 0, still.squeeze(1)))


def test_the_noise_is_that_of_the_snapshot() -> None:
    """In units where a white frame behind an open mask is 1."""
    phi = Snapshot(255 * (uniform(4, 64, 64) > 0.5).double())
    y = phi.A(torch.full((1, 4, 64, 64), 0.5).double())
    noise = Capture(y + 255 * 0.1 * normal(*y.shape), phi, y).noise
    assert float((noise / 0.1 - 1).abs().max()) < 0.25


@each
@pytest.mark.parametrize("camera", [Snapshot, lambda m: Multishot(torch.stack([m, m.flip(-1)], -4))])
@pytest.mark.parametrize("c", [1e-6, 255.0])
def test_the_scale_of_the_masks_cancels(masks: Tensor, camera: type[CodedOperator], c: float) -> None:
    plain = taken(camera(masks))
    scaled = Capture(c * plain.y, plain.phi.scaled(c), plain.start)
    for fact in FACTS:
        close(getattr(scaled, fact), getattr(plain, fact), 1e-9)


@each
@pytest.mark.parametrize("shots", [1, 2])
@pytest.mark.parametrize("rows", [torch.tensor([2, 0]), slice(1, 3), torch.tensor([True, False, True])], ids=str)
def test_select_commutes(masks: Tensor, shots: int, rows: Tensor | slice) -> None:
    phi = Snapshot(masks) if shots == 1 else Multishot(torch.stack([masks, masks.flip(-2)], -4))
    whole = taken(phi)
    part = whole.select(rows)
    for fact in FACTS:
        full = getattr(whole, fact)
        expected = full[rows] if fact != "masks" or phi.samples else full
        close(getattr(part, fact), expected)
    assert torch.equal(part.start, whole.start[rows])
    assert torch.equal(part.y, whole.y[rows])


@each
@pytest.mark.parametrize("shots", [1, 3])
def test_equal_shots_are_one_shot_with_less_noise(masks: Tensor, shots: int) -> None:
    one = taken(Snapshot(masks))
    several = Multishot(torch.stack([masks] * shots, -4))
    many = Capture(torch.stack([one.y] * shots, -3), several, one.start)
    close(many.masks, one.masks)
    close(many.picture, one.picture)
    close(many.noise, one.noise / shots**0.5)


def test_the_picture_of_several_shots_is_their_least_squares_still() -> None:
    phi = Multishot(uniform(2, *VIDEO) + 0.1)
    y, light = uniform(3, 2, *IMAGE, seed=1), phi.masks.sum(-3)
    picture = Capture(y, phi, phi.A_dagger(y)).picture
    close((light * (light * picture.unsqueeze(1) - y)).sum(1), torch.zeros(3, *IMAGE).double(), 1e-12, scale=y)


def test_a_shot_without_light_says_nothing() -> None:
    lit = uniform(*VIDEO)
    y = uniform(1, 2, *IMAGE, seed=1)
    both = Capture(y, Multishot(torch.stack([lit, 0 * lit])), uniform(1, *VIDEO))
    close(both.picture, Capture(y[:, 0], Snapshot(lit), both.start).picture)


def test_around_start_encodes_once_and_learns() -> None:
    encode, calls = nn.Conv2d(2, 1, 1).double(), []
    encode.register_forward_hook(lambda *_: calls.append(1))
    inputs, start, x = uniform(3, 2, 5, 4), uniform(3, 1, 5, 4, seed=1), uniform(3, 1, 5, 4, seed=2)
    denoise = around_start(lambda x, sigma, seen: x + sigma * seen, encode, inputs, start)
    with torch.no_grad():
        expected = (x + start) / 2 + 0.3 * encode(inputs)
        calls.clear()
        for _ in range(3):
            close(denoise(x, 0.3), expected)
    assert len(calls) == 1
    out = denoise(x, 0.3)
    close(out.detach(), expected)
    out.sum().backward()
    close(encode.weight.grad.flatten(), 0.3 * inputs.sum((0, 2, 3)))


@pytest.mark.parametrize("make", [lambda: Snapshot(OWN), lambda: Snapshot(OWN[1]), lambda: Multishot(OWN[:2])])
def test_some_of_the_snapshots_are_told_what_was_found_of_all(make: Callable[[], CodedOperator]) -> None:
    """Tiles ask the whole picture for its noise, by the order of questions: nobody may ask again for fewer rows."""
    phi = make().part_of(Whole())
    capture = taken(phi)
    facts = [getattr(capture, name) for name in FACTS]
    rows = torch.tensor([0, 2])
    part = capture.select(rows)
    asked = {name: len(answers) for name, answers in (phi.whole.found if phi.whole else {}).items()}
    for name, fact in zip(FACTS, facts, strict=True):
        own = name != "masks" or bool(phi.samples)
        assert torch.equal(getattr(part, name), fact[rows] if own else fact)
    assert {name: len(answers) for name, answers in (phi.whole.found if phi.whole else {}).items()} == asked


def test_an_estimate_of_the_noise_has_no_gradient_and_says_so() -> None:
    capture = taken(Snapshot(OWN[1]))
    with pytest.warns(RuntimeWarning, match="leaves out the way through the estimated noise"):
        assert not Capture(capture.y.requires_grad_(), capture.phi, capture.start).noise.requires_grad


def test_colours_are_not_taken_for_shots() -> None:
    phi = RGB(uniform(3, *VIDEO))
    y = phi.A(uniform(1, *phi.video))
    with pytest.raises(InputError, match="colours of an RGB camera one by one"):
        _ = Capture(y, phi, phi.A_dagger(y)).masks
