"""Name -> ready-made recipe: the one list that the command line, the benchmark and the studio share."""

from __future__ import annotations

from pathlib import Path

from unsnap.methods import shipped
from unsnap.methods.classical import CLASSICAL, gap_with
from unsnap.methods.low_rank import LOW_RANK
from unsnap.methods.method import Method
from unsnap.methods.patches import PATCHES
from unsnap.methods.plug_and_play import PLUG_AND_PLAY
from unsnap.methods.shipped import LEARNED, as_method
from unsnap.models.file import SUFFIX
from unsnap.priors import PRIORS
from unsnap.registry import Registry

__all__ = ["DEFAULT", "METHODS", "Method", "as_method", "everything", "get"]

DEFAULT = "shift-wnnm"

METHODS: Registry[Method] = Registry(
    "method",
    {method.name: method for method in (*LEARNED, *LOW_RANK, *CLASSICAL, *PATCHES, *PLUG_AND_PLAY)},
    Method,
    listed="`unsnap methods` lists them",
)


def get(name: str | Path) -> Method:
    """The method of that name, accelerated GAP with the prior NAME for `gap-NAME`, or the model in a .safetensors file.

    An InputError suggests the nearest names.
    """
    if str(name).endswith(SUFFIX):
        return shipped.of_file(name)
    prior = str(name).removeprefix("gap-")
    if name not in METHODS and prior in PRIORS.discover():
        return _with_prior(prior)
    return METHODS.find(str(name))


def everything() -> list[Method]:
    """All methods with a name: ours, plug-ins', installed packages', and one for each of their priors."""
    return [*METHODS.discover().values(), *(_with_prior(name) for name in PRIORS.discover())]


def _with_prior(name: str) -> Method:
    prior = PRIORS.find(name)
    return Method(
        f"gap-{name}",
        "plug-and-play",
        f"accelerated GAP with the prior {name}",
        "",
        gap_with(prior.denoise, prior.sigma),
    )
