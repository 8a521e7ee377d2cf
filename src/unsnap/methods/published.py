"""Weights that others have published and we may not ship: where to look for them, and what to say if they are not."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from torch import nn

from unsnap.errors import InputError
from unsnap.models import Equilibrium
from unsnap.models.file import SUFFIX, load
from unsnap.networks import NETWORKS, build
from unsnap.networks.foreign import read_checkpoint

VARIABLE = "UNSNAP_WEIGHTS"


@dataclass(frozen=True)
class Weights:
    """A network's file under its authors' names, the preferred one first, and the repository (owner/name) with it."""

    architecture: str
    names: tuple[str, ...]
    repository: str

    def find(self, wanted_by: str = "this method") -> Path:
        """The first of the files, or of the models that `unsnap import` made of them, in the folders in order."""
        known = [end for name in self.names for end in (name, str(Path(name).with_suffix(".safetensors")))]
        for folder in folders():
            for name in known:
                if (folder / name).is_file():
                    return folder / name
        raise InputError(
            f"{wanted_by} needs published weights that are not here: the file {' or '.join(self.names)} (or what "
            f"`unsnap import` made of it, ending in .safetensors), searched for in {_described()}; get it from "
            f"{self.repository} and put it there"
        )

    @property
    def is_here(self) -> bool:
        """Is there such a file?"""
        try:
            return self.find().is_file()
        except InputError:
            return False

    def network(self, wanted_by: str = "this method") -> nn.Module:
        """The network with these weights, in eval mode; one copy for all callers, who must not change it."""
        path = self.find(wanted_by)
        facts = path.stat()
        name, network = _load(path, (facts.st_mtime_ns, facts.st_size))
        if name != self.architecture:
            raise InputError(
                f"{path} holds the network {name}, but {wanted_by} needs {self.architecture}; put the file from "
                f"{self.repository} in its place, or rename it"
            )
        return network


def folders() -> list[Path]:
    """Where published weights are looked for: $UNSNAP_WEIGHTS, the user's data folder, the working directory."""
    own = os.environ.get(VARIABLE)
    return [*([Path(own)] if own else []), data_folder(), Path.cwd()]


def data_folder() -> Path:
    """This user's folder for unsnap's data, as is the custom on this platform."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Application Support"
    else:
        base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "unsnap"


def _described() -> str:
    found = folders()
    variable = f"${VARIABLE} ({found[0]})" if len(found) == 3 else f"${VARIABLE} (not set)"
    return f"{variable}, {found[-2]} and {found[-1]}"


@lru_cache(maxsize=8)
def _load(path: Path, stamp: tuple[int, int]) -> tuple[str, nn.Module]:
    """Architecture and network in a file; read again when the file's time or size has changed."""
    if path.suffix == SUFFIX:
        model = load(path)
        if not isinstance(model, Equilibrium) or not isinstance(model.network, nn.Module):
            raise InputError(f"{path} holds no network; put the file of a denoiser in its place, or rename it")
        return NETWORKS.name_of(type(model.network)) or "", model.network
    checkpoint = read_checkpoint(path)
    network = build(checkpoint.name, checkpoint.settings)
    network.load_state_dict(checkpoint.state_dicts[0])
    return checkpoint.name, network.eval()
