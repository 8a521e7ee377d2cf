"""Models by name: the config that trains each, and changes to a config written as text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from unsnap.errors import InputError, short
from unsnap.fields import fits, kinds, parsed, require
from unsnap.training.config import Config

# Nothing is gained by using a sample twice: no state grows older, and the starts cost little.
_UNFOLDED: dict[str, Any] = {"kind": "unfolded", "start": "least_squares", "implicit": 0.0, "settings": {}, "age": 1}
_ONCE = _UNFOLDED | {"stages": 1, "rate": 1e-3}  # end to end: one stage of a network that is the whole reconstruction

# An equilibrium that is told no video but the estimate: a pool whose states grow old, then gradients at rest in every
# second step, many of the states started elsewhere, and a penalty on slow modes; but none so old that the run learns
# from few samples (docs/experiments.md).
_ALONE: dict[str, Any] = {
    "start": "total_variation", "unroll": 3, "age": 60, "other_starts": 0.6, "implicit": 0.75, "implicit_share": 0.5,
    "slowness": 0.4, "pool": 32, "noise": 0.03,
}  # fmt: skip
_DENOISER = _ALONE | {"settings": {"context": False}, "sigma": 0.02}

# About half of the paper's weights and of its operations.
_RECURRENT = {"network": "frame_rnn", "iteration": "recurrent", "settings": {"channels": [16, 40, 72]}}
_CERTIFIED: dict[str, Any] = {
    "network": "certified", "gaussian": 0.15, "blend": 0.25, "gaussian_share": 0.05, "unroll": 1,
}  # fmt: skip

# 1-Lipschitz, told nothing but the estimate: a denoiser of weak noise first, then gradients at rest.
_PROVEN: dict[str, Any] = _ALONE | _CERTIFIED | {
    "sigma_max": 0.1, "unroll": 3, "slowness": 0.05, "noise": 0.02, "rate": 6e-3, "ema": 0.995,
}  # fmt: skip
_CLIPPING: dict[str, Any] = {
    "temporal": True, "contraction": None, "unshuffle": 2, "channels": 16, "hidden": 32, "activation": "clip",
}  # fmt: skip
_FIRM: dict[str, Any] = {
    "iteration": "agap", "settings": {**_CLIPPING, "kappa": 0.5, "clamp": False}, "sigma": 0.03,
}  # fmt: skip

_GUIDED: dict[str, Any] = {"start": "annealed"}  # refines the video of `gap-wnnm`

_STAGES = {
    "network": "shift_stage", "iteration": "agap", "start": "total_variation", "sigma": 0.02, "noise": 0.03,
}  # fmt: skip

PRESETS: dict[str, dict[str, Any]] = {
    "de-gap": _DENOISER,
    "de-gap-certified": _PROVEN | {"settings": {**_CLIPPING, "kappa": 0.8}, "sigma": 0.02},
    "guided-gap": _GUIDED,
    "guided-certified": _GUIDED | _CERTIFIED | {"settings": {"temporal": True, "kappa": 1, "contraction": 0.8}},
    "de-agap": _DENOISER | {"iteration": "agap"},
    "de-agap-certified": _PROVEN | _FIRM,
    "de-admm": _DENOISER | {"iteration": "admm", "strength": 0.01},
    "de-rnn": _ALONE | _RECURRENT,
    "guided-rnn": _GUIDED | {"network": "rnn", "iteration": "recurrent"},
    "denoiser": {"settings": {"context": False}, "gaussian": 1.0, "blend": 1.0, "implicit": 0.0},
    "gap-net": _UNFOLDED | {"network": "stage_unet", "stages": 12},
    "admm-net": _UNFOLDED | {"network": "stage_unet", "iteration": "admm", "stages": 9},
    "dun-3dunet": _UNFOLDED | {"network": "dense_stage"},
    "shift-net": _UNFOLDED | _STAGES | {"stages": 8},
    "unet": _ONCE | {"network": "full_unet"},
    "frames-unet": _ONCE | {"network": "unet", "settings": {"channels": [96, 192, 256], "blocks": [2, 2, 3]}},
    "stformer": _ONCE | {"network": "stformer"},
    "efficientsci": _ONCE | {"network": "efficientsci", "iteration": "recurrent"},
    "birnat": _ONCE | {"network": "birnat", "iteration": "recurrent"},
}
# What a run of one kind makes no use of, told to it, would only look like a setting.
_OF_KIND = {
    "equilibrium": ("other_starts", "implicit", "implicit_share", "gradient", "penalty", "slowness", "unroll"),
    "unfolded": ("stages", "sigma_first", "shared"),
}
_OF_NETWORK = {"rnn": "guided-rnn", "frame_rnn": "de-rnn", "certified": "de-gap-certified"}


def preset(model: str | None = None, network: str | None = None, **changes: Any) -> Config:
    """The config of a named model (default: of the one that goes with the network, else de-gap), with changes.

    >>> preset("de-rnn", minutes=5, batch=4).network
    'frame_rnn'
    """
    network = changes.pop("network", network)
    model = model or _OF_NETWORK.get(network or "", "de-gap")
    if model not in PRESETS:
        raise InputError(f"unknown model {model!r}; known are {', '.join(PRESETS)} and, for `unsnap train`, gmm")
    values = dict(PRESETS[model])
    if network not in (None, values.get("network", Config.network)):
        values |= {"network": network, "settings": {}}
    settings = {**values.get("settings", {}), **changes.pop("settings", {})}
    _check_used(changes, changes.get("kind", values.get("kind", Config.kind)))
    with _as_input_error():
        return Config(**{**values, **changes, "settings": settings})


def changed(config: Config, changes: dict[str, Any]) -> Config:
    """The config with other fields; `settings` are added to those of the network, unless that is another."""
    other = changes.get("network", config.network) != config.network
    settings = {**({} if other else config.settings), **changes.get("settings", {})}
    if changes.get("start", config.start) != config.start:
        changes = {"start_settings": {}, **changes}
    _check_used(changes, changes.get("kind", config.kind))
    with _as_input_error():
        return replace(config, **{**changes, "settings": settings})


def _check_used(changes: dict[str, Any], kind: str) -> None:
    """Refuse what was asked for and would change nothing; what a preset says for another kind is left alone."""
    for other, names in _OF_KIND.items():
        for name in names if other != kind else ():
            if changes.get(name) and changes[name] != getattr(Config, name):
                raise InputError(f"{name} is for kind={other} and has no effect on kind={kind}; leave it out")


@contextmanager
def _as_input_error() -> Iterator[None]:
    try:
        yield
    except InputError:  # says itself what is wrong
        raise
    except (TypeError, ValueError) as error:
        raise InputError(f"the run cannot be set up like this: {error}; correct the options") from error


def parse_changes(pairs: list[str]) -> dict[str, Any]:
    """`key=value` texts to fields of Config; `settings.key=value` is the network's. Values are JSON, or plain strings.

    >>> parse_changes(["batch=4", "settings.channels=[8, 8, 8]"])
    {'batch': 4, 'settings': {'channels': [8, 8, 8]}}
    """
    changes: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals:
            raise InputError(f"--set takes key=value, got {short(pair)}; for example --set batch=4")
        if key.startswith("settings."):
            changes.setdefault("settings", {})[key.removeprefix("settings.")] = _json(text, text)
        else:
            changes[key] = _parsed(key, text)
    return changes


def _parsed(key: str, text: str) -> Any:
    known = kinds(Config)
    if key not in known:
        raise InputError(f"--set {short(key)}: there is no such setting; known are {', '.join(known)}")
    if fits(text, known[key]):
        return text
    value = _json(text, text)
    require(f"--set {key}", value, known[key])
    return value


def _json(text: str, otherwise: Any) -> Any:
    try:
        return parsed(text, "--set")
    except InputError:
        return otherwise
