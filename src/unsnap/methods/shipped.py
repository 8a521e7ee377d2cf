"""Models that come with the package as methods, and any model as one."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from unsnap import zoo
from unsnap.algorithms import gap
from unsnap.algorithms.iterate import Solution, Watch
from unsnap.algorithms.schedules import geometric
from unsnap.errors import InputError
from unsnap.methods.method import SHIPPED, Method, Solve, plane_by_plane
from unsnap.models import Equilibrium, Model, Unfolded
from unsnap.models.base import fitted
from unsnap.models.file import AnyModel
from unsnap.models.starts import first_video
from unsnap.operators import RGB, Bayer, CodedOperator, Snapshot
from unsnap.priors.channels import across_pictures
from unsnap.priors.checks import check_size
from unsnap.priors.gmm import GMM

_ZHAO = "Zhao, Zheng & Yuan, AAAI 2023, with our network and training"


def as_method(model: AnyModel, name: str = "model", **facts: Any) -> Method:
    """A model as a method that `reconstruct`, `bench` and `compare` accept; tolerance and iterations are its own."""
    if isinstance(model, GMM):
        return _mixture(model, name, facts)
    if not isinstance(model, Model):
        raise InputError(
            f"a method is a name, the path of a model file, a `Method` or a model, got {type(model).__name__}; a "
            "denoiser(x, sigma) is used as unsnap.gap(y, phi, denoiser, [0.1] * 40)"
        )
    return _learned(name, _described(model), lambda y, phi, n, watch: run(model, name, y, phi, n, watch), facts)


def _learned(name: str, about: dict[str, Any], solve: Solve, facts: dict[str, Any]) -> Method:
    equilibrium = about["kind"] == "equilibrium"
    own = {
        "family": about["kind"],
        "summary": about["summary"],
        "reference": str(about["about"].get("source", "")),
        "iterations": about["max_iter"] if equilibrium else len(about["sigmas"]),
        "tol": about["tol"] if equilibrium else float("inf"),
        "early": equilibrium,
        "solved": equilibrium,
    }
    return Method(name=name, solve=solve, **{**own, **facts})


def _described(model: Model) -> dict[str, Any]:
    iteration, about = type(model.iteration).__name__, model.about
    if isinstance(model, Equilibrium):
        summary = f"equilibrium of {iteration} with {type(model.network).__name__}"
        return {
            "kind": "equilibrium", "max_iter": model.max_iter, "tol": model.tol, "about": about, "summary": summary
        }  # fmt: skip
    if not isinstance(model, Unfolded):
        raise InputError(f"{type(model).__name__} is no kind of model that a method can be made of")
    summary = f"{model.stages} stages of {iteration} with {type(model.networks[0]).__name__}"
    return {"kind": "unfolded", "sigmas": model.sigmas.tolist(), "about": about, "summary": summary}


def _mixture(model: GMM, name: str, facts: dict[str, Any]) -> Method:
    mixture = model.mixture
    own = {
        "family": "Gaussian mixture",
        "summary": f"{len(mixture.weights)} Gaussians on {mixture.patch}×{mixture.patch}×{mixture.frames} patches",
        "reference": "Yang, Yuan, Liao, Llull, Brady, Sapiro & Carin, IEEE Trans. Image Process. 2014",
        "iterations": max(2, 1 + model.updates),
        "tol": 1e-2,
        "early": False,
        "check": lambda frames, height, width: check_size(mixture.patch, height, width),
        "serves": (Snapshot, RGB),
    }
    solve = plane_by_plane(lambda y, phi, n, watch: model(y, phi, n, **watch))
    return Method(name=name, solve=solve, **{**own, **facts})


def run(model: Model, name: str, y: Tensor, phi: CodedOperator, iterations: int, watch: Watch) -> Solution:
    """A model as the `solve` of a method; the iterations of an unfolded one are its first stages.

    Of a colour camera it starts from the colours together and goes on with each, as it was trained.
    """
    if isinstance(model, Equilibrium):
        options: dict[str, Any] = {"tol": watch["tol"], "max_iter": iterations}
    elif watch["tol"] < math.inf:
        raise InputError(f"{name} is an unfolded model, which has stages and no tolerance; leave out --tol")
    else:
        options = {"stages": iterations}
    try:
        fit = fitted(model, y)
        if isinstance(phi, (Bayer, RGB)):
            options["start"] = fit.started(y, phi)

        def solve(y: Tensor, phi: CodedOperator, n: int, watch: Watch) -> Solution:
            found: Solution = fit(y, phi, callback=watch["callback"], **options)
            return found

        return plane_by_plane(solve)(y, phi, iterations, watch)
    except ValueError as error:
        raise InputError(f"{name} cannot reconstruct this: {error}") from error


def of_file(path: str | Path) -> Method:
    """The model in a file as a method of its name; with the run's, where `unsnap train` gives all the same."""
    file = Path(path)
    name = f"{file.resolve().parent.name}-{file.stem}" if file.stem in ("best", "last") else file.stem
    return as_method(zoo.load(path), name)


def _shipped(name: str, summary: str, reference: str, cpu_seconds: float) -> Method:
    """A method whose weights are read when it first runs, and whose tolerance is read from its file now."""

    def solve(y: Tensor, phi: CodedOperator, n: int, watch: Watch) -> Solution:
        model = zoo.shared(name)
        if not isinstance(model, Model):
            raise InputError(f"the shipped model {name!r} has no network; install unsnap again")
        return run(model, name, y, phi, n, watch)

    facts = {"summary": summary, "reference": reference, "needs": SHIPPED, "cpu_seconds": cpu_seconds}
    return _learned(name, {"summary": "", **zoo.description(name)}, solve, facts)


def _plug_and_play(y: Tensor, phi: CodedOperator, n: int, watch: Watch) -> Solution:
    model = zoo.shared("denoiser")
    if not isinstance(model, Equilibrium) or not isinstance(model.network, nn.Module):
        raise InputError("the shipped denoiser is not what it should be; install unsnap again")
    denoise, schedule = across_pictures(fitted(model.network, y), phi), geometric(60 / 255, 6 / 255, n)
    return gap(y, phi, denoise, schedule, x0=first_video(y, phi), **watch)


SHIFT_NET = _shipped(
    "shift-net",
    "eight unfolded stages of accelerated GAP, each with a U-net of its own",
    "Meng, Jalali & Yuan 2020, with our network and training",
    1.5,
)

LEARNED = (
    _shipped("de-gap", "deep equilibrium GAP: a U-net over all frames alike, told nothing but the estimate", _ZHAO, 12),
    _shipped(
        "de-agap",
        "deep equilibrium of accelerated GAP with the same U-net: fits the snapshot, one video from every start",
        _ZHAO,
        10,
    ),
    _shipped(
        "de-agap-certified",
        "the same with a denoiser that provably leads to one video, whatever the masks, the snapshot and the start",
        "this library: unsnap certify de-agap-certified",
        24,
    ),
    _shipped("de-rnn", "deep equilibrium of a recurrence over the frames, there and back", _ZHAO, 13),
    SHIFT_NET,
    _shipped(
        "guided-certified",
        "deep equilibrium GAP near a low-rank video with a denoiser that provably converges, whatever the masks",
        "this library: unsnap certify guided-certified",
        12,
    ),
    Method(
        "pnp",
        "plug-and-play",
        "accelerated GAP with our space-time denoiser, sigma from 60 to 6 of 255",
        "Yuan, Liu, Suo & Dai, CVPR 2020, with our denoiser",
        _plug_and_play,
        needs=SHIPPED,
        cpu_seconds=11,
    ),
)
