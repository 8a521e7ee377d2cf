"""The rule for outputs, the same in every command, applied before the work begins.

An existing output is replaced only with --force, whoever wrote it; an input never, nor what is not a regular file. A
folder is written as a whole, and replaced only if all in it has names that unsnap gives there.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path

from unsnap.errors import InputError
from unsnap.io import envi
from unsnap.io.atomic import check_file, check_folder, exists
from unsnap.io.checks import is_there
from unsnap.io.formats import FOLDER, find, suffixes


def claim_output(
    output: str | Path,
    outputs: Collection[str] | re.Pattern[str] | None = None,
    *,
    inputs: Iterable[str | Path | None] = (),
    force: bool = False,
) -> None:
    """Refuse an output that cannot work or would destroy something; nothing is created.

    outputs: the extensions allowed (those of videos unless given), or the names of the files if it is a folder of
    results. inputs: what the command reads; a string may be a name and counts only if there is such a file. Missing
    parent folders are fine: they are made when the result is written.
    """
    target = Path(output)
    if isinstance(outputs, re.Pattern):
        ours: re.Pattern[str] | None = outputs
    else:
        suffix = output_suffix(output)
        allowed = suffixes(lambda kind: kind.takes_video) if outputs is None else outputs
        if suffix not in allowed:
            known = ", ".join(name or "none (a folder of PNG frames)" for name in allowed)
            raise InputError(f"{target} has the unknown extension {suffix!r}; known are {known}")
        ours = find(suffix).folder
        if suffix == envi.SUFFIX:
            claim_output(target.with_suffix(envi.DATA), (envi.DATA,), inputs=inputs, force=force)
    try:
        _check_input(target, inputs)
        _check_place(target, ours, force)
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{target!s} cannot be written ({reason}); choose another path") from error


def output_suffix(path: str | Path) -> str:
    """The lower-case extension, or that of a folder of frames."""
    suffix = Path(path).suffix.lower()
    is_folder = str(path).endswith(("/", os.sep)) or (not find(suffix).takes_video and Path(path).is_dir())
    return FOLDER if is_folder else suffix


def unconverged(output: Path) -> Path:
    """Where a video goes that its method did not stand by: nobody should take it for the result."""
    if not output.name:
        raise InputError(f"-o {str(output)!r} names no file; give the video a name, such as video.mp4")
    return output.with_name(f"{output.stem}-unconverged{output.suffix}")


def discard(output: Path) -> None:
    """Remove what an earlier run has left under a name that `claim_output` has granted with force."""
    suffix = output_suffix(output)
    ours = find(suffix).folder
    if suffix == envi.SUFFIX:
        discard(output.with_suffix(envi.DATA))
    if ours is None:
        output.unlink(missing_ok=True)
    elif output.is_dir() and not output.is_symlink():
        check_folder(output, ours)
        shutil.rmtree(output)


def _check_input(target: Path, inputs: Iterable[str | Path | None]) -> None:
    taken = _identities(target, depth=1)  # what unsnap writes is no deeper
    if not taken:
        return
    for source in inputs:
        if source is None or (isinstance(source, str) and not (is_there(source) and Path(source).is_file())):
            continue
        if taken & _identities(Path(source)):
            raise InputError(f"{target} is, or holds, an input of this command ({source}); choose another name")


def _identities(path: Path, depth: int = 100) -> set[tuple[int, int]]:
    """Device and inode of a file, or of a folder and what is in it: what links cannot hide."""
    found: set[tuple[int, int]] = set()
    waiting = [(path, depth)]
    while waiting:
        here, deeper = waiting.pop()
        with suppress(OSError, ValueError):
            info = here.stat()
            if (key := (info.st_dev, info.st_ino)) not in found:
                found.add(key)
                if deeper and stat.S_ISDIR(info.st_mode):
                    waiting.extend((entry, deeper - 1) for entry in here.iterdir())
    return found


def _check_place(target: Path, ours: re.Pattern[str] | None, force: bool) -> None:
    real = Path(os.path.realpath(target))
    if ours is not None:
        check_folder(target, ours, overwrite=force)
        if real == Path.cwd() or real.is_mount():
            raise InputError(f"{target} is the current folder or a drive, which cannot be replaced; name one inside it")
    elif target.exists():
        check_file(target)
        if not force:
            raise exists(target)
        if not os.access(target, os.W_OK):
            raise InputError(f"{target} is write-protected; choose another name or run chmod +w on it")
    folder = real.parent
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir():
        raise InputError(f"{target} cannot be written because {folder} is a file, not a folder; choose another path")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(
            f"{target} cannot be written because the folder {folder} is write-protected; choose another folder"
        )
