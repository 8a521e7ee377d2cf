"""A zipped folder is unpacked only after all its names and sizes have been found harmless."""

from __future__ import annotations

import shutil
import stat
import zipfile
from pathlib import Path, PurePosixPath

from unsnap.errors import InputError, short
from unsnap.io import budget
from unsnap.io.checks import reading
from unsnap.io.files import scene_files

MOST_FILES = 10_000
_DEEPEST, _LONGEST = 8, 200


def unpacked(archive: Path) -> Path:
    """The folder, or the one file, in a zip archive; it is unpacked beside it, and the archive removed."""
    folder = archive.with_suffix("")
    if folder.exists():
        raise InputError(f"{archive} has been unpacked already; upload it under another name")
    with reading(archive, "a zip archive"), zipfile.ZipFile(archive) as zipped:
        members = [_checked(info, archive) for info in zipped.infolist() if not info.is_dir()]
        _check_together(members, archive)
        folder.mkdir()
        try:
            for info in members:
                _unpack(zipped, info, folder, archive)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
    archive.unlink()
    return _inside(folder)


def _checked(info: zipfile.ZipInfo, archive: Path) -> zipfile.ZipInfo:
    name, mode = PurePosixPath(info.filename), info.external_attr >> 16
    outside = name.is_absolute() or ".." in name.parts or "\\" in info.filename or ":" in info.filename
    if outside or "\0" in info.orig_filename or not name.parts:
        raise InputError(f"{archive} holds {short(info.filename)}, a path that leads elsewhere; zip the folder again")
    if len(name.parts) > _DEEPEST or any(len(part.encode()) > _LONGEST for part in name.parts):
        raise InputError(f"{archive} holds {short(info.filename)}, which is too deep or too long; zip fewer folders")
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
        raise InputError(f"{archive} holds {short(info.filename)}, a link or device; zip the files themselves")
    if info.flag_bits & 1:
        raise InputError(f"{archive} is encrypted; zip the folder without a password")
    return info


def _check_together(members: list[zipfile.ZipInfo], archive: Path) -> None:
    if not members:
        raise InputError(f"{archive} holds no file; zip the folder again")
    if len(members) > MOST_FILES:
        raise InputError(f"{archive} holds {len(members)} files, more than {MOST_FILES}; zip one capture alone")
    names = [str(PurePosixPath(info.filename)).casefold() for info in members]
    twice = next((name for k, name in enumerate(sorted(names)[1:]) if name == sorted(names)[k]), None)
    if twice is not None:
        raise InputError(f"{archive} holds {short(twice)} twice; zip the folder again")
    total = sum(info.file_size for info in members)
    budget.claim(archive, total)
    free = shutil.disk_usage(archive.parent).free
    if total > 0.9 * free:
        sizes = f"{budget.in_words(total)}, and the disk has {budget.in_words(free)} left"
        raise InputError(f"{archive} would unpack to {sizes}; zip a smaller part")


def _unpack(zipped: zipfile.ZipFile, info: zipfile.ZipInfo, folder: Path, archive: Path) -> None:
    """Not one byte more than the archive's list says."""
    target = folder.joinpath(*PurePosixPath(info.filename).parts)
    target.parent.mkdir(parents=True, exist_ok=True)
    left = info.file_size
    with zipped.open(info) as source, target.open("xb") as sink:
        while chunk := source.read(2**20):
            left -= len(chunk)
            if left < 0:
                raise InputError(f"{archive}: {short(info.filename)} is larger than its entry says; zip it again")
            sink.write(chunk)


def _inside(folder: Path) -> Path:
    """The capture: a folder that holds only one thing stands for it."""
    here = folder
    while True:
        entries = [entry for entry in here.iterdir() if not entry.name.startswith((".", "__MACOSX"))]
        if len(entries) != 1 or not entries[0].is_dir():
            break
        here = entries[0]
    found = scene_files([here])
    if len(found) > 1:
        names = ", ".join(path.name for path in found[:3])
        raise InputError(f"the archive holds several captures ({names}, …); zip one alone")
    return found[0]
