"""Named models, and settings written as text."""

from __future__ import annotations

import pytest

from unsnap.errors import InputError
from unsnap.training import PRESETS, Config, preset
from unsnap.training.presets import changed, parse_changes


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_can_be_built(name: str) -> None:
    config = preset(name, minutes=1)
    config.check()
    assert Config.from_json(config.to_json()) == config


def test_networks_bring_their_own_preset() -> None:
    assert preset(None, "rnn", steps=1) == preset("de-rnn", steps=1)
    assert preset(None, "certified", steps=1) == preset("de-gap-certified", steps=1)
    assert preset("denoiser", "ffdnet", steps=1).settings == {}
    assert preset("denoiser", "ffdnet", steps=1).gaussian == 1
    assert preset(steps=1) == Config(steps=1)


def test_settings_are_added() -> None:
    config = preset("denoiser", steps=1, settings={"blocks": [1, 1, 1]})
    assert config.settings == {"look": False, "blocks": [1, 1, 1]}
    again = changed(config, {"settings": {"look": True}, "batch": 2})
    assert again.settings == {"look": True, "blocks": [1, 1, 1]}
    assert again.batch == 2


def test_text_becomes_values() -> None:
    pairs = ["batch=4", "rate=1e-3", "clips=a=b", "frames=[4, 8]", "settings.look=false", "minutes=null", "step=pgd"]
    assert parse_changes(pairs) == {
        "batch": 4, "rate": 1e-3, "clips": "a=b", "frames": [4, 8], "settings": {"look": False}, "minutes": None,
        "step": "pgd",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("pair", "words"),
    [
        ("batch", "key=value"),
        ("nonsense=1", "no such setting"),
        ("batch=many", "must be int"),
        ("batch=1.5", "must be int"),
        ("batch=true", "must be int"),
        ("batch=null", "must be int"),
        ("frames=8", "must be tuple"),
    ],
)
def test_bad_text(pair: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        parse_changes([pair])


def test_bad_values() -> None:
    for changes in ({"batch": 0}, {"network": "rnn", "step": "gap"}, {"step": "nonsense"}, {"frames": []}):
        with pytest.raises(InputError):
            changed(Config(steps=1), changes)
    with pytest.raises(InputError, match="known are de-gap"):
        preset("nonsense", steps=1)
    with pytest.raises(InputError, match="unknown network"):
        preset(None, "nonsense", steps=1).check()
