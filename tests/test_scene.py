"""A scene fits its camera, or says how it does not; parts of it are scenes again."""

from __future__ import annotations

import pytest
import torch

from laws import close, uniform
from unsnap.errors import InputError
from unsnap.operators import Multishot, Snapshot
from unsnap.scene import Scene

TRUTH = uniform(3, 2, 6, 5)
MASKS = uniform(2, 6, 5, seed=1)
OWN = uniform(3, 2, 6, 5, seed=2)
SHOTS = uniform(4, 2, 6, 5, seed=3)


def test_the_camera_decides_what_is_measured() -> None:
    for masks, camera, kind, shape in (
        (MASKS, "snapshot", Snapshot, (3, 6, 5)),
        (OWN, "snapshot", Snapshot, (3, 6, 5)),
        (SHOTS, "multishot", Multishot, (3, 4, 6, 5)),
        (SHOTS.expand(3, 4, 2, 6, 5), "multishot", Multishot, (3, 4, 6, 5)),
    ):
        scene = Scene.of(TRUTH, masks, camera)
        assert isinstance(scene.operator, kind)
        assert scene.measurement.shape == shape
        close(scene.coded, scene.measurement)
        assert (scene.snapshots, scene.frames) == (3, 2)
        assert torch.equal(scene.pictures, scene.measurement.reshape(3, -1, 6, 5)[:, 0]), "the first shot of several"
        assert scene.window(3, 1, 2).measurement.shape == (*shape[:-2], 3, 3)
        close(scene.window(3, 1, 2).coded, scene.window(3, 1, 2).measurement)


def test_arrays_of_numpy_become_tensors() -> None:
    expected, weights = Scene.of(TRUTH, MASKS), torch.ones(6, 5)
    made = Scene.of(TRUTH.numpy(), MASKS.numpy())
    given = Scene(expected.measurement.numpy(), MASKS.numpy(), TRUTH.numpy(), weights=weights.numpy())
    for scene in (made, given):
        assert torch.equal(scene.measurement, expected.measurement)
        assert torch.equal(scene.masks, MASKS)
        assert scene.truth is not None
        assert torch.equal(scene.truth, TRUTH)
        assert "<figure" in scene._repr_html_()
    assert given.weights is not None
    assert torch.equal(given.weights, weights)


@pytest.mark.parametrize("masks", [MASKS, OWN])
def test_some_captures_are_a_scene(masks: torch.Tensor) -> None:
    scene = Scene(Snapshot(masks).A(TRUTH), masks, TRUTH[:2])
    some = scene.pick([1, 2])
    close(some.measurement, scene.measurement[1:])
    assert some.truth is not None
    close(some.truth, TRUTH[1:2])
    close(some.operator.select(slice(1)).A(some.truth), some.measurement[:1])
    assert scene.pick(slice(2, None)).truth is None


@pytest.mark.parametrize(
    ("scene", "words"),
    [
        (lambda: Scene(TRUTH[:, 0], MASKS[0]), "masks of a snapshot must have 3 axes"),
        (lambda: Scene(TRUTH[:, 0], OWN[:2]), "one set for each measurement"),
        (lambda: Scene(TRUTH[0, 0], MASKS), r"measurement must be \(N, 6, 5\)"),
        (lambda: Scene(TRUTH[:, 0, :5], MASKS), r"measurement must be \(N, 6, 5\)"),
        (lambda: Scene(TRUTH[:, 0], MASKS, TRUTH[:, :1]), "truth must be"),
        (lambda: Scene(TRUTH[:2, 0], MASKS, TRUTH), "M <= 2"),
        (lambda: Scene(TRUTH[:, 0], SHOTS, camera="multishot"), r"measurement must be \(N, 4, 6, 5\)"),
        (lambda: Scene(TRUTH[:, 0], MASKS, camera="telescope"), "camera 'telescope' is not known"),
        (lambda: Scene(None, MASKS), "measurement must be a tensor or a numeric array, got NoneType"),  # type: ignore
        (lambda: Scene(TRUTH[:, 0], MASKS).coded, "true video of this scene is not known"),
    ],
)
def test_what_does_not_fit_is_one_sentence(scene: object, words: str) -> None:
    with pytest.raises(InputError, match=words):
        scene()  # type: ignore[operator]


def test_captures_from_the_end_keep_their_own_truth() -> None:
    scene = Scene(Snapshot(MASKS).A(TRUTH), MASKS, TRUTH[:2])
    assert scene.pick([-1]).truth is None
    known = scene.pick([-2]).truth
    assert known is not None
    close(known, TRUTH[1:2])
    with pytest.raises(InputError, match="picked in their order"):
        scene.pick([1, 0])


def test_weights_multiply_those_that_are_there() -> None:
    scene, own, shared = Scene(Snapshot(MASKS).A(TRUTH), MASKS, TRUTH), uniform(3, 6, 5, seed=4), uniform(6, 5, seed=5)
    both = scene.weighted(own).weighted(shared)
    assert both.weights is not None
    close(both.weights, own * shared)
    close(both.measurement, own * shared * scene.measurement)
    close(both.coded, both.measurement)
    spoilt, weights = scene.measurement.clone(), (own > 0.3).double()
    spoilt[weights == 0] = torch.nan  # what has no weight may be anything
    close(Scene(spoilt, MASKS).weighted(weights).measurement, weights * scene.measurement)
