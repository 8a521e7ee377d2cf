"""Named models, and settings written as text."""

from __future__ import annotations

import json

import pytest

from unsnap.algorithms import PGD
from unsnap.errors import InputError
from unsnap.models import Annealed, Equilibrium, LeastSquares, TotalVariation, Unfolded
from unsnap.training import PRESETS, Config, preset
from unsnap.training.presets import changed, parse_changes

SMALL = {"network": "cnn", "settings": {"layers": 2, "channels": 4}}


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_can_be_built(name: str) -> None:
    config = preset(name, minutes=1)
    assert isinstance(config.model(), Unfolded if config.kind == "unfolded" else Equilibrium)
    assert Config.from_json(config.to_json()) == config


def test_networks_bring_their_own_preset() -> None:
    assert preset(None, "rnn", steps=1) == preset("guided-rnn", steps=1)
    assert preset(None, "frame_rnn", steps=1) == preset("de-rnn", steps=1)
    assert preset(None, "certified", steps=1) == preset("de-gap-certified", steps=1)
    assert preset("denoiser", "ffdnet", steps=1).settings == {}
    assert preset("denoiser", "ffdnet", steps=1).gaussian == 1
    assert preset("guided-gap", steps=1) == Config(steps=1, start="annealed")
    assert preset(steps=1) == preset("de-gap", steps=1)


def test_settings_are_added() -> None:
    config = preset("denoiser", steps=1, settings={"blocks": [1, 1, 1]})
    assert config.settings == {"context": False, "blocks": [1, 1, 1]}
    again = changed(config, {"settings": {"context": True}, "batch": 2})
    assert again.settings == {"context": True, "blocks": [1, 1, 1]}
    assert again.batch == 2


def test_iteration_and_start_carry_their_numbers() -> None:
    assert preset("guided-gap", steps=1, **SMALL).model().start == Annealed()
    model = preset(steps=1, **SMALL, **parse_changes(["iteration=pgd", "strength=0.5", "start=least_squares"])).model()
    assert (model.iteration, model.start) == (PGD(0.5), LeastSquares())
    changes = parse_changes(["iteration=pgd", "start=total_variation", 'start_settings={"iterations": 7}'])
    model = preset(steps=1, **SMALL, **changes).model()
    assert (model.iteration, model.start) == (PGD(), TotalVariation(iterations=7))


def test_stages_of_an_unfolded_model() -> None:
    changes = parse_changes(["stages=3", "sigma=0.1", "sigma_first=0.5"])
    model = preset("gap-net", steps=1, **SMALL, **changes).model()
    assert isinstance(model, Unfolded)
    assert model.sigmas.tolist() == pytest.approx([0.5, 0.3, 0.1])
    assert len(model.networks) == 3
    one = preset("gap-net", steps=1, **SMALL, **changes, **parse_changes(["shared=true"])).model()
    assert isinstance(one, Unfolded)
    assert (one.stages, len(one.networks)) == (3, 1)


def test_text_becomes_values() -> None:
    pairs = [
        "batch=4", "rate=1e-3", "clips=a=b", "frames=[4, 8]", "settings.context=false", "minutes=null",
        "iteration=pgd", "shared=true", 'start_settings={"iterations": 3}', "strength=0.5",
    ]  # fmt: skip
    assert parse_changes(pairs) == {
        "batch": 4, "rate": 1e-3, "clips": "a=b", "frames": [4, 8], "settings": {"context": False}, "minutes": None,
        "iteration": "pgd", "shared": True, "start_settings": {"iterations": 3}, "strength": 0.5,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("pair", "words"),
    [
        ("batch", "key=value"),
        ("nonsense=1", "no such setting"),
        ("batch=many", "must be a whole number"),
        ("batch=1.5", "must be a whole number"),
        ("batch=true", "must be a whole number"),
        ("batch=null", "must be a whole number"),
        ("frames=8", "must be a list"),
        ("shared=1", "must be true or false"),
        ("shared=yes", "must be true or false"),
        ("start_settings=7", "must be a dictionary"),
        ("strength=strong", "must be a number"),
    ],
)
def test_bad_text(pair: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        parse_changes([pair])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"batch": 0}, "batch must be a whole number from 1"),
        ({"stages": 0}, "stages must be a whole number from 1"),
        ({"iteration": "nonsense"}, "iteration 'nonsense' is not known"),
        ({"iteration": "pgd", "strength": -1.0}, "strength must be a number above 0"),
        ({"start": "guess"}, "start 'guess' is not known"),
        ({"start_settings": {"depth": 3}}, "'depth'"),
        ({"kind": "mixture"}, "kind must be equilibrium or unfolded, got 'mixture'"),
        ({"frames": []}, "frames must be a list"),
    ],
)
def test_bad_values(changes: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        changed(Config(steps=1), changes)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("model", "change"),
    [
        ("shift-net", {"penalty": 5.0}), ("shift-net", {"unroll": 9}), ("shift-net", {"gradient": "jfb"}),
        ("gap-net", {"other_starts": 1.0}), ("gap-net", {"implicit": 0.9}),
        ("de-gap", {"stages": 9}), ("de-gap", {"shared": True}), ("de-rnn", {"sigma_first": 0.2}),
    ],
)  # fmt: skip
def test_what_would_change_nothing_is_refused(model: str, change: dict[str, object]) -> None:
    config, (name,) = preset(model, steps=1), change
    said = rf"{name} is for kind=\w+ and has no effect on kind={config.kind}; leave it out"
    with pytest.raises(InputError, match=said):
        preset(model, steps=1, **change)
    with pytest.raises(InputError, match=said):
        changed(config, change)
    other = "unfolded" if config.kind == "equilibrium" else "equilibrium"
    assert vars(preset(model, steps=1, **change, kind=other))[name] == change[name]
    assert changed(config, {name: vars(config)[name]}) == config, "what it says already"


def test_bad_names() -> None:
    with pytest.raises(InputError, match="known are de-gap"):
        preset("nonsense", steps=1)
    with pytest.raises(InputError, match="network 'nonsense' is not known"):
        preset(None, "nonsense", steps=1).model()


def test_a_config_of_version_1_is_refused_in_one_sentence() -> None:
    """Its `step` and `strength` are today's `iteration` and `strength`: nothing is guessed."""
    values = json.loads(Config(steps=1).to_json())
    old = {**values, "version": 1, "step": "gap", "strength": 1.0, "start": "guess"}
    for gone in ("kind", "iteration", "stages", "shared", "sigma_first", "start_settings"):
        del old[gone]
    with pytest.raises(InputError) as caught:
        Config.from_json(json.dumps(old), "run/config.json")
    said = str(caught.value)
    assert said.startswith("run/config.json is of another unsnap (version 1 with 'step', this one writes 2)")
    assert said.endswith("; start a new run")
    assert "\n" not in said
    with pytest.raises(InputError, match=r"another unsnap \(version 1, this one writes 2\)"):
        Config.from_json(json.dumps({**values, "version": 1}))
