"""What a campaign keeps beside its videos, in OUT/.unsnap-parts, so that a second run does only what is missing.

campaign.json        what decides the bytes of the videos: method, options, versions
NAME.json            the record of the video NAME: written before it, and completed after it
HASH.npz             one part (a snapshot) of a file that is not complete yet; HASH is of inputs, settings and part
HASH/                the tiles of one that is too large, and plan.json, which says what they are tiles of
HASH.tries           one byte for every time that somebody began with a task, gone when it ends: who finds too many
                     knows that the task kills its workers
model-HASH…          the model file, so that workers need not have it
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from unsnap.errors import InputError, short
from unsnap.fields import finite
from unsnap.io import write_json
from unsnap.io.atomic import atomic_file, folder_for, writing
from unsnap.run import Result

NAME = ".unsnap-parts"
_SETTINGS, _PLAN = "campaign.json", "plan.json"

Stamp = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class Record:
    """Whose video this is: of which input, seen how, and what became of it."""

    campaign: str
    """Digest of the settings."""
    sha256: str
    """Of the input."""
    stamp: list[list[int]] | None = None
    """Of the input, as `stamp` has it."""
    size: int | None = None
    """Bytes of the video."""
    result: dict[str, Any] | None = None
    """None while it is being written."""


@dataclass(frozen=True)
class TilePlan:
    """How a file is cut into tiles."""

    windows: bool
    """Is it read window by window, because it does not fit either?"""
    room: int
    """Bytes that a tile may take."""


def digest(value: Any) -> str:
    """32 hex digits of anything that JSON can hold."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:32]


def stamp(path: Path) -> Stamp:
    """Size, time of change and number of a file, or of all in a folder: another stamp, another content."""
    entries = sorted(path.rglob("*")) if path.is_dir() else [path]
    facts = [entry.stat() for entry in entries]
    return tuple((fact.st_size, fact.st_mtime_ns, fact.st_ino) for fact in facts)


def size_of(path: Path) -> int | None:
    """Bytes of a file, or of the files in a folder; None if it is not there."""
    try:
        return sum(size for size, _, _ in stamp(path))
    except OSError:
        return None


@dataclass(frozen=True)
class Folder:
    """OUT, seen by the one who plans and by every worker."""

    out: Path

    @property
    def parts(self) -> Path:
        return self.out / NAME

    # ------------------------------------------------------------------ whose campaign it is

    def settings(self) -> dict[str, Any] | None:
        """Of the campaign that is here, or None."""
        try:
            found = json.loads((self.parts / _SETTINGS).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise InputError(f"{self.parts / _SETTINGS} cannot be read ({error}); choose another folder") from error
        return found if isinstance(found, dict) else {}

    def check_free(self, settings: Mapping[str, Any], force: bool) -> None:
        """An InputError if it is the folder of another campaign."""
        found, plain = self.settings(), _plain(settings)
        if found is not None and found != plain and not force:
            differ = next(key for key in {**found, **plain} if found.get(key) != plain.get(key))
            raise InputError(
                f"{self.out} holds another run ({differ} was {short(found.get(differ))} and is "
                f"{short(plain.get(differ))}); choose another folder, or replace its videos with --force"
            )

    def begin(self, settings: Mapping[str, Any]) -> None:
        """Make it the folder of this campaign."""
        if self.settings() != _plain(settings):
            write_json(self.parts / _SETTINGS, _plain(settings))
        for old in self.parts.glob("*.tries"):
            old.unlink(missing_ok=True)

    def check(self, expected: str) -> None:
        """A worker makes sure that it sees this campaign and no other."""
        if digest(self.settings()) != expected:
            raise InputError(
                f"{self.out} is not the folder of this run here (no {NAME}/{_SETTINGS} of it); give all workers the "
                "same shared folder under the same path"
            )

    # ------------------------------------------------------------------ records of videos

    def record(self, target: Path) -> Record | None:
        """What is known of a video, or None."""
        try:
            found = json.loads((self.parts / f"{target.name}.json").read_text(encoding="utf-8"))
            return Record(**found)
        except (OSError, ValueError, TypeError):
            return None

    def keep(self, target: Path, record: Record) -> None:
        write_json(self.parts / f"{target.name}.json", finite(asdict(record)))

    def disown(self, target: Path) -> None:
        """Forget that a video is ours."""
        with suppress(OSError):
            (self.parts / f"{target.name}.json").unlink(missing_ok=True)

    def done(self, target: Path, file: Path, campaign: str) -> Result | None:
        """What became of a file, if that is still true: neither it, its video nor the settings have changed since."""
        record = self.record(target)
        if record is None or record.result is None or record.campaign != campaign:
            return None
        try:
            result = revived(record.result)
            now = [list(part) for part in stamp(file)]
        except (OSError, TypeError):
            return None
        same = record.stamp == now and (result.output is None or size_of(Path(result.output)) == record.size)
        return result if same else None

    # ------------------------------------------------------------------ parts and tries

    def tried(self, key: str) -> int:
        """Say that somebody begins with a task; how many had begun before, and did not end."""
        path = self.parts / f"{key}.tries"
        with writing(path), path.open("ab") as file:  # not synced: no matter if a loss of power forgets it
            before = os.fstat(file.fileno()).st_size
            file.write(b"+")
        return before

    def ended(self, key: str) -> None:
        with suppress(OSError):
            (self.parts / f"{key}.tries").unlink(missing_ok=True)

    def part(self, key: str) -> Path:
        return self.parts / f"{key}.npz"

    def tiles(self, key: str) -> Path:
        """The folder of a file's tiles."""
        return self.parts / key

    def plan(self, key: str) -> TilePlan | None:
        """Of a file that is cut into tiles."""
        try:
            return TilePlan(**json.loads((self.tiles(key) / _PLAN).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    def decide(self, key: str, plan: TilePlan) -> TilePlan:
        """Make it the plan, unless somebody was faster; the one that holds."""
        try:
            with atomic_file(self.tiles(key) / _PLAN, overwrite=False) as temporary:
                temporary.write_text(json.dumps(asdict(plan)), encoding="utf-8")
        except InputError:
            first = self.plan(key)
            if first is None:
                raise
            return first
        return plan

    def forget(self, parts: Iterable[Path]) -> None:
        """Parts of a video that is there."""
        for path in parts:
            with suppress(OSError):
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)

    def share(self, model: Path, sha: str) -> Path:
        """A copy of a model file that all workers see, named after its content."""
        copy = self.parts / f"model-{sha[:16]}{model.suffix}"
        if not copy.exists():
            with folder_for(copy), atomic_file(copy) as temporary:
                shutil.copyfile(model, temporary)
        return copy


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """As they come back from a file."""
    plain: dict[str, Any] = json.loads(json.dumps(settings, default=str))
    return plain


def revived(facts: dict[str, Any]) -> Result:
    """A result from its JSON; numbers that were not finite are unknown."""
    numbers = {name: float("nan") for name in ("residual", "seconds", "cpu_seconds", "tolerance")}
    known = {field.name for field in fields(Result)}
    given = {name: value for name, value in facts.items() if name in known}
    return Result(**{**given, **{name: nan for name, nan in numbers.items() if given.get(name) is None}})
