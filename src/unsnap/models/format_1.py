"""Model files as unsnap 0.1 wrote them, brought to today's description with what decided their videos then.

Their start "guess" was whatever the method gap-wnnm was; here it is the `LowRank` of the day they were shipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from unsnap.fields import parsed, require

_LOW_RANK = {
    "name": "low_rank", "patch": 10, "group": 16, "stride": 8, "radius": 7, "first": 60 / 255, "last": 8 / 255,
    "iterations": 16, "rematch": 8, "weight": 0.2, "tv_iterations": 100, "dark": 4.0, "share": 0.6,
    "limit": 30 / 255, "smallest": 16, "unseen": "black",
}  # fmt: skip
_STARTS: dict[str, dict[str, Any]] = {
    "least_squares": {"name": "least_squares"},
    "adjoint": {"name": "adjoint"},
    "total_variation": {
        "name": "total_variation", "weight": 0.1, "iterations": 40, "temporal": 0.2, "isotropic": False, "inner": 4,
        "unseen": "black",
    },
    "guess": _LOW_RANK,
}  # fmt: skip
_KINDS: dict[str, type] = {"settings": dict, "step": str, "network": str, "start": str, "solver": dict}
_NUMBER = {"pgd": "alpha", "gd": "alpha", "admm": "rho"}


def is_format_1(metadata: Mapping[str, str]) -> bool:
    return metadata.get("unsnap_model") == "1" or metadata.get("unsnap_mixture") == "1"


def from_format_1(metadata: Mapping[str, str], tensors: dict[str, Tensor]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Description and weights in format 2; a ValueError, TypeError or KeyError if the metadata make no sense."""
    if "unsnap_mixture" in metadata:
        return {"kind": "mixture", "about": parsed(metadata.get("about", "{}"), "about")}, tensors
    recipe = {
        "settings": {}, "step": "gap", "strength": 1.0, "sigma": 0.0, "solver": {"name": "anderson"},
        "start": "least_squares", "tol": 1e-4, "max_iter": 100, "about": {},
        **parsed(metadata.get("recipe", ""), "recipe"),
    }  # fmt: skip
    for name, kind in _KINDS.items():
        require(name, recipe[name], kind)
    step, settings = recipe["step"], dict(recipe["settings"])
    if "look" in settings:
        settings["context"] = settings.pop("look")
    if recipe["network"] == "certified":
        settings.setdefault("bound", "row_sums")
    iteration = {"name": "recurrent" if step == "rnn" else step}
    if step in _NUMBER:
        iteration[_NUMBER[step]] = recipe["strength"]
    described = {
        "kind": "equilibrium",
        "iteration": iteration,
        "network": {"name": recipe["network"], "settings": settings},
        "sigma": recipe["sigma"],
        "start": _LOW_RANK if _needs_guess(recipe["network"], settings) else _STARTS[recipe["start"]],
        "solver": _solver(recipe["solver"]),
        "tol": recipe["tol"],
        "max_iter": recipe["max_iter"],
        "about": recipe["about"],
    }
    return described, {f"network.{_renamed(key)}": value for key, value in tensors.items()}


def _solver(settings: Mapping[str, Any]) -> dict[str, Any]:
    """With the numbers of then; Anderson's memory counted the differences of points, and counts the points now."""
    if settings.get("name") != "anderson":
        return dict(settings)
    usual = {"memory": 5, "damping": 1.0, "ridge": 1e-8, "safeguard": None, "history": None}
    solver = {**usual, **settings}
    require("memory", solver["memory"], int)
    return {**solver, "memory": solver["memory"] + 1}


def _needs_guess(network: str, settings: Mapping[str, Any]) -> bool:
    """These networks computed that video themselves, wherever the iteration started."""
    if network in ("shift", "unet"):
        return bool(settings.get("context", True))
    return network == "rnn" or (network == "certified" and settings.get("contraction", 0.95) is not None)


def _renamed(key: str) -> str:
    return f"context.{key.removeprefix('look.')}" if key.startswith("look.") else key
