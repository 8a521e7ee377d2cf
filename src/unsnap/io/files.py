"""One door for every container: `read_arrays` and `save_arrays` by extension, and `sha256` for the record."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from pathlib import Path

from unsnap.errors import InputError
from unsnap.io import zarr
from unsnap.io.budget import counted
from unsnap.io.checks import Array, check_holes, existing, is_numeric, is_there, reading
from unsnap.io.formats import find, reader, suffixes
from unsnap.io.frames import GREYED, coloured, frame_paths, read_frames
from unsnap.io.mat import unread

_MEASURED = {"meas", "measurement", "measurements", "snapshot"}
_MASKS = {"mask", "masks"}
_ROLES = {*_MEASURED, *_MASKS, "orig", "truth", "gt"}

ARRAY_OUTPUTS = suffixes(lambda kind: kind.write_arrays)


@counted()
def read_arrays(path: str | Path, *, capture: bool = False, without: Iterable[object] = ()) -> dict[str, Array]:
    """Every numeric array of a file or folder, by name, with the axes its container documents.

    `.mat` (any version): MATLAB's order, usually H×W×T. Stacks, folders of frames (key "array") and videos
    (key "frames"): (T, H, W). A folder with entries called meas, mask, orig: one key for each.
    Colour becomes grey; a capture in colour has the key "rgb" and its planes one after the other, or `GREYED` where
    its format has only grey ones. without: files of a folder that play another part, such as masks and dark frames.
    """
    path = existing(path)
    if path.is_dir():
        return {"array": zarr.read(path)} if zarr.is_array(path) else _read_folder(path, capture, _resolved(without))
    arrays = reader(path).read_capture(path) if capture else reader(path).read(path)
    if capture and not reader(path).holds_video and coloured(path):
        arrays = {GREYED: arrays["array"]}
    if not arrays:
        raise InputError(
            f"{path} holds no numeric array{unread(path)}; export the measurement and the masks as numbers"
        )
    return arrays


def scene_files(paths: Iterable[Path], beside: Iterable[object] = (), separate_masks: bool = False) -> list[Path]:
    """Files as given, each once; a folder of scene files stands for them, without those `beside` (masks, dark frames).

    A folder that is one scene, with entries called meas and mask, or that holds frames stands for itself.
    separate_masks: they come from elsewhere, so that meas alone makes it one, if no other scene is beside it.
    """
    taken = _resolved(beside)
    found: list[Path] = []
    for path in paths:
        inside: list[Path] = []
        if path.is_dir():
            entries = listed(path, taken)
            inside = [entry for entry in entries if find(entry.suffix).read_arrays]
            names = {entry.stem.lower() for entry in entries}
            alone = separate_masks and {entry.stem.lower() for entry in inside} <= _ROLES
            if names & _MEASURED and (alone or names & _MASKS):
                inside = []
        found.extend(inside or [path])
    return list(dict.fromkeys(found))


def arrivals(folder: Path, beside: Iterable[object], separate_masks: bool) -> tuple[list[Path], list[Path]]:
    """The files of a folder that can be a capture, and the others; without masks of its own a picture can be one."""
    files = [entry for entry in listed(folder, _resolved(beside)) if entry.is_file()]
    kinds = {file: find(file.suffix) for file in files}
    found = [f for f, k in kinds.items() if k.read_arrays or (separate_masks and (k.read_array or k.read_frame))]
    return found, [file for file in files if file not in found]


def listed(folder: Path, taken: Collection[Path] = ()) -> list[Path]:
    """What is in a folder, sorted; without hidden files and those that are `taken`."""
    with reading(folder, "a folder"):
        return sorted(e for e in folder.iterdir() if not e.name.startswith(".") and e.resolve() not in taken)


def _resolved(paths: Iterable[object]) -> set[Path]:
    return {Path(str(path)).resolve() for path in paths if is_there(path)}


def _read_folder(folder: Path, capture: bool, without: set[Path]) -> dict[str, Array]:
    inside = listed(folder, without)
    entries = [entry for entry in inside if entry.stem.lower() in _ROLES and _is_readable(entry)]
    with reading(folder, "a folder"):
        frames = [frame for frame in frame_paths(folder) if frame.resolve() not in without]
    if not entries and not frames:
        known = ", ".join(suffixes(lambda kind: kind.read_frame))
        raise InputError(f"{folder} holds neither frames ({known}) nor meas/mask files; name another folder or file")
    if not entries:
        return {GREYED if capture and coloured(frames[0]) else "array": read_frames(frames)}
    arrays: dict[str, Array] = {}
    for entry in entries:
        key = entry.stem.lower()
        if key in arrays:
            raise InputError(f"{folder} holds {key!r} more than once ({entry.name} is the second); keep one of them")
        arrays[key] = _single(entry)
    return arrays


def _is_readable(entry: Path) -> bool:
    return entry.is_dir() or find(entry.suffix).is_readable


def _single(path: Path) -> Array:
    arrays = read_arrays(path)
    if len(arrays) > 1:
        raise InputError(
            f"{path} must hold one array to serve as {path.stem}, found {', '.join(arrays)}; save it alone"
        )
    return next(iter(arrays.values()))


def save_arrays(path: str | Path, /, **arrays: Array) -> Path:
    """Write named numeric arrays, axes as given, in one of the formats `ARRAY_OUTPUTS` (`.mat` is v5).

    >>> save_arrays("scene.npz", meas=measurement, mask=masks)  # doctest: +SKIP
    """
    return write_arrays(path, arrays)


def write_arrays(path: str | Path, arrays: dict[str, Array], *, overwrite: bool = True) -> Path:
    """The same with the arrays in a dictionary."""
    path = Path(path)
    wrong = [f"{name} ({array.dtype})" for name, array in arrays.items() if not is_numeric(array.dtype)]
    if wrong or not arrays:
        raise InputError(f"{path} can hold numeric arrays only, got {', '.join(wrong) or 'none'}; convert them first")
    kind = find(path.suffix)
    if kind.write_arrays is None:
        known = ", ".join(suffixes(lambda kind: kind.write_arrays))
        raise InputError(f"{path} has the unknown extension {path.suffix.lower()!r}; use one of {known}")
    with kind.writing(path, overwrite) as temporary:
        kind.write_arrays(temporary, arrays)
    return path


def sha256(path: str | Path) -> str:
    """Hex digest of a file, or of a folder's names and contents (hidden files left out)."""
    path = existing(path)
    with reading(path, "bytes"):
        if path.is_file():
            return _digest(path).hexdigest()
        total = hashlib.sha256()
        names = ((entry.relative_to(path), entry) for entry in path.rglob("*") if entry.is_file())
        for name, entry in sorted((name.as_posix(), entry) for name, entry in names if not _hidden(name)):
            total.update(f"{name}\0".encode() + _digest(entry).digest())
        return total.hexdigest()


def _hidden(name: Path) -> bool:
    return any(part.startswith(".") for part in name.parts)


def _digest(path: Path) -> hashlib._Hash:
    check_holes(path)
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(2**20):
            digest.update(chunk)
    return digest
