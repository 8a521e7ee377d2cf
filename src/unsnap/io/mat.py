"""MATLAB files of every version: v4 through scipy, v5 to v7 through `mat5`, v7.3 (which is HDF5) through h5py.

Variables come in MATLAB's axis order and class whatever the version; text, objects and sparse matrices are left out,
and of cells there is only the name.
"""

from __future__ import annotations

import errno
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from unsnap.errors import InputError
from unsnap.io.budget import claim, passing
from unsnap.io.checks import Array, is_numeric, reading
from unsnap.io.hdf5 import opened
from unsnap.io.mat5 import DEEPEST, is_v5, read_v5

_NUMERIC = {"double", "single", "logical", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))}


def read(path: Path) -> dict[str, Array]:
    """Numeric variables by name, and cells as empty arrays of objects; the fields of a struct become "struct/field"."""
    import h5py
    from scipy.io.matlab import MatReadError

    with reading(path, "a MATLAB file", MatReadError):
        if h5py.is_hdf5(path):
            return _read_v73(path)
        with path.open("rb") as file:
            header = file.read(128)
        if is_v5(header):
            return dict(read_v5(path))
        if 0 not in header[:4]:
            raise ValueError("no MATLAB header")
        return _read_v4(path)


def unread(path: str | Path) -> str:
    """What a sentence about missing arrays adds if the file holds cell arrays: which, and what to do; else nothing."""
    names: list[str] = []
    if str(path).lower().endswith(".mat"):
        with suppress(InputError), passing():
            names = [name.replace("/", ".") for name, a in read(Path(path)).items() if a.dtype == object]
    if not names:
        return ""
    which = f"cell array {names[0]!r} is" if len(names) == 1 else f"cell arrays {', '.join(map(repr, names[:3]))} are"
    return f" (the {which} not read: save the pictures as one array, such as cat(3, {names[0]}{{:}}))"


def _read_v4(path: Path) -> dict[str, Array]:
    import scipy.io

    _check_v4(path)
    claim(path, 3 * path.stat().st_size)  # never compressed
    content = scipy.io.loadmat(path)
    return {name: a for name, a in content.items() if isinstance(a, np.ndarray) and is_numeric(a.dtype)}


def _check_v4(path: Path) -> None:
    """Every matrix is as large as it says: scipy allocates first and reads then."""
    size = path.stat().st_size
    with path.open("rb") as file:
        while file.tell() < size:
            head = file.read(20)
            order = "<" if len(head) == 20 and 0 <= struct.unpack("<i", head[:4])[0] < 10_000 else ">"
            kind, rows, columns, imaginary, name = struct.unpack(f"{order}5i", head)
            stored = (8, 4, 4, 2, 2, 1)[kind // 10 % 10] * rows * columns * (2 if imaginary else 1)
            if min(rows, columns, name) < 0 or file.tell() + name + stored > size:
                raise ValueError(f"a matrix of {rows} × {columns} values is cut short")
            file.seek(name + stored, 1)


def _read_v73(path: Path) -> dict[str, Array]:
    with opened(path, lambda file, name, node: _is_variable(file, name)) as nodes:
        arrays = ((name, _from_hdf5(node)) for name, node in nodes.items())
        return {name: array for name, array in arrays if array is not None}


def _is_variable(file: Any, name: str) -> bool:
    """Not MATLAB's own references, not part of a sparse matrix, and in `DEEPEST` structs at most."""
    above, _, _ = name.rpartition("/")
    return (
        not name.startswith("#") and name.count("/") <= DEEPEST and not (above and "MATLAB_sparse" in file[above].attrs)
    )


def _class(node: Any) -> str:
    """MATLAB's name for the type of a variable."""
    kind = node.attrs.get("MATLAB_class", "double")
    return kind.decode("latin-1") if isinstance(kind, bytes) else str(kind)


def plain(file: Any, name: str, node: Any) -> bool:
    """Is it a variable of real numbers, which can be read in parts?"""
    numbers = _class(node) in _NUMERIC and is_numeric(node.dtype)
    return _is_variable(file, name) and numbers and "MATLAB_empty" not in node.attrs


def _from_hdf5(node: Any) -> Array | None:
    """One variable; h5py sees MATLAB's column-major axes reversed, so they are turned back here."""
    kind = _class(node)
    if kind == "cell":
        return np.empty(0, object)
    if node.shape is None or kind not in _NUMERIC:
        return None
    if "MATLAB_empty" in node.attrs:  # the dataset holds the size, not the values
        return np.empty([int(length) for length in node[()]]) if 0 in node[()] else None
    if node.dtype.names == ("real", "imag"):
        parts = node[()]
        return np.asarray(parts["real"] + 1j * parts["imag"]).T
    if not is_numeric(node.dtype):
        return None
    array: Array = np.asarray(node[()]).T
    return array.astype(bool) if kind == "logical" else array


def write(path: Path, arrays: dict[str, Array]) -> None:
    """A v5 file, compressed, with the axes exactly as given."""
    import scipy.io
    from scipy.io.matlab import MatWriteError

    try:
        scipy.io.savemat(path, arrays, appendmat=False, do_compression=True)
    except MatWriteError as error:
        raise OSError(errno.EFBIG, str(error)) from error
